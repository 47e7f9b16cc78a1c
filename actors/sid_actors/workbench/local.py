"""The workbench on this machine: a candidate's worktree, and what becomes of the edits left in it.

Executor actors and the git-master's round hold one a run. An agent only edits files; here its edits are found by
looking at the disk, committed without index, hook or foreign filter, and judged by seal and scope. It runs no
benchmark and moves no branch but the candidate's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pygit2
import trio

from sid_actors.git import refs
from sid_actors.git.cli import git
from sid_actors.git.repository import RepoInfo
from sid_actors.git.trees import (
    Change,
    changes,
    open_repository,
    tree_of,
    with_changes,
)
from sid_actors.jobs.job import Mount
from sid_actors.workbench.base import Collected
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.checkouts.submodules import Stamps, stamps, submodule_paths
from sid_actors.workbench.checkouts.worktrees import Worktree, Worktrees
from sid_actors.workbench.checks.fingerprint import fingerprint
from sid_actors.workbench.checks.inspection import inspect
from sid_actors.workbench.checks.seal import (
    Refusal,
    Seal,
    check_candidate,
    has_control_characters,
)
from sid_actors.workbench.checks.sealed_commit import seal_of
from sid_actors.workbench.edits import (
    IGNORED_FOLDERS,
    ConversionConfig,
    Edits,
    conversion_config,
    find_edits,
)
from sid_actors.workbench.shared import Shared
from sid_actors.workbench.shortstat import net_lines, small_stat
from sid_protocol.errors import GitError
from sid_protocol.ids import worktree_name
from sid_protocol.records import Category
from sid_protocol.settings import Settings

_SUBJECT_LIMIT = 200


class LocalWorkbench:
    """Implements `Workbench` with git worktrees under `<repo>/worktrees/`.

    Args:
        info: The repository.
        root: The track's root.
        topic: The track's topic.
        settings: Returns the settings of the current round.
        nursery: Where deleted worktrees are emptied in the background; it must outlive `close`.
        shared: What worktrees get besides tracked files; None is nothing.
    """

    def __init__(
        self,
        info: RepoInfo,
        root: str,
        topic: str,
        *,
        settings: Callable[[], Settings],
        nursery: trio.Nursery,
        shared: Shared | None = None,
    ) -> None:
        self.worktrees = Worktrees(info, root, topic, nursery, self._is_walled)
        self._nursery = nursery
        self._info = info
        self._topic = topic
        self._settings = settings
        self._view = PlainCheckout(info.common_dir, f"{self.worktrees.pool}/view")
        self._view_lock = trio.Lock()
        self._viewed: str | None = None
        self._open: dict[str, Worktree] = {}
        self._sealed: dict[str, tuple[str, ...]] = {}  # by path, as in `_shown`
        self._shared = shared
        self._shown: dict[str, tuple[Mount, ...]] = {}
        self._stamps: dict[str, Stamps] = {}  # where no sandbox keeps agents from writing there
        self._config: ConversionConfig | None = None  # as it is when the run starts

    async def open_worktree(self, iteration: int, executor: str, base: str, start: str | None = None) -> str:
        """See `Workbench.open_worktree`."""
        self._forget_closed()
        made = await self.worktrees.open(iteration, executor, start or base)
        seal = await seal_of(self._info.common_dir, base, self._settings())
        modules = () if made.is_plain else await submodule_paths(self._info.common_dir, made.start)
        shown = await self._show(made.path, base)
        inside = [m.path.removeprefix(f"{made.path}/") for m in shown if m.path.startswith(f"{made.path}/")]
        made = replace(made, shown=frozenset((*modules, *inside)))
        self._open[worktree_name(self._topic, iteration, executor)] = made
        self._sealed[made.path] = (*seal.shown, *modules)
        if modules and not self._is_walled():
            self._stamps[made.path] = await stamps(made.path, modules, IGNORED_FOLDERS)
        return made.path

    async def sealed_paths(self, worktree: str) -> tuple[str, ...]:
        """See `Workbench.sealed_paths`."""
        wanted = [f"{worktree}/{path.rstrip('/')}" for path in self._sealed.get(worktree, ())]
        return await trio.to_thread.run_sync(lambda: tuple(path for path in wanted if Path(path).exists()))

    async def shown_paths(self, worktree: str) -> tuple[Mount, ...]:
        """See `Workbench.shown_paths`."""
        return self._shown.get(worktree, ())

    async def collect(
        self, iteration: int, executor: str, base: str, message: str, settings: Settings
    ) -> Collected:
        """See `Workbench.collect`.

        Raises:
            GitError: the worktree was not made by this workbench, or git failed.
        """
        worktree = self._open.get(worktree_name(self._topic, iteration, executor))
        if worktree is None:
            raise GitError(f"no worktree of {executor} in round {iteration} is open")
        seal = await seal_of(self._info.common_dir, base, settings)
        if self._config is None:
            self._config = await conversion_config(self._info.common_dir)
        edits = await find_edits(self._info.common_dir, worktree, seal, settings, self._config)
        if isinstance(edits, Refusal):
            return _refused(edits)
        lost = await self._lost(worktree.path)
        collected, stat = await trio.to_thread.run_sync(
            self._committed, worktree, base, edits, message, seal, settings
        )
        if collected is None:
            refusal: tuple[Category, str] = ("logic_error", printable("; ".join(("empty change", *lost))))
            return Collected(commit=None, diff_stat="", net_lines=0, paths=(), refusal=refusal)
        if stat is None:
            differing = ("diff-tree", "-M", "--shortstat", base, str(collected.commit))
            stat = (await git(*differing, cwd=self._info.common_dir)).line.strip()
        findings = (*collected.findings, *map(printable, lost))
        return replace(collected, diff_stat=stat, net_lines=net_lines(stat), findings=findings)

    def _committed(
        self, worktree: Worktree, base: str, edits: Edits, message: str, seal: Seal, settings: Settings
    ) -> tuple[Collected | None, str | None]:
        """Commit and judge; None where nothing differs, and no statistics where git is to count."""
        differences, commit = self._commit(worktree, base, edits, message)
        if not differences:
            return None, None
        collected = self._judge(seal, settings, edits, differences, commit)
        return collected, small_stat(self._info.common_dir, differences)

    def _judge(
        self, seal: Seal, settings: Settings, edits: Edits, differences: list[Change], commit: str
    ) -> Collected:
        """Say what seal, scope and detectors find in a commit."""
        refused, warnings = check_candidate(
            seal,
            settings.scope,
            differences,
            extras=edits.extras,
            nested=edits.nested,
            filtered=edits.filtered,
        )
        if refused is None:
            refused, found = inspect(self._info.common_dir, differences, seal, settings)
            warnings = (*warnings, *found)
        patch = tree = ""
        if refused is None:
            patch, tree = self._identity(differences, commit)
        return Collected(
            commit=commit,
            diff_stat="",
            net_lines=0,
            paths=tuple(map(printable, refused.paths if refused else (c.path for c in differences))),
            refusal=(refused.category, printable(refused.why)) if refused else None,
            findings=tuple(printable(warning) for warning in warnings),
            patch=patch,
            tree=tree,
        )

    async def _lost(self, path: str) -> tuple[str, ...]:
        """Say which submodules of a worktree were edited, which is no part of a candidate."""
        if not (before := self._stamps.get(path)):
            return ()
        after = await stamps(path, before, IGNORED_FOLDERS)
        return tuple(
            f"edits in the submodule {module} are left out"
            for module in before
            if before[module] != after[module]
        )

    async def view(self, commit: str) -> str:
        """See `Workbench.view`; one commit at a time, those of a round are the same."""
        async with self._view_lock:
            if self._viewed != commit:
                self._viewed = None
                await self._view.fill(commit)
                await self._show(self._view.folder, commit)
                self._viewed = commit
                # What agents read now is what candidates will begin with.
                self._nursery.start_soon(self.worktrees.prepare, commit)
        return self._view.folder

    def _is_walled(self) -> bool:
        return self._shared is not None and self._shared.is_contained(self._settings())

    def _forget_closed(self) -> None:
        for name, made in list(self._open.items()):
            if not self.worktrees.holds(made):
                del self._open[name]
                self._sealed.pop(made.path, None)
                self._shown.pop(made.path, None)
                self._stamps.pop(made.path, None)

    async def _show(self, folder: str, commit: str) -> tuple[Mount, ...]:
        """Put into a checkout what it has besides its tracked files, and remember it for the sandbox."""
        if self._shared is None:
            return ()
        settings = self._settings()
        prepared = await self._shared.prepare(commit, settings)
        self._shown[folder] = await self._shared.show(folder, prepared, settings, benchmark=False)
        return self._shown[folder]

    async def close(self) -> None:
        """Remove the run's worktrees and its pool."""
        await self.worktrees.close()

    def _identity(self, differences: list[Change], commit: str) -> tuple[str, str]:
        common_dir = self._info.common_dir
        return fingerprint(common_dir, differences), tree_of(open_repository(common_dir), commit)

    def _commit(self, worktree: Worktree, base: str, edits: Edits, message: str) -> tuple[list[Change], str]:
        repo = open_repository(self._info.common_dir)
        base_tree = tree_of(repo, base)
        tree = with_changes(repo, tree_of(repo, worktree.start), edits.entries)
        differences = changes(repo, base_tree, tree)
        if not differences:
            return [], ""
        signature = pygit2.Signature(*self._info.identity, int(time.time()), 0)
        oid = repo.create_commit(
            None, signature, signature, message, pygit2.Oid(hex=tree), [pygit2.Oid(hex=base)]
        )
        refs.put(repo, f"refs/heads/{worktree.branch}", str(oid))
        return differences, str(oid)


def candidate_message(family: str, hypothesis: str) -> str:
    """Return the message of a candidate's commit: one line, without control characters."""
    lines = hypothesis.strip().splitlines() or [""]
    clean = "".join(sign if sign.isprintable() else " " for sign in lines[0])
    return f"experiment({family}): {clean[:_SUBJECT_LIMIT].strip()}\n"


def printable(path: str) -> str:
    """Return a path as text that can be printed, stored and sent: undecodable bytes replaced, control signs shown."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return repr(text) if has_control_characters(text) else text


def _refused(refusal: Refusal) -> Collected:
    return Collected(
        commit=None,
        diff_stat="",
        net_lines=0,
        paths=tuple(map(printable, refusal.paths)),
        refusal=(refusal.category, printable(refusal.why)),
    )
