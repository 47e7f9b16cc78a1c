"""What lies on the disk: recorded after a checkout, compared afterwards. Never by git's index.

`pool` records a `Manifest` of every tree it fills and `edits` asks what differs; flags in an index
(assume-unchanged, skip-worktree) and settings (fileMode) hide nothing from it, and line ends or LFS raise no
alarm, because the file is compared with what the checkout wrote, not with the blob. No symbolic link is
ever followed. All functions block and belong in a worker thread.
"""

# ruff: noqa: PTH101, PTH103, PTH106, PTH108, PTH118, PTH120, PTH211 -- paths come by the ten thousand; a Path costs more than the call

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sid_actors.naming import naming
from sid_actors.workbench.checkouts import deleting
from sid_actors.workbench.checkouts.looking import FOLDER_MODE, content_digest, git_mode, listing, lstat

_STAMP = struct.Struct("=IIIQQqq20s")  # mode, uid, gid, inode, size, mtime, ctime, digest
_FOLDER = struct.Struct("=IIIQq")  # mode, uid, gid, inode, ctime
_DIGEST_SIZE = 20
# Times of files advance by ticks of 1 to 10 ms before Linux 6.13: a second write in the same tick changes none.
_TICK_NS = 20_000_000
_GETFLAGS, _SETFLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h
# What chattr sets on a folder: compression, sync, immutable, append, no dump, no times, no copy on write, case.
_HANDED_ON = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x400 | 0x10000 | 0x800000 | 0x20000000 | 0x40000000


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a checkout and the folders that they lie in, by relative path, each with a stamp.

    A file's stamp changes with every write; it ends with git's name for the content that the checkout wrote.
    """

    files: dict[str, bytes]
    folders: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Difference:
    """How a tree differs from its manifest.

    Attributes:
        changed: Paths whose content, type, mode or link target is another now.
        gone: Paths that are there no more, or only through a link in place of a folder.
        has_more: Whether there is anything else than in the manifest, git's own `.git` aside.
    """

    changed: frozenset[str]
    gone: frozenset[str]
    has_more: bool


def record(root: str, entries: Iterable[tuple[str, str | None]]) -> Manifest:
    """Record the files of a fresh checkout.

    Args:
        root: Its folder.
        entries: What was checked out, and in hex git's name for the content as it lies there; None where a conversion
            may have changed it, so that it must be read. What is not there, or is a folder, is left out.
    """
    manifest = Manifest({}, {})
    stamp(root, manifest, entries)
    return manifest


def stamp(root: str, manifest: Manifest, entries: Iterable[tuple[str, str | None]]) -> None:
    """Record some paths anew, and the folders that they lie in; arguments as for `record`."""
    now_ns = time.time_ns()
    folders: set[str] = set()
    for path, name in entries:
        parent = path.rpartition("/")[0]
        while parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
        full = os.path.join(root, path)
        status = lstat(full)
        if status is None or stat.S_ISDIR(status.st_mode):
            manifest.files.pop(path, None)
            continue
        digest = content_digest(full, status) if name is None else bytes.fromhex(name)
        manifest.files[sys.intern(path)] = _stamp(status, digest, now_ns)
    for folder in folders:
        manifest.folders[folder] = _folder_stamp(os.lstat(os.path.join(root, folder)), now_ns)


def copied(root: str, manifest: Manifest) -> Manifest:
    """Return the manifest of a faithful copy of a checkout, which lies at `root`."""
    return record(root, [(path, known[-_DIGEST_SIZE:].hex()) for path, known in manifest.files.items()])


def compare(root: str, manifest: Manifest) -> Difference:
    """Return what differs from the manifest; only files whose status changed are read."""
    seen: set[str] = set()
    changed: set[str] = set()
    has_more = False
    for path, status in _walk(root, manifest.folders):
        known = manifest.files.get(path)
        if known is None or stat.S_ISDIR(status.st_mode):
            has_more = has_more or path != ".git"
            continue
        seen.add(path)
        digest = known[-_DIGEST_SIZE:]
        if _stamp(status, digest) == known:
            continue
        mode, _, _, _, size, *_ = _STAMP.unpack(known)
        is_alike = (git_mode(status.st_mode), status.st_size) == (git_mode(mode), size)
        # A file of another size is another one: nobody reads terabytes of nothing to know it.
        if not is_alike or content_digest(os.path.join(root, path), status) != digest:
            changed.add(path)
    return Difference(frozenset(changed), frozenset(manifest.files.keys() - seen), has_more)


def purge(root: str, manifest: Manifest) -> set[str]:
    """Take away everything that is not exactly as the manifest says.

    Unlike `compare`, any change of status counts: another permission, owner, attribute or time is a leftover, too.

    Returns:
        The paths of the manifest that are not there now and are to be written anew.

    Raises:
        OSError: something cannot be taken away or mended; the whole checkout is to be made anew.
    """
    missing = set(manifest.files)
    _purge_folder(root, "", os.lstat(root), manifest, missing)
    return missing


def _purge_folder(
    root: str, folder: str, status: os.stat_result, manifest: Manifest, missing: set[str]
) -> None:
    full = os.path.join(root, folder) if folder else root
    if is_touched := _folder_stamp(status) != manifest.folders.get(folder):
        _mend_folder(full)
    for entry in listing(full):
        path = f"{folder}/{entry.name}" if folder else entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if path in manifest.folders:
                _purge_folder(root, path, status, manifest, missing)
            else:
                deleting.remove(entry.path)
            continue
        known = manifest.files.get(path)
        if known is not None and _stamp(status, known[-_DIGEST_SIZE:]) == known:
            missing.discard(path)
        elif known is not None and _is_only_early(entry.path, status, known):
            manifest.files[path] = _stamp(status, known[-_DIGEST_SIZE:], time.time_ns())
            missing.discard(path)
        else:
            os.unlink(entry.path)
    if is_touched:
        manifest.folders[folder] = _folder_stamp(os.lstat(full), time.time_ns())


def _is_only_early(full: str, status: os.stat_result, known: bytes) -> bool:
    """Whether a file that was stamped too early for its times to tell anything is the same by a close look."""
    digest = known[-_DIGEST_SIZE:]
    if _stamp(status, digest, 0) != known:
        return False
    return status.st_nlink == 1 and not _attributes(full) and content_digest(full, status) == digest


def _stamp(status: os.stat_result, digest: bytes, now_ns: int | None = None) -> bytes:
    """Return a file's stamp; with the time of recording, one that never matches if it came too early to tell."""
    ctime_ns = status.st_ctime_ns
    return _STAMP.pack(
        status.st_mode,
        status.st_uid,
        status.st_gid,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        ctime_ns if now_ns is None or ctime_ns < now_ns - _TICK_NS else 0,
        digest,
    )


