"""Where this user's socket, state and repositories are: the pure rules applied to this process's world.

Called by client, spawn and the verbs. Reads the environment and looks for `.git`; never writes.
"""

from __future__ import annotations

import os

from sid_protocol.errors import UsageError
from sid_protocol.locations import checked_socket_path, home_of, socket_path, state_dir

COMPLETION = "_SICTL_COMPLETE"
"""Set by the script that teaches a shell to complete, when it asks `sictl` what fits."""


def home() -> str:
    """Return the user's home directory.

    Raises:
        UsageError: none is known.
    """
    return home_of(os.environ, _home_of_account)


def _home_of_account() -> str:
    import pwd  # of no use where HOME is set

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def own_socket(given: str | None) -> str:
    """Return the daemon's socket: `--socket`, else where the environment says.

    Raises:
        UsageError: the path is empty or too long for a Unix socket.
    """
    if given is None:
        return socket_path(os.environ, home())
    if not given:
        raise UsageError("--socket is empty", hint="name the daemon's socket, or leave it out")
    return checked_socket_path(absolute(given))


def own_state_dir() -> str:
    """Return the folder of the daemon's state."""
    return state_dir(os.environ, home())


def absolute(path: str) -> str:
    """Return a path that means the same to a daemon that stands elsewhere.

    Raises:
        UsageError: the current folder has been deleted.
    """
    try:
        return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - pathlib would cost `status` 5 ms
    except FileNotFoundError:
        raise UsageError("the current folder no longer exists", hint="cd into one that does") from None


def repository(path: str) -> str | None:
    """Return the top of the git checkout that a path lies in, symbolic links resolved; None outside of one."""
    folder = os.path.realpath(path)
    while True:
        if os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118 - as above
            return folder
        above = os.path.dirname(folder)  # noqa: PTH120 - as above
        if above == folder:
            return None
        folder = above


def existing(text: str) -> str | None:
    """Return what was typed as an absolute path without symbolic links if it exists as one, else None."""
    if not text:
        return None  # an empty variable of a script, which must not mean the folder one happens to stand in
    path = absolute(text)
    return os.path.realpath(path) if os.path.exists(path) else None  # noqa: PTH110 - as above


def here() -> str:
    """Return the folder that the command stands in, symbolic links resolved."""
    return os.path.realpath(absolute("."))
