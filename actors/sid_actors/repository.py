"""What a repository is, before anything is done with it: where it lies, whether it can be worked on, who is in it.

`discover` is the gate through which every repository comes; the daemon calls it at `init` and `start`.
It only reads. The lock of a repository's metadata is here, too: adding and removing worktrees and deleting
branches at the same time fails in 2 of 160 cases, so they take turns, by common git directory.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import trio

from sid_actors.gitcli import git
from sid_actors.trees import open_repository
from sid_protocol.errors import GitError

_locks: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoInfo:
    """A repository that can be worked on; paths are absolute and real.

    Attributes:
        top: The checkout that the user pointed at.
        common_dir: The git directory that all its worktrees share: the repository's identity.
        head_branch: The branch that is checked out there, or None.
        branches: All local branches, sorted.
        user_name: The user's git identity, or None where none is configured.
        user_email: Its address, or None.
    """

    top: str
    common_dir: str
    head_branch: str | None
    branches: tuple[str, ...]
    user_name: str | None
    user_email: str | None

    @property
    def identity(self) -> tuple[str, str]:
        """Name and address that commits carry."""
        if self.user_name and self.user_email:
            return self.user_name, self.user_email
        return "sid", "sid@localhost"


def metadata_lock(common_dir: str) -> trio.Lock:
    """Return the lock of a repository's worktree list and branches; hold it for milliseconds."""
    return _locks.setdefault(common_dir, trio.Lock())


async def discover(path: str) -> RepoInfo:
    """Look at the repository that a path lies in.

    Raises:
        GitError: there is none, or it is bare, empty, another user's, or of a kind that libgit2 cannot read.
    """
    folder = str(await trio.Path(path).resolve())
    if not await trio.Path(folder).is_dir():
        raise GitError(f"{path} is no folder", hint="give the path of a git repository")
    common = await _common_dir(folder)
    if (await git("rev-parse", "--is-bare-repository", cwd=folder)).line == "true":
        raise GitError(f"{folder} is a bare repository", hint="clone it and point sid at the clone")
    shown = await git("rev-parse", "--show-toplevel", cwd=folder, expect=(0, 128))
    if shown.code:
        raise GitError(f"{folder} is inside a git directory", hint="give the path of the checkout")
    listed = await git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", cwd=folder)
    branches = tuple(sorted(listed.line.splitlines()))
    if not branches:
        raise GitError(f"{shown.line} has no commits", hint="commit what is there first: git commit")
    kind = (await git("rev-parse", "--show-object-format", cwd=folder)).line
    if kind != "sha1":
        raise GitError(f"{shown.line} uses {kind} object names, which libgit2 cannot read", hint="use sha1")
    await trio.to_thread.run_sync(_check_readable, common)
    head = await git("symbolic-ref", "--quiet", "--short", "HEAD", cwd=folder, expect=(0, 1))
    name, email = [await _configured(folder, key) for key in ("user.name", "user.email")]
    return RepoInfo(
        top=str(await trio.Path(shown.line).resolve()),
        common_dir=common,
        head_branch=head.line or None,
        branches=branches,
        user_name=name,
        user_email=email,
    )


async def _common_dir(folder: str) -> str:
    found = await git(
        "rev-parse", "--path-format=absolute", "--git-common-dir", cwd=folder, expect=(0, 128, 129)
    )
    if not found.code:
        return str(await trio.Path(found.line).resolve())
    if "dubious ownership" in found.err:
        raise GitError(
            f"{folder} belongs to another user",
            hint=f"if you trust it: git config --global --add safe.directory '{folder}'",
        )
    if "not a git repository" in found.err:
        raise GitError(f"{folder} is in no git repository", hint="git init and a first commit make it one")
    raise GitError(f"git cannot read {folder}: {' '.join(found.err.split())[:300]}")


async def _configured(folder: str, key: str) -> str | None:
    # An identity from the command line's environment is of one shell; a daemon outlives it.
    found = await git("config", "--get", key, cwd=folder, expect=(0, 1))
    return found.line.strip() or None


def _check_readable(common_dir: str) -> None:
    open_repository(common_dir).free()
