"""Labels: what is stuck on a parcel, and what is done with them."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Label:
    """A parcel's label; labels sort by town, then by number."""

    town: str
    number: int


def without_repeats(labels: list[Label]) -> list[Label]:
    """Return the labels in their order, each once."""
    kept: list[Label] = []
    for label in labels:
        if label not in kept:
            kept.append(label)
    return kept


def wagon_loads(labels: list[Label]) -> list[list[Label]]:
    """Return what each wagon takes: all parcels for one town, the first town in the alphabet first."""
    loads = []
    waiting = labels
    while waiting:
        first = sorted(waiting)[0]
        loads.append([label for label in waiting if label.town == first.town])
        waiting = [label for label in waiting if label.town != first.town]
    return loads
