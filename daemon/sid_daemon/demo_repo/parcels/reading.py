"""Read the log: one parcel a line, as the clerk wrote it."""

import re


def read_line(line: str) -> tuple[int, str, int] | None:
    """Return number, town as written, and weight in kg; None for a remark of the clerk."""
    found = re.match(r"\s*(?:\d\d:\d\d)\s+no\.\s*(\d+)\s+to\s+(\w+),\s*(\d+)\s*kg", line)
    if found is None:
        return None
    return int(found.group(1)), found.group(2), int(found.group(3))


def read_log(log: str) -> list[tuple[int, str, int]]:
    """Return every parcel of a log, in the order in which they came."""
    entries = []
    for line in log.splitlines():
        entry = read_line(line)
        if entry is not None:
            entries.append(entry)
    return entries
