"""Find out which town a handwritten name means."""


def distance(written: str, town: str) -> int:
    """Return how many letters must be changed, added or dropped to make `town` of `written`."""
    row = list(range(len(town) + 1))
    for place, letter in enumerate(written):
        above = row
        row = [place + 1]
        for at, other in enumerate(town):
            changed = above[at] + (letter != other)
            row.append(min(changed, above[at + 1] + 1, row[at] + 1))
    return row[-1]


def nearest(written: str, towns: list[str]) -> str:
    """Return the town whose name is closest to what was written."""
    if written in towns:
        return written
    best, fewest = "", len(written) + 1
    for town in towns:
        slips = distance(written, town)
        if slips < fewest:
            best, fewest = town, slips
    return best
