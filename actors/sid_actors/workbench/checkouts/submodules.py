"""Submodules of a checkout: filled from the git directories that the user has already, never from the network.

`pool` fills them after the tree itself; the set-up gate asks `check_submodules` before anything is
made. What lies in a submodule is no part of a candidate: agents see it read-only, edits in it are not collected. Without
a sandbox an agent can make some all the same: `stamps` before and after tell, so that the candidate's record can say it.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from sid_actors.git.cli import git
from sid_actors.git.trees import GITLINK, files, open_repository, tree_of
from sid_actors.workbench.checkouts import deleting
from sid_protocol.errors import GitError, Refused

_HINT = "fill it first: git submodule update --init --recursive"

REMOVE_LIMIT_S = 30.0
"""Longest wait for a busy disk to remove one small file."""


@dataclass(frozen=True, slots=True)
class Submodule:
    """One submodule of a tree: where it lies, its commit, and the user's git directory that has it."""

    path: str
    commit: str
    git_dir: str


async def fill_submodules(git_dir: str, folder: str, tree: str) -> None:
    """Check out every submodule of a tree below a folder, recursively.

    Args:
        git_dir: The git directory that holds the tree.
        folder: The checkout of the tree.
        tree: A commit or a tree.

    Raises:
        GitError: one is not there, or git failed.
    """
    for module in await _submodules(git_dir, tree):
        target, index = f"{folder}/{module.path}", f"{folder}.submodule-index"
        await trio.to_thread.run_sync(_make_empty, target, index)
        try:
            await git(
                f"--git-dir={module.git_dir}",
                f"--work-tree={target}",
                *("read-tree", "--reset", "-u", module.commit),
                cwd=target,
                env={"GIT_INDEX_FILE": index},
            )
        finally:
            with trio.move_on_after(REMOVE_LIMIT_S, shield=True):
                await trio.to_thread.run_sync(deleting.remove, index)
        await fill_submodules(module.git_dir, target, module.commit)


async def check_submodules(git_dir: str, tree: str, prefix: str = "") -> None:
    """Refuse a commit one of whose submodules could not be filled.

    Raises:
        Refused: naming it and what to do.
        GitError: git failed.
    """
    try:
        modules = await _submodules(git_dir, tree)
        for module in modules:
            await check_submodules(module.git_dir, module.commit, f"{prefix}{module.path}/")
    except _MissingError as error:
        raise Refused(f"the submodule {prefix}{error.path} {error.why}", hint=_HINT) from None


async def submodule_paths(git_dir: str, tree: str) -> tuple[str, ...]:
    """Return where the submodules of a tree lie."""
    return tuple(path for path, _ in await trio.to_thread.run_sync(_links, git_dir, tree))


Stamps = Mapping[str, frozenset[tuple[str, int, int, int]]]
"""Submodule → path below it, size, inode and time of change of every file; the last no program can set."""


async def stamps(folder: str, modules: Iterable[str], ignored: Container[str]) -> Stamps:
    """Return what tells whether anything in the submodules of a checkout changes.

    Args:
        folder: The checkout.
        modules: Where its submodules lie.
        ignored: Names of folders whose content is never anybody's edit.

    Raises:
        OSError: a folder cannot be read.
    """
    return await trio.to_thread.run_sync(
        lambda: {module: frozenset(_stamped(f"{folder}/{module}", ignored)) for module in modules}
    )


def _stamped(folder: str, ignored: Container[str]) -> Iterator[tuple[str, int, int, int]]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in ignored]
        for name in names:
            path = f"{at}/{name}"
            found = os.lstat(path)
            yield path, found.st_size, found.st_ino, found.st_ctime_ns


class _MissingError(GitError):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the submodule {path} {why}", hint=_HINT)
        self.path = path
        self.why = why


async def _submodules(git_dir: str, tree: str) -> list[Submodule]:
    links = await trio.to_thread.run_sync(_links, git_dir, tree)
    if not links:
        return []
    wanted = ("config", "-z", f"--blob={tree}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    shown = await git(f"--git-dir={git_dir}", *wanted, cwd=git_dir, expect=(0, 1, 128))
    pairs = (item.partition("\n")[::2] for item in shown.paths)
    names = {path: key.removeprefix("submodule.").removesuffix(".path") for key, path in pairs}
    found = []
    for path, commit in links:
        if path not in names:
            raise _MissingError(path, "is not in .gitmodules")
        own = await trio.to_thread.run_sync(_git_dir_of, git_dir, names[path], commit)
        if own is None:
            raise _MissingError(path, f"is not here at commit {commit[:12]}")
        found.append(Submodule(path, commit, own))
    return found


def _links(git_dir: str, tree: str) -> list[tuple[str, str]]:
    repo = open_repository(git_dir)
    found = files(repo, tree_of(repo, tree))
    return sorted((path, entry.id) for path, entry in found if entry.mode == GITLINK)


def _git_dir_of(git_dir: str, name: str, commit: str) -> str | None:
    """Return the user's git directory of a submodule that has a commit; also one of a linked worktree."""
    tops = [Path(git_dir, "modules"), *sorted(Path(git_dir).glob("worktrees/*/modules"))]
    for top in tops:
        path = top / name
        if not Path(os.path.normpath(path)).is_relative_to(top) or not (path / "HEAD").is_file():
            continue
        if commit in open_repository(str(path)):
            return str(path)
    return None


def _make_empty(target: str, index: str) -> None:
    deleting.remove(index)
    deleting.remove(target)
    Path(target).mkdir(parents=True)
