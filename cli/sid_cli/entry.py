"""`sictl`'s entry: `status` at once, everything else through click, and a clean way out of both.

Called by the console script. Holds the promises about leaving: a closed pipe ends quietly with 0, Ctrl-C with 130,
every error in one line, and never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sid_cli import fast_status, faults
from sid_protocol.errors import SidError


def main() -> None:
    """Run `sictl` on this process's arguments and leave with the exit code of the interface."""
    sys.excepthook = faults.unexpected
    args = sys.argv[1:]
    try:
        code = _run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        fast_status.quiet_stdout()
        code = 0
    except KeyboardInterrupt:
        code = faults.interrupted(as_json="--json" in args)
    sys.exit(code)


def _run(args: Sequence[str]) -> int:
    if "status" in args and "_SICTL_COMPLETE" not in os.environ and (wanted := fast_status.parse(args)):
        try:
            return fast_status.show(wanted)
        except SidError as error:
            return faults.report(error, as_json=wanted.as_json)
    from sid_cli import main as verbs

    if instruction := os.environ.get("_SICTL_COMPLETE"):
        return verbs.complete(instruction)
    return verbs.run(args)
