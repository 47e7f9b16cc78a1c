"""The only writer of refs: branches, merges, tags. Merges exist in the object database before any branch moves.

The git-master actor calls it, one command at a time. It never touches a checkout, an index, a stash, the
configuration or a hook; `apply` (beside it), which the user asks for, is the one exception. The
improvement branch moves by compare-and-swap only, from the commit that the merge was built on; while one of
the user's worktrees has it checked out, wins are kept on `refs/sid/<goal_slug>` and the branch follows later.
Every function may be repeated: a crash between doing and recording does no harm.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pygit2
import trio

from sid_actors.git import refs
from sid_actors.git.cli import git
from sid_actors.git.repository import RepoInfo, metadata_lock
from sid_actors.git.trees import open_repository, tree_of
from sid_protocol.errors import GitError
from sid_protocol.ids import archive_tag, experiment_branch, improve_branch, side_ref, worktree_name

_T = TypeVar("_T")
_EXCLUDED = ("/.sid/", "/worktrees/")
_OF_CANDIDATES = tuple(
    f"refs/{kind}/{name('default', 1, 'executor_1')}"
    for kind, name in (("heads", experiment_branch), ("tags", archive_tag))
)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A merge that git cannot make: the paths that both sides changed."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """Where the improvement is: its commit, and whether it waits on our own ref."""

    commit: str
    on_side_ref: bool


class GitMaster:
    """Refs, merges and tags of one repository.

    Args:
        info: The repository.
    """

    def __init__(self, info: RepoInfo) -> None:
        self.info = info

    async def ensure_branch(self, goal_slug: str, target_branch: str) -> str:
        """Make `improve/<goal_slug>` from the target branch if it is missing; return its commit.

        Raises:
            GitError: there is no such target branch, or another branch's name is in the way.
        """
        ref = f"refs/heads/{improve_branch(goal_slug)}"

        def ensure(repo: pygit2.Repository) -> str:
            for needed in (ref, *_OF_CANDIDATES):
                _check_room(repo, needed)
            if present := refs.target(repo, ref):
                return present
            start = self._target(repo, target_branch)
            refs.move(repo, ref, None, start, f"sid: start from {target_branch}")
            return start

        return await self._locked(ensure)

    async def exclude_ours(self) -> None:
        """Keep `/.sid/` and `/worktrees/` out of `git status`, by the repository's own exclude file.

        Raises:
            GitError: it cannot be written.
        """
        try:
            await trio.to_thread.run_sync(_exclude, self.info.common_dir)
        except OSError as error:
            raise GitError(
                f"cannot write {self.info.common_dir}/info/exclude: {error.strerror or error}",
                hint="free some space or fix the permissions, then try again",
            ) from error

    async def drop_dead_locks(self) -> list[str]:
        """Remove the locks of refs that a killed daemon left, and return their paths."""
        return await trio.to_thread.run_sync(refs.drop_dead_locks, self.info.common_dir)

    async def head(self, goal_slug: str) -> Head:
        """Return where the improvement is; a branch that was in use and is free now follows first.

        Where the user moved the branch to what does not lead to our ref, the branch's own commit is
        returned, and whoever expected another sees that it moved.

        Raises:
            GitError: there is no such branch.
        """

        def settle(repo: pygit2.Repository) -> Head:
            branch, side = self._refs(goal_slug)
            tip, waiting = refs.target(repo, branch), refs.target(repo, side)
            if waiting is None or tip is None:
                if tip is None and waiting is None:
                    name = improve_branch(goal_slug)
                    hint = f"'sictl verify' tells where it was; bring it back: git branch {name} COMMIT"
                    raise GitError(f"there is no branch {name}", hint=hint)
                return Head(waiting or tip or "", tip is None)
            if tip != waiting and not _leads_to(repo, tip, waiting):
                return Head(tip, on_side_ref=False)
            if tip != waiting:
                if refs.checked_out_at(self.info.common_dir, improve_branch(goal_slug)):
                    return Head(waiting, on_side_ref=True)
                refs.move(repo, branch, tip, waiting, "sid: follow, it is free now")
            refs.delete(repo, side)
            return Head(waiting, on_side_ref=False)

        return await self._locked(settle)

    async def build_merge(self, commit: str, onto: str) -> str | Conflict:
        """Merge a candidate with the improvement's commit in the object database; return the tree.

        Raises:
            GitError: one of them does not exist.
        """

        def build(repo: pygit2.Repository) -> str | Conflict:
            ours, theirs = pygit2.Oid(hex=onto), pygit2.Oid(hex=commit)
            if repo.merge_base(ours, theirs) == ours:
                return tree_of(repo, commit)  # nothing else has happened: the merge is the candidate
            index = repo.merge_commits(ours, theirs)
            if index.conflicts is not None:
                sides = (entry for conflict in index.conflicts for entry in conflict)
                return Conflict(tuple(sorted({entry.path for entry in sides if entry})))
            return str(index.write_tree(repo))

        return await self._run(build)

    async def advance(
        self, goal_slug: str, onto: str, commit: str, tree: str, message: str, at: str
    ) -> tuple[str, str]:
        """Commit a confirmed merge, first parent `onto`, and move the improvement there.

        Args:
            goal_slug: Whose branch.
            onto: The commit that the merge was built on.
            commit: The candidate.
            tree: The measured tree.
            message: The commit's message.
            at: The commit's time, ISO 8601.

        Returns:
            The merge commit, and the ref that holds it.

        Raises:
            refs.BranchMovedError: the improvement is no longer at `onto`; nothing was changed.
        """

        def carry_out(repo: pygit2.Repository) -> tuple[str, str]:
            branch, side = self._refs(goal_slug)
            tip, waiting = refs.target(repo, branch), refs.target(repo, side)
            ref, now = (side, waiting) if waiting else (branch, tip)
            if now and _is_merge(repo, now, onto, commit, tree):
                return now, ref
            if now != onto:
                raise refs.BranchMovedError(ref, onto, now)
            if tip and tip != onto and not _leads_to(repo, tip, onto):
                raise refs.BranchMovedError(branch, onto, tip)  # the user has committed on it
            signature = self._signature(datetime.fromisoformat(at))
            parents = [pygit2.Oid(hex=onto), pygit2.Oid(hex=commit)]
            merge = str(
                repo.create_commit(None, signature, signature, message, pygit2.Oid(hex=tree), parents)
            )
            subject = f"sid: {message.splitlines()[0][:100] if message else 'merge'}"
            if refs.checked_out_at(self.info.common_dir, improve_branch(goal_slug)):
                refs.move(repo, side, waiting, merge, subject)
                return merge, side
            refs.move(repo, branch, tip, merge, subject)
            if waiting:
                refs.delete(repo, side)
            return merge, branch

        return await self._locked(carry_out)

    async def archive(self, topic: str, iteration: int, executor: str, commit: str) -> str:
        """Keep a candidate's commit under a tag and return the tag; an existing tag is never moved."""

        def tag(repo: pygit2.Repository) -> str:
            wanted = archive_tag(topic, iteration, executor)
            name, number = wanted, 1
            while (present := refs.target(repo, f"refs/tags/{name}")) is not None:
                if present == commit:
                    return name
                number += 1
                name = f"{wanted}-{number}"
            refs.move(repo, f"refs/tags/{name}", None, commit, "sid: archive")
            return name

        return await self._locked(tag)

    async def delete_branch(self, topic: str, iteration: int, executor: str) -> bool:
        """Delete a candidate's branch; one that the user has checked out is left, and False returned."""
        branch = experiment_branch(topic, iteration, executor)

        def drop(repo: pygit2.Repository) -> bool:
            ours = f"{self.info.top}/worktrees/{worktree_name(topic, iteration, executor)}"
            if set(refs.checked_out_at(self.info.common_dir, branch)) - {ours}:
                return False
            refs.delete(repo, f"refs/heads/{branch}")
            return True

        return await self._locked(drop)

    async def diff(self, target_branch: str, goal_slug: str) -> str:
        """Return what the improvement changes against the target branch, as a patch.

        Raises:
            GitError: one of the branches does not exist.
        """
        commit = (await self.head(goal_slug)).commit
        target = await self._run(lambda repo: self._target(repo, target_branch))
        flags = ("--no-ext-diff", "--no-textconv", "--no-color", "--end-of-options")
        shown = await git("diff", *flags, f"{target}...{commit}", cwd=self.info.top)
        return shown.out.decode("utf-8", "replace")

    def _target(self, repo: pygit2.Repository, target_branch: str) -> str:
        if commit := refs.target(repo, f"refs/heads/{target_branch}"):
            return commit
        known = ", ".join(self.info.branches[:10])
        raise GitError(f"there is no branch {target_branch}", hint=f"set target_branch to one of: {known}")

    def _refs(self, goal_slug: str) -> tuple[str, str]:
        return f"refs/heads/{improve_branch(goal_slug)}", side_ref(goal_slug)

    def _signature(self, at: datetime) -> pygit2.Signature:
        name, address = self.info.identity
        offset = at.utcoffset()
        minutes = int(offset.total_seconds() // 60) if offset else 0
        return pygit2.Signature(name, address, int(at.timestamp()), minutes)

    async def _run(self, work: Callable[[pygit2.Repository], _T]) -> _T:
        def go() -> _T:
            try:
                return work(open_repository(self.info.common_dir))
            except (pygit2.GitError, KeyError, ValueError) as error:
                raise GitError(f"git failed: {' '.join(str(error).split())}") from error

        return await trio.to_thread.run_sync(go)

    async def _locked(self, work: Callable[[pygit2.Repository], _T]) -> _T:
        async with metadata_lock(self.info.common_dir):
            return await self._run(work)


def _check_room(repo: pygit2.Repository, ref: str) -> None:
    """Refuse a ref whose name another one's begins: git keeps them as files and folders."""
    parts = ref.split("/")
    for end in range(3, len(parts)):
        if refs.target(repo, "/".join(parts[:end])):
            kind, above = "tag" if parts[1] == "tags" else "branch", "/".join(parts[2:end])
            rename = f"git branch -m {above} my-{above}"
            if kind == "tag":
                rename = f"git tag my-{above} {above} && git tag -d {above}"
            raise GitError(
                f"the {kind} {above} leaves no room for {'/'.join(parts[2:])}", hint=f"rename it: {rename}"
            )


def _leads_to(repo: pygit2.Repository, old: str, new: str) -> bool:
    return repo.merge_base(pygit2.Oid(hex=old), pygit2.Oid(hex=new)) == pygit2.Oid(hex=old)


def _is_merge(repo: pygit2.Repository, commit: str, onto: str, other: str, tree: str) -> bool:
    found = repo[pygit2.Oid(hex=commit)].peel(pygit2.Commit)
    return [str(parent) for parent in found.parent_ids] == [onto, other] and str(found.tree_id) == tree


def _exclude(common_dir: str) -> None:
    path = Path(os.path.realpath(Path(common_dir, "info", "exclude")))
    path.parent.mkdir(parents=True, exist_ok=True)
    present = path.read_bytes() if path.exists() else b""
    missing = [line for line in _EXCLUDED if line.encode() not in present.splitlines()]
    if not missing:
        return
    start = present if not present or present.endswith(b"\n") else present + b"\n"
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix="exclude.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(start + "".join(f"{line}\n" for line in missing).encode())
        file.flush()
        os.fsync(file.fileno())
    Path(beside).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
    Path(beside).replace(path)
