"""The trash: folders that are moved out of the way at once, and deleted in the background.

`worktrees` puts there what a run needs no more. It lies in the pool, so that moving costs nothing; what a killed daemon
left in it is known by its name.
"""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import structlog
import trio

from sid_actors.workbench.checkouts import bulk
from sid_protocol.errors import GitError, WorldError

log = structlog.get_logger(__name__)


class Trash:
    """The trash of one run.

    Args:
        folder: The pool, which need not exist.
        nursery: Where deleting goes on in the background.
    """

    def __init__(self, folder: str, nursery: trio.Nursery) -> None:
        self._folder = folder
        self._nursery = nursery
        self._numbers = itertools.count(1)
        self._deleting: set[str] = set()
        self._deleted = trio.Event()

    def take(self, path: str) -> str | None:
        """Move a folder out of the way; blocks shortly.

        Returns:
            Where it is now: the same place if the pool is on another disk; None where nothing was.

        Raises:
            GitError: it cannot be moved.
        """
        if not (Path(path).exists() or Path(path).is_symlink()):
            return None
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        names = (f"{self._folder}/trash-{number}" for number in self._numbers)
        target = next(name for name in names if not Path(name).exists())
        try:
            Path(path).rename(target)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return path
            raise GitError(f"cannot remove {path}: {error.strerror}") from None
        return target

    def take_pool(self) -> str | None:
        """Rename the pool, so that the next run can have one while this is being deleted; None where there is none."""
        if not Path(self._folder).exists():
            return None
        names = (f"{self._folder}-gone-{number}" for number in itertools.count(1))
        aside = next(name for name in names if not Path(name).exists())
        Path(self._folder).rename(aside)
        return aside

    def left(self) -> list[str]:
        """Return what lies there and nobody is deleting; blocks shortly."""
        pools = Path(self._folder).parent.glob(f"{Path(self._folder).name}-gone-*")
        found = map(str, (*Path(self._folder).glob("trash-*"), *pools))
        return [path for path in found if path not in self._deleting]

    def empty(self, path: str) -> None:
        """Delete one of the folders in the background."""
        self._deleting.add(path)
        self._nursery.start_soon(self._delete, path)

    async def emptied(self) -> None:
        """Wait until nothing is being deleted."""
        while self._deleting:
            await self._deleted.wait()

    async def _delete(self, path: str) -> None:
        try:
            await bulk.delete(path)
        except (WorldError, OSError) as error:
            # Nobody waits for this and nobody is harmed: the next clean-up finds it again.
            log.warning("trash_left", path=path, why=str(error))
        finally:
            self._deleting.discard(path)
            self._deleted.set()
            self._deleted = trio.Event()
