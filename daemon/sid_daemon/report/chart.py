"""Draws a run's step chart as PNG or SVG: a program.

`drawing` runs it: what the run is about on its stdin, the picture on its stdout; the candidates, as many as there ever were,
it reads from the run's database.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sid_daemon.layout import RAW_DATA
from sid_daemon.report.series import Subject

NO_LIBRARY = 3
"""Exit status where the drawing library is not installed."""
SCALE = 2.0
"""Pixels of a PNG for one of the specification: sharp on today's screens."""


def main(arguments: list[str]) -> int:
    """Draw a run to stdout.

    Args:
        arguments: The format, and the path of the run's database.

    Returns:
        The exit status.
    """
    try:
        import vl_convert
    except ImportError:
        return NO_LIBRARY
    if len(arguments) != 2 or arguments[0] not in ("png", "svg"):
        sys.stderr.write("usage: chart png|svg DATABASE\n")
        return 2
    # Here, since the daemon itself needs neither.
    from sid_daemon.report.vega import step_chart
    from sid_daemon.store.databases import read_entries

    subject = Subject(**json.load(sys.stdin))
    spec = json.dumps(step_chart(read_entries(Path(arguments[1]), RAW_DATA), subject), allow_nan=False)
    # No address is ever fetched, whatever a specification says.
    if arguments[0] == "svg":
        picture = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
    else:
        picture = vl_convert.vegalite_to_png(spec, scale=SCALE, allowed_base_urls=[])
    sys.stdout.buffer.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
