"""What to say where no daemon can be talked to: none is there, it has no time, or it is another user's and hangs up on us.

Asked by the three clients once a connection has failed, and never before: looking costs an everyday call nothing.
"""

from __future__ import annotations

import _socket
import os
import struct

from sid_protocol.errors import NoDaemon, Refused, SidError, WireError


def no_daemon(path: str) -> NoDaemon:
    """Return the error of a socket on which nobody answers."""
    return NoDaemon(
        f"no daemon at {path}", hint="start one with 'systemctl --user start sid' or 'sictl start'"
    )


def no_answer(path: str) -> WireError:
    """Return the error of a daemon that is there and says nothing, or does not come to take the connection."""
    return WireError(
        f"the daemon at {path} did not answer in time", hint="try again; 'sictl attach' shows what it does"
    )


def unreachable(path: str, error: OSError) -> SidError:
    """Return the error of a socket that cannot be connected to.

    Args:
        path: The socket.
        error: What the system said.
    """
    if isinstance(error, FileNotFoundError | ConnectionRefusedError | NotADirectoryError):
        return no_daemon(path)
    # So many wait already that there is no room for one more.
    if isinstance(error, BlockingIOError | TimeoutError):
        return no_answer(path)
    owner = _owner_of_what_is_seen(path)
    if isinstance(error, PermissionError) and owner is not None and owner != os.geteuid():
        return _another_users(path, owner)
    why = os.strerror(error.errno) if error.errno else str(error)
    return SidError(f"cannot use {path}: {why}", hint="set SID_SOCKET to a path of your own")


def refusal(path: str, connection: _socket.socket) -> Refused | None:
    """Return why a connection was closed on us, if it is because its daemon is another user's.

    Args:
        path: The socket.
        connection: Connected to it, and not closed at this end.
    """
    try:
        told = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return None
    _, owner, _ = struct.unpack("3i", told)
    mine = os.geteuid()
    return None if mine in (0, owner) else _another_users(path, owner)


def _owner_of_what_is_seen(path: str) -> int | None:
    """Return who owns the socket, or the innermost folder above it that can be looked at."""
    while True:
        try:
            return os.stat(path).st_uid  # noqa: PTH116 - pathlib would cost `status` 5 ms
        except OSError:
            above = os.path.dirname(path)  # noqa: PTH120 - as above
            if above == path:
                return None
            path = above


def _another_users(path: str, owner: int) -> Refused:
    import pwd  # of no use to a connection that works

    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"uid {owner}"
    return Refused(
        f"the daemon at {path} belongs to {name} and serves nobody else",
        hint=f"run sictl as {name}, or set SID_SOCKET to a path of your own",
    )
