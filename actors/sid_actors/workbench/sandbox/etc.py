"""What a job sees of /etc: its files as one folder of copies, its folders each by itself.

Every bind costs a sandbox 0.15 ms of a processor, and the files are a dozen. Folders are bound: what changes deep in them
could not be told at a glance. A file that has changed is seen by the next job, from a new copy of all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# What programs look up by name; single entries, because /etc also holds keys and passwords' hashes.
_ENTRIES = (
    *("alternatives", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime"),
    *("nsswitch.conf", "passwd", "services", "protocols", "ssl/certs", "ssl/openssl.cnf", "ca-certificates"),
    *("pki/tls/certs", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies"),
)
_FOR_NETWORK = ("resolv.conf", "gai.conf", "host.conf")
_KEPT = 16  # copies; jobs that began before the last change still have an older one


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry as it is on the host; of a folder nothing is told but that it is one."""

    path: str
    folder: bool
    version: tuple[int, ...] = ()


class EtcCopies:
    """Makes the copies, each when it is first asked for and again when a file has changed.

    Args:
        place: The folder for them, which is the copies' own; it need not exist.
        etc: What is copied.
    """

    def __init__(self, place: Path, etc: str = "/etc") -> None:
        self._place = place
        self._etc = etc
        self._lock = threading.Lock()
        self._made = 0
        self._newest: dict[bool, tuple[list[_Entry], Path]] = {}
        shutil.rmtree(place, ignore_errors=True)  # a dead daemon's

    def flags(self, *, network: bool) -> list[str]:
        """Return bubblewrap's flags for /etc; blocks for some milliseconds after a change there.

        Args:
            network: Whether the job looks up names in the network.
        """
        entries = _entries(self._etc, network=network)
        with self._lock:
            known, copy = self._newest.get(network, ([], self._place))
            # It may be gone: deleted by someone, or as the oldest after many changes of what only other jobs see.
            if known != entries or not copy.is_dir():
                try:
                    copy = self._copy(entries)
                except OSError:  # no room: a job that does without the copies sees the same
                    return _each(entries)
                self._newest[network] = entries, copy
        folders = (entry for entry in entries if entry.folder)
        return ["--ro-bind", str(copy), self._etc, *_each(folders)]

    def _copy(self, entries: Iterable[_Entry]) -> Path:
        self._made += 1
        shutil.rmtree(self._place / str(self._made - _KEPT), ignore_errors=True)
        copy = self._place / str(self._made)
        for entry in entries:
            target = copy / os.path.relpath(entry.path, self._etc)
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.folder:
                target.mkdir()  # to bind it at
            else:
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    shutil.copy(entry.path, target)
        return copy


_copies: EtcCopies | None = None


def keep_copies(place: Path) -> None:
    """Make copies from now on, in a folder of their own; blocks. Without it every entry is bound by itself."""
    global _copies  # noqa: PLW0603 -- one for the process, as the name of its jobs is
    _copies = EtcCopies(place)


def etc_flags(*, network: bool, apart: bool) -> list[str]:
    """Return bubblewrap's flags for what a job sees of /etc; may block for some milliseconds.

    Args:
        network: Whether the job looks up names in the network.
        apart: Whether something else is to be bound there, for which a copy has no place.
    """
    if _copies is None or apart:
        return _each(_entries("/etc", network=network))
    return _copies.flags(network=network)


def _entries(etc: str, *, network: bool) -> list[_Entry]:
    """Return what there is of the entries, links followed as a bind does."""
    found = []
    for name in (*_ENTRIES, *(_FOR_NETWORK if network else ())):
        path = f"{etc}/{name}"
        with contextlib.suppress(OSError):
            status = os.stat(path)  # noqa: PTH116 -- for every job: paths as objects cost ten times that
            if stat.S_ISDIR(status.st_mode):
                found.append(_Entry(path, folder=True))
            elif stat.S_ISREG(status.st_mode):
                version = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
                found.append(_Entry(path, folder=False, version=version))
    return found


def _each(entries: Iterable[_Entry]) -> list[str]:
    return [word for entry in entries for word in ("--ro-bind-try", entry.path, entry.path)]
