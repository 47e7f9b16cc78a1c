"""Deletes what untrusted programs left: closed folders, and such as are too deep for any path.

The workbench's modules call `remove` for worktrees, checkouts and results of the set-up. No symbolic link is followed.
It blocks and belongs in a worker thread.
"""

# ruff: noqa: PTH101, PTH104, PTH106, PTH108 -- folders come by the ten thousand; a Path costs more than the call

from __future__ import annotations

import itertools
import os
import shutil
import stat


def remove(path: str) -> None:
    """Delete a file or a whole folder, whatever permissions it was left with; absent is fine.

    Raises:
        OSError: something in it cannot be deleted.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(path)
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        _raze(path)


def _raze(root: str) -> None:
    """Delete a folder that is closed or too deep: each folder that lies deeper in it is moved up before it is emptied."""
    names = (f"{root}/{number}" for number in itertools.count())
    os.chmod(root, 0o700)
    pending = [root]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as entries:
            found = list(entries)
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, 0o700)
            moved = entry.path
            if folder != root:
                moved = next(name for name in names if not os.path.lexists(name))
                os.rename(entry.path, moved)
            pending.append(moved)
        if folder != root:
            os.rmdir(folder)
    os.rmdir(root)
