"""What a repository's refs and history say of a run: read in one go, changed never.

Used to check a run's records against git. Blocking: called in a worker thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pygit2

from sid_actors.git import refs
from sid_actors.git.trees import open_repository
from sid_protocol.errors import GitError
from sid_protocol.ids import improve_branch, side_ref


@dataclass(frozen=True, slots=True)
class CommitFact:
    """One commit of the improvement branch.

    Attributes:
        id: Its id.
        parents: Ids of its parents.
        message: Its message, whole.
    """

    id: str
    parents: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class GitFacts:
    """A repository as a run left it.

    Attributes:
        branch: Where the improvement branch points, or None.
        side: Where the ref points that holds wins while the branch is checked out, or None.
        commits: The improvement's first-parent commits, newest first, down to where the run began.
        reached_start: Whether that walk came to the commit where the run began.
        tags: Names and commits of `archive/` tags.
        experiments: Names and commits of `experiment/` branches.
        worktrees: Folders of the extra worktrees that git knows of.
        locks: Lock files of refs and of the repository's metadata.
    """

    branch: str | None
    side: str | None
    commits: tuple[CommitFact, ...]
    reached_start: bool
    tags: dict[str, str]
    experiments: dict[str, str]
    worktrees: tuple[str, ...]
    locks: tuple[str, ...]


def read_facts(common_dir: str, goal_slug: str, start: str) -> GitFacts:
    """Read what a repository says of a run.

    Args:
        common_dir: Its common git directory.
        goal_slug: Whose improvement branch.
        start: The commit at which that branch began.

    Raises:
        GitError: the repository cannot be read.
    """
    repo = open_repository(common_dir)
    try:
        branch = refs.target(repo, f"refs/heads/{improve_branch(goal_slug)}")
        side = refs.target(repo, side_ref(goal_slug))
        commits, reached = _first_parents(repo, side or branch, start)
        return GitFacts(
            branch=branch,
            side=side,
            commits=commits,
            reached_start=reached,
            tags=_below(repo, "refs/tags/", "archive/"),
            experiments=_below(repo, "refs/heads/", "experiment/"),
            worktrees=_worktrees(common_dir),
            locks=tuple(map(str, refs.locks(common_dir))),
        )
    except (pygit2.GitError, KeyError, ValueError) as error:
        raise GitError(f"cannot read the repository: {' '.join(str(error).split())}") from error


def _first_parents(
    repo: pygit2.Repository, tip: str | None, start: str
) -> tuple[tuple[CommitFact, ...], bool]:
    found: list[CommitFact] = []
    at = tip
    while at is not None and at != start:
        commit = repo[pygit2.Oid(hex=at)].peel(pygit2.Commit)
        parents = tuple(str(parent) for parent in commit.parent_ids)
        found.append(CommitFact(at, parents, commit.message))
        at = parents[0] if parents else None
    return tuple(found), at == start


def _below(repo: pygit2.Repository, kind: str, prefix: str) -> dict[str, str]:
    found = {}
    for name in repo.references:
        commit = refs.target(repo, name) if name.startswith(f"{kind}{prefix}") else None
        if commit is not None:
            found[name.removeprefix(kind)] = commit
    return found


def _worktrees(common_dir: str) -> tuple[str, ...]:
    links = sorted(Path(common_dir, "worktrees").glob("*/gitdir"))
    return tuple(str(Path(link.read_text(errors="surrogateescape").strip()).parent) for link in links)
