"""Keeps the daemon's socket where clients look for it, also when somebody deletes it or its folder.

What clears temporary folders does, and a logout takes the user's runtime folder away under a daemon that stays. Used by `app` for a
socket that it made itself; one of systemd's is systemd's. The kernel tells of it (inotify(7)), so a daemon at rest never wakes up.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import trio

from sid_daemon.log.record import Emit
from sid_daemon.rpc.listening import Listening
from sid_daemon.store.lock import StateLock
from sid_protocol.errors import SidError, StoreError

TRY_AGAIN_S = 10.0
"""Between two tries to make a socket again where something is in the way."""

_CHANGES = 0x4 | 0x400 | 0x800  # IN_ATTRIB, which an unlink is, IN_DELETE_SELF, IN_MOVE_SELF of sys/inotify.h


async def keep_in_place(
    listening: Listening, lock: StateLock, listen_anew: Callable[[], None], emit: Emit
) -> None:
    """Make the socket again whenever it is gone, until cancelled.

    Args:
        listening: The daemon's socket; another one afterwards.
        lock: The state lock.
        listen_anew: Tells the server that it is another one.
        emit: Takes log records: `emit(level, event, **fields)`.
    """
    told = False
    while True:
        if listening.is_in_place:
            if not await _changed(listening):
                return
            continue
        try:
            await trio.to_thread.run_sync(_make_again, listening, lock)
        except SidError as error:
            if not told:
                emit("warning", "socket_lost", path=listening.path, why=str(error))
            told = True
            await trio.sleep(TRY_AGAIN_S)
        else:
            told = False
            listen_anew()
            emit("warning", "socket_made_again", path=listening.path)


def _make_again(listening: Listening, lock: StateLock) -> None:
    above = Path(listening.path).parent.parent
    if not above.is_dir():  # more than the socket is gone, and not ours to bring back
        raise StoreError(f"{above} is gone", hint="bring it back, or start the daemon again")
    listening.make_again(lock)


async def _changed(listening: Listening) -> bool:
    """Wait until something happens to the socket's path; says no where nobody can tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return False
    try:
        if libc.inotify_add_watch(descriptor, os.fsencode(listening.path), _CHANGES) < 0:
            return not listening.is_in_place
        if listening.is_in_place:
            await trio.lowlevel.wait_readable(descriptor)
        return True
    finally:
        os.close(descriptor)
