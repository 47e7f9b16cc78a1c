"""Files inside one folder, for an agent that names them: it gets nowhere else, and changes nothing that is sealed.

Blocking; called in worker threads by the executor's tools. A path is walked folder by folder through open
descriptors and never through a symbolic link, so nothing that is swapped meanwhile leads out of the folder.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

READ_LIMIT_BYTES = 4 << 20
"""Largest file that is shown or edited; what is larger is looked at with `search` or a command."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ToolError(Exception):
    """A tool call that cannot be carried out; its text is the tool's result."""


@dataclass(frozen=True, slots=True)
class Confined:
    """One folder.

    Attributes:
        root: Its absolute path.
        sealed: Absolute paths in it that must not change, nor anything below them.
        writable: Whether anything in it may change.
    """

    root: str
    sealed: tuple[str, ...] = ()
    writable: bool = False

    def relative(self, path: str) -> PurePosixPath:
        """Return a path that an agent named, relative to the folder.

        Raises:
            ToolError: it leads out of it, or into git's own files.
        """
        if "\0" in path:
            raise ToolError("a path holds no NUL character")
        named = PurePosixPath(path.strip() or ".")
        if named.is_absolute():
            try:
                named = named.relative_to(self.root)
            except ValueError:
                raise ToolError(f"{path} is outside of your working directory {self.root}") from None
        if ".." in named.parts:
            raise ToolError(f"{path}: '..' is not allowed; name the path from your working directory")
        if any(part.lower() == ".git" for part in named.parts):
            raise ToolError(f"{path}: git's own files are not yours to read or change")
        return named

    def found(self, path: str) -> str:
        """Return a path relative to the folder, of a file or a folder that is there.

        Raises:
            ToolError: there is nothing, or a symbolic link.
        """
        relative = self.relative(path)
        with self._told(path), self._folder(relative.parent) as parent:
            if relative.parts and stat.S_ISLNK(os.lstat(relative.name, dir_fd=parent).st_mode):
                raise ToolError(f"{path} is a symbolic link, and those are not followed")
        return str(relative)

    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            ToolError: it is not there, no regular file, or too large.
        """
        relative = self.relative(path)
        with self._told(path), self._folder(relative.parent) as folder:
            return _read(folder, relative)

    def entries(self, path: str) -> list[str] | None:
        """Return the names in a folder, sorted, folders with a slash; None where the path is a file.

        Raises:
            ToolError: there is nothing.
        """
        relative = self.relative(path)
        with self._told(path), self._folder(relative.parent) as parent:
            if relative.parts:
                found = os.stat(relative.name, dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    return None
            with self._folder(relative) as folder, os.scandir(folder) as scan:
                return sorted(
                    entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                    for entry in scan
                    if entry.name != ".git"
                )

    def write(self, path: str, content: bytes, *, new: bool) -> None:
        """Put a whole file in place; its mode stays.

        Args:
            path: The file.
            content: What it is to hold.
            new: Whether it must not be there yet, and folders on its way are made.

        Raises:
            ToolError: it is sealed, there already, or not there.
        """
        relative = self.relative(path)
        self._check_writable(path, relative)
        with self._told(path), self._folder(relative.parent, make=new) as folder:
            mode = _mode(folder, relative.name)
            if new and mode is not None:
                raise ToolError(f"{path} is there already; use str_replace or insert, or view it first")
            if not new and (mode is None or not stat.S_ISREG(mode)):
                raise ToolError(f"{path} is no regular file")
            beside = f".{relative.name[:100]}.{secrets.token_hex(4)}"
            try:
                with open(
                    beside, "xb", opener=lambda name, flags: os.open(name, flags, 0o666, dir_fd=folder)
                ) as file:
                    file.write(content)
                    if mode is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(mode))
                os.rename(beside, relative.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(beside, dir_fd=folder)
                raise

    def _check_writable(self, path: str, relative: PurePosixPath) -> None:
        if not self.writable:
            raise ToolError("this checkout is read-only")
        if not relative.parts:
            raise ToolError("name a file")
        whole = PurePosixPath(self.root) / relative
        for seal in map(PurePosixPath, self.sealed):
            if whole == seal or seal in whole.parents or whole in seal.parents:
                raise ToolError(f"{path} is sealed: it must stay as it is, and nothing may be added to it")

    @contextmanager
    def _folder(self, relative: PurePosixPath, *, make: bool = False) -> Iterator[int]:
        """Open a folder, step by step."""
        with ExitStack() as opened:
            folder = os.open(self.root, _DIRECTORY)
            opened.callback(os.close, folder)
            for part in relative.parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                folder = os.open(part, _DIRECTORY, dir_fd=folder)
                opened.callback(os.close, folder)
            yield folder

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise ToolError(f"{path} does not exist") from None
        except OSError as error:
            raise ToolError(
                f"{path}: {error.strerror} (symbolic links are not followed; use a command to look at one)"
            ) from None


def _read(folder: int, relative: PurePosixPath) -> bytes:
    if not relative.parts:
        raise ToolError("name a file")
    file = os.open(relative.name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{relative} is no regular file")
        if found.st_size > READ_LIMIT_BYTES:
            raise ToolError(f"{relative} is larger than {READ_LIMIT_BYTES >> 20} MiB; search in it instead")
        pieces = []
        while piece := os.read(file, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)[: 2 * READ_LIMIT_BYTES]
    finally:
        os.close(file)


def _mode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
