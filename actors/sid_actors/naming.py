"""Errors of the system that say which file they are of; for whoever writes files.

An error of an open has the path, one of a write, such as that of a full disk, has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Have an error of the system name a file or folder, unless it names one.

    Args:
        path: What is being written.

    Raises:
        OSError: what the block raised, with its path.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
