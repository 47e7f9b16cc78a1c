"""Distances by road."""


def hops(roads: dict[str, list[str]], start: str) -> dict[str, int]:
    """Return how many roads lie between `start` and every town."""
    found = {start: 0}
    queue = [start]
    while queue:
        town = queue.pop(0)
        for other in roads[town]:
            if other not in found:
                found[other] = found[town] + 1
                queue.append(other)
    return found
