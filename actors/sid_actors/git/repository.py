"""What a repository is, before anything is done with it: where it lies, whether it can be worked on, who is in it.

`discover` is the gate through which every repository comes; the daemon calls it at `init` and `start`.
It only reads. The lock of a repository's metadata is here, too: adding and removing worktrees and deleting
branches at the same time fails in 2 of 160 cases, so they take turns, by common git directory.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass

import pygit2
import trio

from sid_actors.git.cli import git, told
from sid_actors.git.trees import FOLDER, LINK, entries, files, open_repository, tree_of
from sid_protocol.errors import GitError
from sid_protocol.locations import shell_word

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
        raise GitError(f"{path} is not a folder", hint="give the path of a git repository")
    common, top = await _places(folder)
    head, branches = await trio.to_thread.run_sync(_branches, common, top)
    # An identity from the command line's environment is of one shell; a daemon outlives it.
    wanted = r"^user\.(name|email)$"
    asked = await git("config", "-z", "--get-regexp", wanted, cwd=folder, expect=(0, 1))
    values = dict(item.partition("\n")[::2] for item in asked.paths)
    return RepoInfo(
        top=str(await trio.Path(top).resolve()),
        common_dir=common,
        head_branch=head,
        branches=branches,
        user_name=values.get("user.name", "").strip() or None,
        user_email=values.get("user.email", "").strip() or None,
    )


_KIND = "sha1"
_QUESTIONS = ("--is-bare-repository", "--show-object-format", "--path-format=absolute", "--git-common-dir")


async def _places(folder: str) -> tuple[str, str]:
    """Return the common git directory and the top folder, as git names them."""
    at_once = await git("rev-parse", *_QUESTIONS, "--show-toplevel", cwd=folder, expect=(0, 128, 129))
    answers = at_once.line.split("\n")
    if at_once.code == 0 and answers[:2] == ["false", _KIND] and len(answers) == 4:
        return str(await trio.Path(answers[2]).resolve()), answers[3]
    # One question after the other tells what is wrong; and a path, which may hold a newline, comes last.
    common = await _common_dir(folder)
    shown = await git("rev-parse", "--show-toplevel", cwd=folder, expect=(0, 128))
    if shown.code:
        raise GitError(f"{folder} is inside a git directory", hint="give the path of the checkout")
    return common, shown.line


async def _common_dir(folder: str) -> str:
    found = await git("rev-parse", *_QUESTIONS, cwd=folder, expect=(0, 128, 129))
    if found.code:
        if "dubious ownership" in found.err:
            raise GitError(
                f"{folder} belongs to another user",
                hint=f"if you trust it: git config --global --add safe.directory '{folder}'",
            )
        if "not a git repository" in found.err:
            raise GitError(
                f"{folder} is in no git repository", hint="git init and a first commit make it one"
            )
        hint = f"try: git -C {shell_word(folder)} status"
        raise GitError(f"git cannot read {folder}: {told(found.err)}", hint=hint)
    bare, kind, common = found.line.split("\n", 2)
    if bare == "true":
        raise GitError(f"{folder} is a bare repository", hint="clone it and point sid at the clone")
    if kind != _KIND:
        raise GitError(f"{folder} uses {kind} object names, which libgit2 cannot read", hint="use sha1")
    return str(await trio.Path(common).resolve())


def _branches(common_dir: str, top: str) -> tuple[str | None, tuple[str, ...]]:
    repo = open_repository(common_dir)
    branches = tuple(sorted(repo.branches.local))
    if not branches:
        raise GitError(f"{top} has no commits", hint="commit what is there first: git commit")
    head = str(pygit2.Repository(top).lookup_reference("HEAD").target)  # of a linked worktree: its own
    return (head.removeprefix("refs/heads/") if head.startswith("refs/heads/") else None), branches


def tracked_links(top: str, folder: str) -> list[str]:
    """Return the symbolic links that the checked-out commit puts on the way to a folder, or below it; blocks shortly.

    Args:
        top: The top of the work tree.
        folder: Absolute path; what lies outside of the work tree has none.

    Raises:
        GitError: the repository cannot be read.
    """
    wanted = os.path.relpath(folder, top)
    first = wanted.split("/")[0]
    repo = open_repository(top)
    if first == ".." or repo.head_is_unborn:
        return []
    entry = entries(repo, tree_of(repo, str(repo.head.target))).get(first)
    if entry is None:
        return []
    found = [(first, entry)]
    if entry.mode == FOLDER:
        found = list(files(repo, entry.id, f"{first}/"))
    links = [path for path, one in found if one.mode == LINK]
    return sorted(
        path for path in links if f"{wanted}/".startswith(f"{path}/") or path.startswith(f"{wanted}/")
    )
