"""The register: sorted numbers of all parcels that were announced."""

# How many entries are stepped over at once; what lies between is then looked through one by one.
BLOCK = 4


def position(register: list[int], number: int) -> int:
    """Return where a number stands in the register, -1 if it was not announced."""
    start = 0
    while start + BLOCK < len(register) and register[start + BLOCK] <= number:
        start += BLOCK
    for place in range(start, min(start + BLOCK, len(register))):
        if register[place] == number:
            return place
    return -1
