"""Draws a run's step chart as PNG or SVG, in a child process.

`render_chart` is called by the daemon; the child is this module run as a program: what the run is about on its
stdin, the picture on its stdout; the candidates it reads from the run's database. Drawing needs a JavaScript engine of
150 MB and seconds of CPU time, and the candidates are as many as there ever were, so neither happens in the daemon itself,
and the child gives way to whatever is being measured.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import trio

from sid_daemon.report.series import Subject
from sid_daemon.store.documents import RAW_DATA
from sid_protocol.errors import SidError

DEADLINE_S = 60.0
NO_LIBRARY = 3
"""Exit status of the child where the drawing library is not installed."""
NICE = 10
SCALE = 2.0
"""Pixels of a PNG for one of the specification: sharp on today's screens."""


async def render_chart(
    database: Path, subject: Subject, form: str, *, deadline_s: float = DEADLINE_S
) -> bytes:
    """Return a chart as a picture.

    Args:
        database: The run's.
        subject: What the run is about.
        form: `png` or `svg`.
        deadline_s: After so many seconds the child is killed.

    Raises:
        SidError: the extra `charts` is not installed, or the chart could not be drawn.
    """
    # -P: a file named like a module in the current folder must not be imported in its place.
    command = [sys.executable, "-P", "-m", "sid_daemon.report.chart", form, str(database)]
    with trio.move_on_after(deadline_s) as scope:
        done = await trio.run_process(
            command,
            stdin=json.dumps(asdict(subject)).encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd="/",
            deliver_cancel=_kill,
        )
    if scope.cancelled_caught:
        raise SidError(f"drawing the chart took longer than {deadline_s:g} s", hint="try it again later")
    if done.returncode == NO_LIBRARY:
        raise SidError(
            "charts need the library vl-convert-python, which is not installed",
            hint="install sid with its extra: pip install 'sid-daemon[charts]'",
        )
    if done.returncode != 0 or not done.stdout:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no reason given"]
        raise SidError(f"the chart could not be drawn: {last[0][:300]}", hint="try the other format")
    return bytes(done.stdout)


async def _kill(process: trio.Process) -> None:
    # It holds nothing that an orderly end would save.
    process.send_signal(signal.SIGKILL)
    await process.wait()


def main(arguments: list[str]) -> int:
    """Draw a run to stdout; the child's whole life.

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
    os.nice(NICE)
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