def _folder_stamp(status: os.stat_result, now_ns: int | None = None) -> bytes:
    ctime_ns = status.st_ctime_ns
    is_early = now_ns is not None and ctime_ns >= now_ns - _TICK_NS
    return _FOLDER.pack(
        status.st_mode, status.st_uid, status.st_gid, status.st_ino, 0 if is_early else ctime_ns
    )


def _mend_folder(full: str) -> None:
    """Take from a folder whatever it would hand on to what is made in it: permissions, lists, flags."""
    os.chmod(full, FOLDER_MODE)
    for name in _attributes(full):
        os.removexattr(full, name, follow_symlinks=False)
    handle = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = struct.unpack("=l", fcntl.ioctl(handle, _GETFLAGS, bytes(4)))[0]
        if flags & _HANDED_ON:
            fcntl.ioctl(handle, _SETFLAGS, struct.pack("=l", flags & ~_HANDED_ON))
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL):  # this file system has none
            raise
    finally:
        os.close(handle)


def _attributes(full: str) -> list[str]:
    """Return the extended attributes that a user can set, access lists included."""
    try:
        names = os.listxattr(full, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        return []
    return [name for name in names if not name.startswith("security.")]


def rewrite(
    root: str,
    manifest: Manifest,
    wanted: Mapping[str, tuple[int, str] | None],
    content: Callable[[str], bytes],
) -> None:
    """Write and remove files of a checkout that holds what its manifest says, or lacks some of it.

    A file is made anew, never written over: that would wait for the disk, and change what a link shares.

    Args:
        root: The checkout.
        manifest: What it holds; brought up to date.
        wanted: Git's mode and name of the content of each path, or None where it is to be absent.
        content: Returns the content of such a name.

    Raises:
        OSError: the disk; what the manifest says is wrong then.
    """
    for path in wanted:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            os.unlink(os.path.join(root, path))
        manifest.files.pop(path, None)
    for path in sorted((path for path, entry in wanted.items() if entry is None), reverse=True):
        _drop_empty(root, path.rpartition("/")[0], manifest)
    for path, entry in wanted.items():
        if entry is not None:
            _create(os.path.join(root, path), entry[0], content(entry[1]))
    stamp(root, manifest, [(path, entry[1]) for path, entry in wanted.items() if entry is not None])


def _drop_empty(root: str, folder: str, manifest: Manifest) -> None:
    while folder:
        try:
            os.rmdir(os.path.join(root, folder))
        except FileNotFoundError:
            pass
        except OSError:  # something is left in it, or a file is in its place
            return
        manifest.folders.pop(folder, None)
        folder = folder.rpartition("/")[0]


def _create(full: str, mode: int, content: bytes) -> None:
    os.makedirs(os.path.dirname(full), exist_ok=True)
    if stat.S_ISLNK(mode):
        os.symlink(content, full)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(full, flags, 0o777 if mode & stat.S_IXUSR else 0o666)
    with naming(full), os.fdopen(file, "wb") as stream:
        stream.write(content)


def _walk(root: str, folders: Mapping[str, bytes]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what lies in the given folders, but for those folders themselves."""
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in listing(os.path.join(root, folder) if folder else root):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in folders and entry.is_dir(follow_symlinks=False):
                pending.append(path)
            else:
                yield path, entry.stat(follow_symlinks=False)
