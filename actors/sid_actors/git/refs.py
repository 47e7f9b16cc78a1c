"""Refs of a repository: where they point, moved only from where they were believed to be.

`master` uses it in a worker thread; each function is a few file accesses. It knows which branches are checked
out in a worktree, because moving such a branch would make that worktree look edited.

Who writes a ref holds a lock file beside it for an instant. Another's is waited for, as git does. A daemon that is
killed in that instant leaves one that nobody would ever take away; it is known by being older than this process.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pygit2

from sid_actors.git.trees import one_line, open_repository
from sid_actors.jobs import procfs
from sid_protocol.errors import GitError

LOCK_WAIT_S = 1.0  # as long as git waits for the list of packed refs (core.packedRefsTimeout)
_LOOK_AGAIN_S = 0.02
_LOCKED = re.compile(r"failed to lock file '(.+)' for writing", re.DOTALL)
_BRANCHES = "refs/heads/"
_OURS = ("refs/heads/improve", "refs/heads/experiment", "refs/tags/archive", "refs/sid")

T = TypeVar("T")


class BranchMovedError(GitError):
    """A ref is not where it was expected: somebody else moved it.

    Args:
        ref: Its full name.
        expected: The commit that was expected, or None for no such ref.
        actual: The commit that it points at, or None.
    """

    def __init__(self, ref: str, expected: str | None, actual: str | None) -> None:
        name = ref.removeprefix("refs/heads/")
        super().__init__(
            f"{name} is at {(actual or 'nothing')[:12]}, not at {(expected or 'nothing')[:12]}",
            hint="somebody else moved it",
            data={"ref": ref, "expected": expected, "actual": actual},
        )
        self.expected = expected
        self.actual = actual


def target(repo: pygit2.Repository, ref: str) -> str | None:
    """Return the commit that a ref points at, or None where there is no such ref."""
    try:
        return str(_look_up(repo, ref).resolve().target)
    except (KeyError, pygit2.GitError):
        return None


def move(repo: pygit2.Repository, ref: str, old: str | None, new: str, why: str) -> None:
    """Move a ref by compare-and-swap; `old` None makes it.

    Raises:
        BranchMovedError: it is not at `old`.
        GitError: its name is in the way of another, or it cannot be written.
    """
    actual = target(repo, ref)
    if actual != old:
        raise BranchMovedError(ref, old, actual)

    def write() -> None:
        if old is None:
            repo.create_reference(ref, pygit2.Oid(hex=new), force=False, message=why)
        else:
            _look_up(repo, ref).set_target(pygit2.Oid(hex=new), why)  # libgit2 compares the old value again

    try:
        _patiently(write)
    except (pygit2.GitError, KeyError, ValueError) as error:
        actual = target(repo, ref)
        if actual != old:
            raise BranchMovedError(ref, old, actual) from None
        raise GitError(f"cannot write {ref}: {one_line(error)}", hint="see 'git for-each-ref'") from None


def put(repo: pygit2.Repository, ref: str, commit: str) -> None:
    """Set a ref that is nobody's but this run's, wherever it was.

    Raises:
        GitError: its name is in the way of another, or it cannot be written.
    """
    try:
        _patiently(lambda: repo.references.create(ref, pygit2.Oid(hex=commit), force=True))
    except (pygit2.GitError, ValueError) as error:
        raise GitError(f"cannot write {ref}: {one_line(error)}", hint="see 'git for-each-ref'") from None


def delete(repo: pygit2.Repository, ref: str) -> None:
    """Delete a ref; one that is not there is fine.

    Raises:
        GitError: it cannot be deleted.
    """
    try:
        # Opened anew: after a try that met a lock, libgit2 believes that the ref was packed no longer, and keeps it.
        # As any ref is: `Branch.delete` refuses what a kept worktree has checked out.
        _patiently(lambda: pygit2.Reference.delete(_look_up(open_repository(repo.path), ref)))
    except KeyError:
        return
    except pygit2.GitError as error:
        raise GitError(f"cannot delete {ref}: {one_line(error)}") from None


def _look_up(repo: pygit2.Repository, ref: str) -> pygit2.Reference:
    """Return a ref.

    `references[…]` of pygit2 1.21 keeps each name that it is asked for as long as the process lives, and each round has new
    branches: these are asked for in another way, and other names are one object each.

    Raises:
        KeyError: there is none.
    """
    if not ref.startswith(_BRANCHES):
        return repo.references[sys.intern(ref)]
    found = repo.lookup_branch(ref.removeprefix(_BRANCHES))
    if found is None:
        raise KeyError(ref)
    return found


def locks(common_dir: str) -> list[Path]:
    """Return the lock files of the refs that sid writes, and of the list of packed refs; blocks shortly."""
    top = Path(common_dir)
    found = [path for folder in _OURS for path in (top / folder).rglob("*.lock")]
    return sorted([*found, *top.glob("packed-refs.lock")])


def drop_dead_locks(common_dir: str) -> list[str]:
    """Remove the locks that a killed daemon left on refs that sid writes, and return their paths; blocks shortly.

    That of the list of packed refs may be a `git gc` that takes long; it is waited for where it is in the way.
    """
    ours = [path for path in locks(common_dir) if path.name != "packed-refs.lock"]
    return [str(path) for path in ours if _drop_if_dead(path)]


def _patiently(write: Callable[[], T]) -> T:
    """Write a ref, waiting for who is at it, as git does.

    Raises:
        GitError: somebody is at it for longer.
        OSError: of libgit2, as is `pygit2.GitError`: it cannot be written.
    """
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return write()
        except (pygit2.GitError, OSError) as error:
            locked = _LOCKED.search(str(error))
            if locked is None:
                raise
            if time.monotonic() > give_up_at and not _drop_if_dead(Path(locked[1])):
                hint = f"is a git process at work there? if not: rm '{locked[1]}'"
                raise GitError(f"{locked[1]} is held by another process", hint=hint) from None
        time.sleep(_LOOK_AGAIN_S)


def _drop_if_dead(lock: Path) -> bool:
    """Remove a lock that was there before this process, or that a clock set back dates after now."""
    try:
        made_at = lock.stat().st_mtime
        dead = not procfs.started_at(os.getpid()) <= made_at <= time.time()
        if dead:
            lock.unlink()
    except FileNotFoundError:
        return True
    return dead


def checked_out_at(common_dir: str, branch: str) -> list[str]:
    """Return the folders of the worktrees that have a branch checked out, or are in the middle of rebasing it.

    A worktree whose folder is gone does not count. The repository's own checkout is listed by its top folder.
    """
    wanted = f"refs/heads/{branch}"
    found: list[str] = []
    for admin in (Path(common_dir), *sorted(Path(common_dir, "worktrees").glob("*/"))):
        top = _worktree_of(admin, common_dir)
        if top is None or not top.is_dir():
            continue
        heads = [_line(admin / "HEAD").removeprefix("ref: ")]
        heads += [_line(admin / name / "head-name") for name in ("rebase-merge", "rebase-apply")]
        if wanted in heads or _line(admin / "BISECT_START") == branch:
            found.append(str(top))
    return found


def _worktree_of(admin: Path, common_dir: str) -> Path | None:
    if admin == Path(common_dir):
        workdir = pygit2.Repository(common_dir).workdir
        return Path(workdir) if workdir else None
    link = _line(admin / "gitdir")
    return Path(admin, link).parent if link else None


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape").removesuffix("\n")
    except (FileNotFoundError, NotADirectoryError):
        return ""
