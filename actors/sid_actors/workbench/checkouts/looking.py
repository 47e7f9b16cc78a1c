"""Looks at files that untrusted programs may have left: no link is followed, and no permission stops it.

`disk` asks for what it compares, `edits` and the set-up's store for what was made. All functions block and belong in a worker
thread; what forbids reading to its owner is made readable.
"""

# ruff: noqa: PTH101, PTH115, PTH118 -- paths come by the ten thousand; a Path costs more than the call

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

FOLDER_MODE = 0o755
_CHUNK = 1 << 20


def walk_all(root: str, folder: str, skip_names: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield every path below a folder that is no folder itself, links unfollowed; empty if it is no folder.

    A folder too deep to be looked into is yielded itself.

    Args:
        root: The checkout.
        folder: Where to begin, relative to it.
        skip_names: Names of folders that are not entered.
    """
    pending = [folder] if all_folders(root, folder) else []
    while pending:
        folder = pending.pop()
        try:
            entries = listing(os.path.join(root, folder))
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            yield folder
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if not entry.is_dir(follow_symlinks=False):
                yield path
            elif entry.name not in skip_names:
                pending.append(path)


def all_folders(root: str, folder: str) -> bool:
    """Whether a relative path leads through real folders only, itself one."""
    at = root
    for part in folder.split("/"):
        at = os.path.join(at, part)
        status = lstat(at)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return False
    return True


def git_mode(mode: int) -> int:
    """Return the mode that git records for a file's, or 0 for what git cannot record."""
    if stat.S_ISLNK(mode):
        return 0o120000
    if stat.S_ISREG(mode):
        return 0o100755 if mode & stat.S_IXUSR else 0o100644
    return 0


def content_digest(path: str, status: os.stat_result) -> bytes:
    """Return git's name for a file's raw bytes or a link's target."""
    digest = hashlib.sha1(b"blob %d\0" % status.st_size, usedforsecurity=False)
    if stat.S_ISLNK(status.st_mode):
        digest.update(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(status.st_mode):
        with open_file(path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.digest()


def open_file(path: str) -> BinaryIO:
    """Open a regular file for reading, even where its own permissions forbid it to its owner."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(path, flags), "rb")
    except PermissionError:
        os.chmod(path, 0o600 | (os.lstat(path).st_mode & 0o111))
        return os.fdopen(os.open(path, flags), "rb")


def listing(folder: str) -> list[os.DirEntry[str]]:
    """Return what lies in a folder, even where its own permissions forbid that to its owner."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        os.chmod(folder, FOLDER_MODE)
        with os.scandir(folder) as entries:
            return list(entries)


def lstat(path: str) -> os.stat_result | None:
    """Return the status of what lies at a path, links unfollowed; None where nothing does."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
