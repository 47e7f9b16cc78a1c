"""Run a Python program under cProfile and print where its time went, as one marked line of JSON.

Run in a sandbox by whatever interpreter the benchmark uses (3.8 or newer), in the checkout; so: the standard
library alone, no import of ours. Usage: `profile_child.py script.py args...` or `profile_child.py -m module args...`.
The program sees the same arguments, import path and `__main__` as without it. What it prints comes first.
"""

from __future__ import annotations

import sys

# The folder of this file is on the path when it is run as a script; its modules are not the program's.
_HERE = __file__.rpartition("/")[0]
sys.path[:] = [entry for entry in sys.path if entry != _HERE]

import cProfile  # noqa: E402 - only now is the path safe
import json  # noqa: E402 - only now is the path safe
import os  # noqa: E402 - only now is the path safe
import runpy  # noqa: E402 - only now is the path safe
from pathlib import Path  # noqa: E402 - only now is the path safe
from typing import Any  # noqa: E402 - only now is the path safe

MARKER = "#sid-profile "
KEPT = 300  # functions with the most time; enough for any report, and a bound on the output


def main(arguments: list[str]) -> int:
    """Run the program, then print the profile; return its exit status."""
    out = os.dup(1)  # the program may close or redirect its own
    root = Path.cwd().resolve()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(root))

        def run() -> None:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))

        def run() -> None:
            runpy.run_path(arguments[0], run_name="__main__")

    profile = cProfile.Profile()
    status = 0
    try:
        profile.runcall(run)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        profile.disable()
        sys.stdout.flush()
        line = "\n" + MARKER + json.dumps(report(profile.getstats(), root)) + "\n"
        with os.fdopen(out, "w") as stream:
            stream.write(line)
    return status


def report(entries: list[Any], root: Path) -> dict[str, Any]:
    """Return the functions that took the most time, each with what it called itself."""
    rows: list[list[Any]] = []
    for entry in entries:
        path, line, name = place(entry.code, root)
        if path is not None:
            calls = [[*place(call.code, root), call.callcount, call.totaltime] for call in entry.calls or ()]
            calls.sort(key=lambda call: -call[4])
            rows.append([path, line, name, entry.callcount, entry.inlinetime, entry.totaltime, calls[:20]])
    rows.sort(key=lambda row: -row[5])
    return {"functions": rows[:KEPT], "total_s": sum(entry.inlinetime for entry in entries)}


def place(code: Any, root: Path) -> tuple[str | None, int, str]:
    """Return path in the checkout (None outside of it), line and name of a function."""
    if isinstance(code, str):
        return None, 0, code[:100]
    path = os.path.realpath(root / code.co_filename)
    inside = path.startswith(str(root) + os.sep) and "site-packages" not in path
    return (path[len(str(root)) + 1 :] if inside else None), code.co_firstlineno, code.co_name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
