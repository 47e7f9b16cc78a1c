"""Refs of a repository: where they point, moved only from where they were believed to be.

`git_master` uses it in a worker thread; each function is a few file accesses. It knows which branches are checked
out in a worktree, because moving such a branch would make that worktree look edited.
"""

from __future__ import annotations

from pathlib import Path

import pygit2

from sid_actors.trees import one_line
from sid_protocol.errors import GitError


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
        return str(repo.references[ref].resolve().target)
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
    try:
        if old is None:
            repo.create_reference(ref, pygit2.Oid(hex=new), force=False, message=why)
        else:
            repo.references[ref].set_target(pygit2.Oid(hex=new), why)  # libgit2 compares the old value again
    except (pygit2.GitError, KeyError, ValueError) as error:
        actual = target(repo, ref)
        if actual != old:
            raise BranchMovedError(ref, old, actual) from None
        raise GitError(f"cannot write {ref}: {one_line(error)}", hint="see 'git for-each-ref'") from None


def delete(repo: pygit2.Repository, ref: str) -> None:
    """Delete a ref; one that is not there is fine.

    Raises:
        GitError: it cannot be deleted.
    """
    try:
        repo.references.delete(ref)
    except KeyError:
        return
    except pygit2.GitError as error:
        raise GitError(f"cannot delete {ref}: {one_line(error)}") from None


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
