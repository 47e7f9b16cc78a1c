"""How an error leaves `sictl`: one line to stderr, the error document with `--json`, an exit code.

Called by the entry alone. A traceback is shown only where SID_DEBUG=1 asks for it; otherwise an unexpected error
prints an id, which is the same for the same fault, and how to report it.
"""

from __future__ import annotations

import os
import sys

from sid_cli.console import Console, error_document
from sid_cli.text import clean
from sid_protocol.errors import NoDaemon, SidError, code_of, exit_code_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED = 130
NO_DAEMON = 3


def report(error: SidError, *, as_json: bool) -> int:
    """Print an error that says what happened and what to do; return the exit code."""
    if _debugs():
        import traceback

        traceback.print_exception(error)
    code = "no_daemon" if isinstance(error, NoDaemon) else code_of(error.rpc_code)
    exit_code = NO_DAEMON if isinstance(error, NoDaemon) else exit_code_of(error.rpc_code)
    print_problem(code, error.message, error.hint, as_json=as_json)
    return exit_code


def _debugs() -> bool:
    return os.environ.get("SID_DEBUG") == "1"


def print_problem(code: str, message: str, hint: str, *, as_json: bool) -> None:
    """Print one problem: a line to stderr and, with `--json`, the error document to stdout."""
    console = Console(as_json=as_json)
    if as_json:
        console.write(error_document(code, message, hint))
    console.note(f"sictl: {clean(message)}; {clean(hint)}" if hint else f"sictl: {clean(message)}")


def interrupted(*, as_json: bool, note: str = "") -> int:
    """Say that Ctrl-C was understood; return 130."""
    if as_json:
        Console(as_json=True).write(error_document("failed", "interrupted", note))
    # A terminal has just shown `^C` where the cursor stands.
    start = "\n" if sys.stderr.isatty() else ""
    Console().note(f"{start}sictl: interrupted{f'; {note}' if note else ''}")
    return INTERRUPTED


def unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report a defect of `sictl` itself, as `sys.excepthook`; the interpreter then leaves with 1."""
    import traceback  # both cost `status` 3 ms that it seldom needs
    import zlib

    if _debugs():
        traceback.print_exception(kind, error, trace)
        return
    frames = "".join(f"{f.name}:{f.lineno}" for f in traceback.extract_tb(trace))
    fault_id = f"{zlib.crc32(f'{kind.__name__}{frames}'.encode()):08x}"
    what = f"unexpected error {fault_id} ({kind.__name__}: {str(error)[:200]})"
    hint = "this is a defect of sictl: SID_DEBUG=1 shows where; please report it with that"
    print_problem("failed", what, hint, as_json="--json" in sys.argv[1:])
