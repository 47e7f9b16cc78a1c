"""The report of the day."""

from parcels.labels import Label


def report(loads: list[list[Label]], hops: dict[str, int], unannounced: int, weight: int) -> str:
    """Return the report: a line a wagon, then what else there is to say."""
    text = ""
    for load in loads:
        town = load[0].town
        text += f"{town} ({hops[town]} roads away): "
        for label in load:
            text += f"{label.number} "
        text += "\n"
    return text + f"{unannounced} not announced, {weight} kg in all\n"
