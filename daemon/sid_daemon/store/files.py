"""Files that appear whole or not at all: write beside, fsync, rename, fsync the folder.

Blocking; called in worker threads only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sid_protocol.errors import StoreError

_CHUNK_BYTES = 1 << 15
_MODE = 0o644
_numbers = itertools.count(1)  # two threads may write one file at a time


def write_whole(path: Path, data: bytes, *, mode: int = _MODE) -> None:
    """Replace a file's content at once and for good, making its folder if needed.

    Raises:
        StoreError: the disk is full, read-only, or the path cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _fault(path, error) from error
    replace(path, data, mode=mode)
    sync_folder(path.parent)


def replace(path: Path, data: bytes, *, mode: int = _MODE) -> os.stat_result:
    """Replace a file's content at once, in a folder that is there; for good once that is synced too. Returns what it is now.

    Raises:
        StoreError: see `write_whole`.
    """
    return _replace(path, lambda descriptor: _write(descriptor, data), mode)


def replace_by_pieces(path: Path, pieces: Iterable[str]) -> os.stat_result:
    """Do as `replace` with a text that need never be in memory as a whole.

    Raises:
        StoreError: see `write_whole`.
    """

    def fill(descriptor: int) -> None:
        waiting = bytearray()
        for piece in pieces:
            waiting += piece.encode()
            if len(waiting) >= _CHUNK_BYTES:
                _write(descriptor, waiting)
                waiting.clear()
        _write(descriptor, waiting)

    return _replace(path, fill, _MODE)


def extend(path: Path, known: os.stat_result, keep: int, data: bytes) -> os.stat_result | None:
    """Replace a file at once by its first `keep` bytes and `data`; the kernel copies what is kept.

    Args:
        path: The file.
        known: What it was when we wrote it last.
        keep: How many of its bytes stay.
        data: What follows them.

    Returns:
        What it is now; None, and nothing is done, where it is not as we left it.

    Raises:
        StoreError: see `write_whole`.
    """
    try:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not is_same(os.fstat(source), known):
            return None

        def fill(descriptor: int) -> None:
            at = 0
            while at < keep:
                at += os.sendfile(descriptor, source, at, keep - at)
            _write(descriptor, data)

        return _replace(path, fill, known.st_mode & 0o777)
    finally:
        os.close(source)


def is_same(one: os.stat_result, other: os.stat_result) -> bool:
    """Say whether a file is the one that it was, unchanged."""
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)


def sync_folder(path: Path) -> None:
    """Make what was renamed in a folder last.

    Raises:
        StoreError: the disk is broken.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise _fault(path, error) from error


def remove_unfinished(folder: Path) -> None:
    """Remove what a crash left beside files of a folder that were being written; nobody may be writing there."""
    for left in folder.glob(".*.new"):
        left.unlink(missing_ok=True)


def _replace(path: Path, fill: Callable[[int], None], mode: int) -> os.stat_result:
    beside = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            fill(descriptor)
            os.fsync(descriptor)
            written = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(path)
    except OSError as error:
        # On a disk that has turned read-only this fails, too: what is told is the first trouble.
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise _fault(path, error) from error
    return written


def _write(descriptor: int, data: bytes | bytearray) -> None:
    written = 0
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def _fault(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {path}: {error.strerror or error}",
        hint="free some space or fix the permissions, then start the run again",
    )
