"""Draws a specification as PNG or SVG, in a child process.

`render_chart` is called by the daemon; the child is this module run as a program: the specification on its
stdin, the picture on its stdout. Drawing needs a JavaScript engine of 150 MB and seconds of CPU time, so it never
happens in the daemon itself, and the child gives way to whatever is being measured.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import trio

from sid_protocol.errors import SidError

DEADLINE_S = 60.0
NO_LIBRARY = 3
"""Exit status of the child where the drawing library is not installed."""
NICE = 10
SCALE = 2.0
"""Pixels of a PNG for one of the specification: sharp on today's screens."""


async def render_chart(spec: dict[str, Any], form: str, *, deadline_s: float = DEADLINE_S) -> bytes:
    """Return a chart as a picture.

    Args:
        spec: A Vega-Lite specification.
        form: `png` or `svg`.
        deadline_s: After so many seconds the child is killed.

    Raises:
        SidError: the extra `charts` is not installed, or the chart could not be drawn.
    """
    # -P: a file named like a module in the current folder must not be imported in its place.
    command = [sys.executable, "-P", "-m", "sid_daemon.report.chart", form]
    with trio.move_on_after(deadline_s) as scope:
        done = await trio.run_process(
            command,
            stdin=json.dumps(spec, allow_nan=False).encode(),
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
    """Draw stdin to stdout; the child's whole life.

    Args:
        arguments: The format alone.

    Returns:
        The exit status.
    """
    try:
        import vl_convert
    except ImportError:
        return NO_LIBRARY
    os.nice(NICE)
    spec = sys.stdin.buffer.read().decode()
    # No address is ever fetched, whatever a specification says.
    if arguments == ["svg"]:
        picture = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
    elif arguments == ["png"]:
        picture = vl_convert.vegalite_to_png(spec, scale=SCALE, allowed_base_urls=[])
    else:
        sys.stderr.write("usage: chart png|svg\n")
        return 2
    sys.stdout.buffer.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
