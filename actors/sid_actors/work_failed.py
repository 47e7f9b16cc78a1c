"""What an actor says of work that git or the machine did not let it do; used by the actors of every role."""

from __future__ import annotations

import errno
import os

from sid_protocol.errors import SidError
from sid_protocol.events import WorkFailed

_HINTS = {
    errno.ENOSPC: "free some space, then start the run again",
    errno.EDQUOT: "free some space, then start the run again",
    errno.EFBIG: "let the daemon write larger files (ulimit -f), then start the run again",
    errno.EMFILE: "let the daemon have more open files (ulimit -n 4096), then start the run again",
    errno.EROFS: "make the disk writable, then start the run again",
    errno.EACCES: "fix the permissions, then start the run again",
    errno.EPERM: "fix the permissions, then start the run again",
}


def work_failed(cause: str, error: SidError | OSError) -> WorkFailed:
    """Return the event for an error that is no agent's.

    Args:
        cause: The command's id.
        error: It; of an error of the system the file comes first.
    """
    if isinstance(error, SidError):
        return WorkFailed(cause=cause, why=error.message, hint=error.hint or _hint_in(error.message))
    why = error.strerror or " ".join(str(error).split()) or type(error).__name__
    if error.filename is not None:
        why = f"{os.fsdecode(error.filename)}: {why}"
    return WorkFailed(cause=cause, why=why, hint=_HINTS.get(error.errno or 0, ""))


def _hint_in(message: str) -> str:
    """Return what to do about a message of git's or libgit2's, which say what the system said."""
    return next((hint for number, hint in _HINTS.items() if os.strerror(number) in message), "")
