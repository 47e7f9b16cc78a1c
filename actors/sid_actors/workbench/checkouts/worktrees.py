"""Worktrees of candidates: handed out, taken back, cleaned up after a crash; and never a user's one touched.

`LocalWorkbench` owns one `Worktrees` a run. A candidate's worktree is a kept tree (`kept`), renamed to its name
and registered with git. A worktree is ours only if git's lock on it names the track, which is
written before anything lies at its path: what else lies at a needed path, or holds a needed branch, is reported
and refused, never overwritten. git's own list of worktrees is changed under the repository's lock only, in
milliseconds; files are written and deleted outside of it. `git worktree prune` is never used, for it would forget a user's worktree on an unplugged disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import trio

from sid_actors.git import refs
from sid_actors.git.repository import RepoInfo, metadata_lock
from sid_actors.git.trees import open_repository
from sid_actors.naming import naming
from sid_actors.workbench.checkouts import bulk, deleting, disk, registration
from sid_actors.workbench.checkouts.kept import KeptTree, KeptTrees
from sid_actors.workbench.checkouts.trash import Trash
from sid_protocol.errors import GitError
from sid_protocol.ids import experiment_branch, worktree_name
from sid_protocol.locations import shell_word

_OURS_BY_NAME = re.compile(r"round_[0-9]+_executor_[0-9]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A candidate's worktree as it was made.

    Attributes:
        path: Its folder.
        branch: Its branch, without `refs/heads/`.
        start: The commit that was checked out.
        manifest: What the checkout wrote.
        git_file: The content of its `.git` file.
        admin_dir: Its folder in the git directory.
        converts: Whether git may commit files otherwise than they lie there.
        is_plain: Whether its files lie as they are committed, and there are no submodules.
        shown: Relative paths in it that are no part of it: what is shared, or room for that.
    """

    path: str
    branch: str
    start: str
    manifest: disk.Manifest
    git_file: bytes
    admin_dir: str
    converts: bool
    is_plain: bool
    shown: frozenset[str] = frozenset()


