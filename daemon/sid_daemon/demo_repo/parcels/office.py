"""A day at the office, from the log to the report."""

from parcels.gazetteer import DEPOT, ROADS, TOWNS
from parcels.labels import Label, wagon_loads, without_repeats
from parcels.reading import read_log
from parcels.register import position
from parcels.report import report
from parcels.roads import hops
from parcels.spelling import nearest


def day(log: str, announced: list[int]) -> str:
    """Return the report of a day.

    `log` is the clerk's; `announced` are the numbers of the parcels that were expected, sorted.
    """
    entries = read_log(log)
    labels = [Label(nearest(written, TOWNS), number) for number, written, _ in entries]
    kept = without_repeats(labels)
    unannounced = sum(1 for label in kept if position(announced, label.number) < 0)
    weight = sum(kg for _, _, kg in entries)
    return report(wagon_loads(kept), hops(ROADS, DEPOT), unannounced, weight)
