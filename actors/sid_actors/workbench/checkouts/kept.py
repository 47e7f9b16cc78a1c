"""Kept trees: checkouts that become candidates' worktrees, one after the other, instead of being made anew.

`worktrees` takes one for each candidate and gives it back afterwards. In between, off the way of any candidate, each is
compared with what was written there, cleaned, and brought to the next round's commit (`prepare`). In a sandbox nobody
can write to what lies in the pool; without one, a tree is looked at once more when it is taken. There are as
many as candidates were open at the same time. A daemon that was killed leaves folders of which nothing is known any
more; the next one deletes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import trio

from sid_actors.workbench.checkouts.conversions import Conversions
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_protocol.errors import WorldError

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class KeptTree:
    """One checkout.

    Attributes:
        checkout: Its folder, wherever that is now.
        home: Where it lies while nobody has it.
        lock: Held while it is filled.
        is_untouched: Whether nobody had it since it was filled.
    """

    checkout: PlainCheckout
    home: str
    lock: trio.Lock = field(default_factory=trio.Lock)
    is_untouched: bool = False


class KeptTrees:
    """The kept trees of one run.

    Args:
        common_dir: The repository's git directory.
        pool: The folder that they lie in.
        is_walled: Whether agents are in sandboxes, which do not show them the pool.
    """

    def __init__(self, common_dir: str, pool: str, is_walled: Callable[[], bool]) -> None:
        self._common_dir = common_dir
        self._conversions = Conversions(common_dir)
        self._pool = pool
        self._is_walled = is_walled
        self._numbers = itertools.count(1)
        self._idle: list[KeptTree] = []
        self._own: set[str] = set()
        self._preparing: set[trio.CancelScope] = set()
        self._prepared = trio.Condition()

    async def take(self, start: str) -> KeptTree:
        """Return a tree that holds exactly a commit; the caller has it until `give_back`.

        Raises:
            GitError: git or the disk failed.
        """
        tree = self._next()
        try:
            async with tree.lock:
                await self._fill(tree, start)
        except BaseException:
            self.give_back(tree)
            raise
        tree.is_untouched = False
        return tree

    def give_back(self, tree: KeptTree) -> None:
        """Take a tree back; it lies at its home again, whatever is in it."""
        tree.checkout.folder = tree.home
        self._idle.append(tree)

    async def prepare(self, commit: str) -> None:
        """Bring all that nobody has to a commit; one that fails is made anew when it is taken."""
        scope = trio.CancelScope()
        self._preparing.add(scope)
        try:
            with scope:
                for tree in list(self._idle):
                    async with tree.lock:
                        if tree in self._idle:
                            await self._try_fill(tree, commit)
        finally:
            self._preparing.discard(scope)
            with trio.CancelScope(shield=True):
                async with self._prepared:
                    self._prepared.notify_all()

    async def close(self) -> None:
        """Stop preparing, and forget all trees; their folders are deleted with the pool."""
        for scope in self._preparing:
            scope.cancel()
        async with self._prepared:
            while self._preparing:
                await self._prepared.wait()
        self._idle.clear()
        self._own.clear()

    def strangers(self) -> list[str]:
        """Return what lies in the pool from a daemon that is dead; blocks shortly."""
        return [str(path) for path in Path(self._pool).glob("tree-*") if str(path) not in self._own]

    def _next(self) -> KeptTree:
        """Return one that is not being filled at the moment, if there is one, else one of the others, else a new one."""
        free = [tree for tree in self._idle if not tree.lock.locked()] or self._idle
        if free:
            tree = free[-1]
            self._idle.remove(tree)
            return tree
        home = next(
            path for path in (f"{self._pool}/tree-{n}" for n in self._numbers) if not Path(path).exists()
        )
        checkout = PlainCheckout(self._common_dir, home, indexed=True, conversions=self._conversions)
        self._own |= {home, checkout.index}
        return KeptTree(checkout, home)

    async def _fill(self, tree: KeptTree, commit: str) -> None:
        untouched, tree.is_untouched = tree.is_untouched and self._is_walled(), False
        await tree.checkout.fill(commit, untouched=untouched)
        tree.is_untouched = True

    async def _try_fill(self, tree: KeptTree, commit: str) -> None:
        try:
            await self._fill(tree, commit)
        except WorldError as error:
            log.warning("tree_not_prepared", path=tree.home, why=str(error))