class Worktrees:
    """The worktrees and the pool of one run.

    Args:
        info: The repository.
        root: The track's root; the pool lies in it.
        topic: The track's topic.
        nursery: Where deleting goes on in the background.
        is_walled: Whether agents are in sandboxes, which do not show them the pool.
    """

    def __init__(
        self,
        info: RepoInfo,
        root: str,
        topic: str,
        nursery: trio.Nursery,
        is_walled: Callable[[], bool],
    ) -> None:
        self.pool = f"{root}/pool"
        self._kept = KeptTrees(info.common_dir, self.pool, is_walled)
        self._held: dict[str, tuple[Worktree, KeptTree | None]] = {}
        self._mark = f"sid: {root}"
        self._info = info
        self._topic = topic
        self._known: set[str] = set()
        self._trash = Trash(self.pool, nursery)

    async def open(self, iteration: int, executor: str, start: str) -> Worktree:
        """Make a candidate's worktree and branch at a commit, anew if they are ours and there already.

        Raises:
            GitError: something of the user's is in the way, or git failed.
        """
        name = worktree_name(self._topic, iteration, executor)
        branch = experiment_branch(self._topic, iteration, executor)
        path = self._path(name)
        is_free = await trio.to_thread.run_sync(self._make_way, path, branch, name in self._known)
        self._known.add(name)
        if not is_free:
            await self._remove(name)
        tree = await self._kept.take(start)
        try:
            made = await self._hand_out(tree, path, branch, start)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._take_back(path, None, tree)
            raise
        is_copy = tree.checkout.folder != path
        if is_copy:
            self._kept.give_back(tree)
        self._held[name] = (made, None if is_copy else tree)
        return made

    def holds(self, worktree: Worktree) -> bool:
        """Say whether a worktree is a candidate's still."""
        return any(worktree.path == held.path for held, _ in self._held.values())

    async def prepare(self, commit: str) -> None:
        """Bring the trees that nobody has to a commit; one that fails is made anew when it is needed."""
        await self._kept.prepare(commit)

    async def check_free(self, iteration: int, executors: Iterable[str]) -> None:
        """Refuse a round whose worktrees or branches would meet something of the user's.

        Args:
            iteration: A round of which nothing has been made yet.
            executors: Who may take part in it.

        Raises:
            GitError: naming what is in the way.
        """

        def check() -> None:
            for executor in executors:
                path = self._path(worktree_name(self._topic, iteration, executor))
                self._check_way(path, experiment_branch(self._topic, iteration, executor), is_ours=False)

        await trio.to_thread.run_sync(check)

    async def clean(self, keep: Collection[str], iteration: int, known_worktrees: Iterable[str]) -> list[str]:
        """Remove every worktree of ours that the round does not need, and trash that a dead daemon left.

        Args:
            keep: Executors whose worktrees stay.
            iteration: Their round.
            known_worktrees: Names of worktrees that the run's records say it made.

        Returns:
            One line for each thing that was found and left alone.
        """
        self._known.update(known_worktrees)
        kept = {worktree_name(self._topic, iteration, executor) for executor in keep}
        for name in sorted(self._known - kept):
            await self._remove(name)
        ours = frozenset(self._known)
        # What a later round can meet again is this round's at the earliest.
        self._known = {name for name in self._known if _round_of(name) >= iteration}
        async with metadata_lock(self._info.common_dir):
            await trio.to_thread.run_sync(self._forget_folderless, ours)
        for left in await trio.to_thread.run_sync(self._old_trash):
            self._trash.empty(left)
        return await trio.to_thread.run_sync(self._strangers)

    async def close(self) -> None:
        """Remove all worktrees of this run and the whole pool; deleting goes on where waiting is cut short."""
        for name in sorted(self._known):
            await self._remove(name)
        await self._kept.close()
        if gone := await trio.to_thread.run_sync(self._trash.take_pool):
            self._trash.empty(gone)
        await trio.to_thread.run_sync(self._drop_empty_folders)
        await self._trash.emptied()

    def _path(self, name: str) -> str:
        return f"{self._info.top}/worktrees/{name}"

    def _make_way(self, path: str, branch: str, is_ours: bool) -> bool:  # noqa: FBT001 -- a fact, no switch
        """Refuse what is in the way, make the folder above, and say whether nothing is at the path."""
        self._check_way(path, branch, is_ours)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return not os.path.lexists(path) and not registration.admin_dir_of(self._info.common_dir, path)

    def _check_way(self, path: str, branch: str, is_ours: bool) -> None:  # noqa: FBT001 -- a fact, no switch
        for folder in (Path(self._info.top, "worktrees"), Path(path).parent):
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise GitError(f"{folder} is in the way of a worktree", hint="rename it and start again")
        if self._is_strange(path):
            raise GitError(
                f"{path} is in the way and not of this run", hint="move it away, or remove it if it is stale"
            )
        if not is_ours and refs.target(open_repository(self._info.common_dir), f"refs/heads/{branch}"):
            raise GitError(
                f"the branch {branch} is in the way and not of this run",
                hint=f"rename it: git -C {shell_word(self._info.top)} branch -m {branch} my-{branch.replace('/', '-')}",
            )

    def _is_strange(self, path: str) -> bool:
        """Say whether something lies at a path that this track's worktree has not been made of."""
        if not os.path.lexists(path):
            return False
        admin_dir = registration.admin_dir_of(self._info.common_dir, path)
        if admin_dir and registration.is_of(admin_dir, path, self._mark):
            return False
        # git makes the folder, then puts something into it: an empty one is what a killed git left.
        return Path(path).is_symlink() or not Path(path).is_dir() or any(Path(path).iterdir())

    async def _hand_out(self, tree: KeptTree, path: str, branch: str, start: str) -> Worktree:
        """Make a kept tree a candidate's worktree: branch, registration, name."""
        manifest = tree.checkout.manifest
        if manifest is None:
            raise GitError(f"the checkout {tree.home} is not filled")
        async with metadata_lock(self._info.common_dir):
            admin_dir, git_file, is_there = await trio.to_thread.run_sync(
                self._register, tree, path, branch, start
            )
        if not is_there:
            await bulk.copy(tree.home, path)
            manifest = await trio.to_thread.run_sync(disk.copied, path, manifest)
        return Worktree(
            path=path,
            branch=branch,
            start=start,
            manifest=manifest,
            git_file=git_file,
            admin_dir=admin_dir,
            converts=tree.checkout.conversion.on_commit,
            is_plain=not tree.checkout.conversion.on_checkout,
        )

    def _register(self, tree: KeptTree, path: str, branch: str, start: str) -> tuple[str, bytes, bool]:
        """Return git's folder of the worktree, what its `.git` holds, and whether the tree could be moved there."""
        self._set_branch(branch, start)
        admin_dir, git_file = registration.register(
            self._info.common_dir, path, branch, tree.checkout.index, self._mark
        )
        with naming(tree.home):
            Path(tree.home, ".git").write_bytes(git_file)
        try:
            Path(tree.home).rename(path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return admin_dir, git_file, False  # the pool is on another disk
        tree.checkout.folder = path
        return admin_dir, git_file, True

    def _set_branch(self, branch: str, start: str) -> None:
        repo = open_repository(self._info.common_dir)
        ref = f"refs/heads/{branch}"
        if refs.target(repo, ref) and (where := refs.checked_out_at(self._info.common_dir, branch)):
            raise GitError(
                f"the branch {branch} is checked out in {where[0]}", hint="switch to another branch there"
            )
        refs.put(repo, ref, start)

    async def _remove(self, name: str) -> None:
        path = self._path(name)
        made, tree = self._held.pop(name, (None, None))
        if made is not None and tree is not None:
            await self._take_back(path, made, tree)
            return
        if await trio.to_thread.run_sync(self._is_strange, path):
            return
        left = await trio.to_thread.run_sync(self._trash.take, path)
        if left == path:
            await bulk.delete(path)
        elif left:
            self._trash.empty(left)
        async with metadata_lock(self._info.common_dir):
            await trio.to_thread.run_sync(self._forget, path)

    async def _take_back(self, path: str, made: Worktree | None, tree: KeptTree) -> None:
        """Move a tree home, and take it out of git's list; what somebody put in its place stays there."""

        def move() -> None:
            admin_dir = made.admin_dir if made else registration.admin_dir_of(self._info.common_dir, path)
            if admin_dir and registration.is_of(admin_dir, path, self._mark):
                if tree.checkout.folder == path:
                    with contextlib.suppress(FileNotFoundError):  # deleted by hand
                        Path(path).rename(tree.home)
                deleting.remove(admin_dir)

        try:
            async with metadata_lock(self._info.common_dir):
                await trio.to_thread.run_sync(move)
        except OSError as error:
            raise GitError(f"cannot take {path} back: {error.strerror or error}") from error
        finally:
            self._kept.give_back(tree)

    def _forget(self, path: str) -> None:
        admin_dir = registration.admin_dir_of(self._info.common_dir, path)
        if admin_dir:
            deleting.remove(admin_dir)

    def _forget_folderless(self, names: Collection[str]) -> None:
        for admin_dir in list(registration.folderless(self._info.common_dir, self._mark, names)):
            deleting.remove(admin_dir)

    def _old_trash(self) -> list[str]:
        """Return what a dead daemon left, out of the way of what this one will make."""
        for stranger in self._kept.strangers():
            self._trash.take(stranger)
        return self._trash.left()

    def _strangers(self) -> list[str]:
        top = Path(self._path(worktree_name(self._topic, 1, "executor_1"))).parent
        if not top.is_dir():
            return []
        prefix = str(top.relative_to(self._path("")))
        found = []
        for path in sorted(top.iterdir()):
            name = path.name if prefix == "." else f"{prefix}/{path.name}"
            looks_ours = _OURS_BY_NAME.match(path.name) or (path / ".git").exists()
            if looks_ours and (name not in self._known or self._is_strange(str(path))):
                found.append(f"{path} is not of this run and was left alone")
        return found

    def _drop_empty_folders(self) -> None:
        parent = Path(self._path(worktree_name(self._topic, 1, "executor_1"))).parent
        for folder in (parent, Path(self._info.top, "worktrees")):  # deepest first
            with contextlib.suppress(OSError):  # not empty: something of the user's is there
                folder.rmdir()


def _round_of(name: str) -> int:
    return int(name.rpartition("/")[2].split("_")[1])
