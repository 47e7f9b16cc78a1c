"""The socket that the daemon listens on: made here, or handed over by systemd.

Used by `main` before anything else answers. A stale socket is removed only under the state lock and
only when nobody answers on it; a socket that is not ours any more is never removed. The modes (0700,
0600) come from the interfaces page, `LISTEN_FDS` from systemd's sd_listen_fds(3).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sid_daemon.store.lock import StateLock
from sid_protocol.errors import Refused, StoreError
from sid_protocol.locations import checked_socket_path

_BACKLOG = 512
_FIRST_FD = 3  # SD_LISTEN_FDS_START
_ACTIVATION = ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection, as the kernel recorded it when it was made."""

    pid: int
    uid: int
    gid: int


class _Socket(Protocol):
    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes: ...


def peer_of(sock: _Socket) -> Peer:
    """Return the peer of a connected Unix socket (SO_PEERCRED)."""
    return Peer(*struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))


class Listening:
    """A listening Unix socket and the right to remove its path.

    Args:
        sock: It listens, and does not block.
        path: Where it is.
        owned: We made the path, so we remove it; systemd removes its own.
    """

    def __init__(self, sock: socket.socket, path: str, *, owned: bool) -> None:
        self.sock = sock
        self.path = path
        self._identity = _identity(path) if owned else None

    @property
    def is_owned(self) -> bool:
        """Whether we made the path."""
        return self._identity is not None

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names the socket that we made."""
        return self._identity is not None and self._identity == _identity(self.path)

    def make_again(self, lock: StateLock) -> None:
        """Listen on a new socket at the path, from which ours is gone.

        Args:
            lock: See `bind`.

        Raises:
            Refused: see `bind`.
            StoreError: see `bind`.
        """
        made = bind(self.path, lock)
        self.sock.close()
        self.sock, self._identity = made.sock, _identity(self.path)

    def close(self) -> None:
        """Stop listening, and remove the path if it is still the one that we made."""
        if self.is_in_place:
            with contextlib.suppress(FileNotFoundError):
                Path(self.path).unlink()
        self._identity = None
        self.sock.close()


def activated(env: MutableMapping[str, str], pid: int) -> Listening | None:
    """Return the socket that systemd handed over, or None; removes its variables from `env`.

    Args:
        env: The environment, which children would inherit.
        pid: Our own process id: a socket for another process is left alone.

    Raises:
        Refused: what was handed over is not exactly one listening Unix socket.
    """
    values = {name: env.pop(name, "") for name in _ACTIVATION}
    if values["LISTEN_PID"] != str(pid) or not values["LISTEN_FDS"].isdecimal():
        return None
    count = int(values["LISTEN_FDS"])
    if count == 0:
        return None
    hint = "sid.socket must have one ListenStream= with an absolute path"
    if count > 1:
        raise Refused(f"systemd handed over {count} sockets, not one", hint=hint)
    try:
        sock = socket.socket(fileno=_FIRST_FD)
    except OSError as error:
        raise Refused(f"systemd handed over no socket: {error.strerror}", hint=hint) from None
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_STREAM) or not listens:
        sock.close()
        raise Refused("systemd handed over something else than a listening Unix socket", hint=hint)
    sock.set_inheritable(False)
    sock.settimeout(0)
    return Listening(sock, str(sock.getsockname()), owned=False)


def bind(path: str, lock: StateLock) -> Listening:
    """Listen on a Unix socket at `path`, readable and writable for its owner alone.

    Args:
        path: Absolute; its folder is made with mode 0700 if it is missing.
        lock: The state lock: only its holder may remove a stale socket.

    Raises:
        Refused: another daemon answers there, or something else than a socket is in the way.
        StoreError: the folder or the socket cannot be made.
        UsageError: the path is too long.
    """
    checked_socket_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        _make_folder(Path(path).parent)
        # Set before bind, it is the mode that the path is made with: there is no moment of another one.
        os.fchmod(sock.fileno(), 0o600)
        try:
            sock.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            _remove_stale(path, lock)
            sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise StoreError(
            f"cannot listen on {path}: {error.strerror}", hint="set SID_SOCKET to a path that is yours"
        ) from None
    except BaseException:
        sock.close()
        raise
    return Listening(sock, path, owned=True)


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.stat()
    # A folder of the user's choice may be shared on purpose; one called `sid` is ours.
    if folder.name == "sid" and state.st_uid == os.geteuid() and state.st_mode & 0o077:
        folder.chmod(0o700)


def _remove_stale(path: str, lock: StateLock) -> None:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise Refused(f"{path} exists and is not a socket", hint="move it away, or set SID_SOCKET")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except BlockingIOError:  # its backlog is full: somebody is there
            pass
    raise Refused(
        f"another daemon answers on {path}, with another state directory than {lock.state_dir}",
        hint="set SID_SOCKET to another path, or 'sictl daemon shutdown' ends that one",
    )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        state = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return state.st_dev, state.st_ino
