"""What lies on the disk: recorded after a checkout, compared afterwards. Never by git's index.

`checkouts` records a `Manifest` of every tree it fills and `local` asks what differs; flags in an index
(assume-unchanged, skip-worktree) and settings (fileMode) hide nothing from it, and line ends or LFS raise no
alarm, because the file is compared with what the checkout wrote, not with the blob. No symbolic link is
ever followed. All functions block and belong in a worker thread.
"""

# ruff: noqa: PTH101, PTH108, PTH115, PTH118 -- paths come by the ten thousand; a Path costs more than the call

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20
_FOLDER_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Stamp:
    """One file or link as a checkout left it; `version` changes with every write, `digest` with the content."""

    mode: int
    version: tuple[int, int, int, int, int]
    digest: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a checkout, by relative path, and the folders that they lie in."""

    files: dict[str, Stamp]
    folders: frozenset[str]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a tree differs from its manifest.

    Attributes:
        changed: Paths whose content, type, mode or link target is another now.
        gone: Paths that are there no more, or only through a link in place of a folder.
    """

    changed: frozenset[str]
    gone: frozenset[str]


def record(root: str, paths: Iterable[str], *, digests: bool) -> Manifest:
    """Record the files of a fresh checkout.

    Args:
        root: Its folder.
        paths: What was checked out; what is not there (a submodule's folder counts as such) is left out.
        digests: Whether contents are read, as `compare` needs and `purge` does not.
    """
    files: dict[str, Stamp] = {}
    folders: set[str] = {""}
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
        full = os.path.join(root, path)
        status = _lstat(full)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            digest = content_digest(full, status) if digests else b""
            files[path] = Stamp(status.st_mode, _version(status), digest)
    return Manifest(files, frozenset(folders))


def compare(root: str, manifest: Manifest) -> Difference:
    """Return what differs from the manifest; only files whose status changed are read."""
    seen: set[str] = set()
    changed: set[str] = set()
    for path, status in _walk(root, manifest.folders):
        stamp = manifest.files.get(path)
        if stamp is None:
            continue
        seen.add(path)
        if _version(status) == stamp.version and status.st_mode == stamp.mode:
            continue
        same_kind = git_mode(status.st_mode) == git_mode(stamp.mode)
        if not same_kind or content_digest(os.path.join(root, path), status) != stamp.digest:
            changed.add(path)
    return Difference(frozenset(changed), frozenset(manifest.files.keys() - seen))


def purge(root: str, manifest: Manifest) -> None:
    """Take away everything that is not exactly as the manifest says: the next checkout writes it anew.

    Unlike `compare`, any change of status counts: another permission, owner or time is a leftover, too.
    """
    os.chmod(root, _FOLDER_MODE)
    _purge_folder(root, "", manifest)


def _purge_folder(root: str, folder: str, manifest: Manifest) -> None:
    for entry in _listing(os.path.join(root, folder) if folder else root):
        path = f"{folder}/{entry.name}" if folder else entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if path not in manifest.folders:
                remove(entry.path)
                continue
            os.chmod(entry.path, _FOLDER_MODE)
            _purge_folder(root, path, manifest)
            continue
        stamp = manifest.files.get(path)
        if stamp is None or _version(status) != stamp.version or status.st_mode != stamp.mode:
            os.unlink(entry.path)


def walk_all(root: str, folder: str, skip_names: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield every path below a folder that is no folder itself, links unfollowed; empty if it is no folder.

    Args:
        root: The checkout.
        folder: Where to begin, relative to it.
        skip_names: Names of folders that are not entered.
    """
    full = os.path.join(root, folder)
    if not all_folders(root, folder):
        return
    for entry in _listing(full):
        path = f"{folder}/{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield path
        elif entry.name not in skip_names:
            yield from walk_all(root, path, skip_names)


def all_folders(root: str, folder: str) -> bool:
    """Whether a relative path leads through real folders only, itself one."""
    at = root
    for part in folder.split("/"):
        at = os.path.join(at, part)
        status = _lstat(at)
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
    """Return a digest of a file's raw bytes or a link's target."""
    digest = hashlib.sha256()
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


def remove(path: str) -> None:
    """Delete a file or a whole folder, whatever permissions it was left with; absent is fine.

    Raises:
        OSError: something in it cannot be deleted.
    """
    status = _lstat(path)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(path)
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        os.chmod(path, 0o700)
        for folder, names, _ in os.walk(path):  # top down: a folder is entered after it was opened up
            for name in names:
                if not Path(folder, name).is_symlink():
                    os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(path)


def _walk(root: str, folders: frozenset[str]) -> Iterator[tuple[str, os.stat_result]]:
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in _listing(os.path.join(root, folder) if folder else root):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                if path in folders:
                    pending.append(path)
            else:
                yield path, entry.stat(follow_symlinks=False)


def _listing(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except PermissionError:
        os.chmod(folder, _FOLDER_MODE)
        with os.scandir(folder) as entries:
            return list(entries)


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _version(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_uid)
