"""Files that appear whole or not at all: write beside, fsync, rename, fsync the folder.

Blocking; called in worker threads only.
"""

from __future__ import annotations

import os
from pathlib import Path

from sid_protocol.errors import StoreError


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a file's content at once, making its folder if needed.

    Raises:
        StoreError: the disk is full, read-only, or the path cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free some space or mend the permissions, then start the run again",
        ) from error
