"""`sictl`'s entry: `status` at once, everything else through click, and a clean way out of both.

Called by the console script. Holds the promises about leaving: a closed pipe ends quietly with 0, Ctrl-C with 130,
every error in one line, and never a traceback.
"""

from __future__ import annotations

import errno
import os
import sys

from sid_cli import fast_status, faults
from sid_cli.places import COMPLETION
from sid_protocol.errors import SidError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})


def main() -> None:
    """Run `sictl` on this process's arguments and leave with the exit code of the interface."""
    _open_standard_streams()
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
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        fast_status.quiet_stdout()
        where = error.filename or "the output"
        code = faults.report(
            SidError(f"cannot write {where}: {error.strerror}", hint="free some space, or write elsewhere"),
            as_json="--json" in args,
        )
    sys.exit(code)


def _open_standard_streams() -> None:
    """Stand in for streams that the caller closed: a file or a socket would get their numbers, and be written to."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _run(args: Sequence[str]) -> int:
    if "status" in args and COMPLETION not in os.environ and (wanted := fast_status.parse(args)):
        try:
            return fast_status.show(wanted)
        except SidError as error:
            return faults.report(error, as_json=wanted.as_json)
    from sid_cli import main as verbs

    if instruction := os.environ.get(COMPLETION):
        return verbs.complete(instruction)
    return verbs.run(args)
