"""Temporary folders for jobs, in the system's folder for such, named after their daemon.

Whoever makes one removes it. What a daemon left that was killed is known by its name, and removed by the next one
(`sweep`). Each is a folder of its own there, so that a system that clears old ones away takes no other along.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_daemon = "sid"


def make(kind: str) -> str:
    """Make an empty folder that only this user can enter, and return its path; blocks shortly.

    Args:
        kind: What it is for, one word of its name.

    Raises:
        OSError: there is no room.
    """
    return tempfile.mkdtemp(prefix=f"{_daemon}-{kind}-")


def sweep(daemon: str) -> None:
    """Name this daemon's folders, and remove those that a dead one of that name left; blocks.

    Args:
        daemon: The same at each start of one daemon and unlike any other's; letters and digits.
    """
    global _daemon  # noqa: PLW0603 -- one for the process, as the name of its jobs is
    _daemon = f"sid-{daemon}"
    for folder in Path(tempfile.gettempdir()).glob(f"{_daemon}-*"):
        with contextlib.suppress(FileNotFoundError):
            if folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)  # what cannot be removed is in nobody's way
