"""Commits as plain data, and back: what a recording keeps of an executor's edits, and how a replay makes them again.

Called by recorder and replay, in a worker thread. A commit comes back from its own bytes and from the contents of
the files that it changed, so it has the id that it had, in any repository that has its base.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import pygit2
from pygit2.enums import ObjectType

from sid_actors.git.trees import (
    FOLDER,
    GITLINK,
    Entry,
    changes,
    one_line,
    open_repository,
    tree_of,
    with_changes,
)
from sid_protocol.errors import GitError

_IDENTITY = re.compile(r"^committer (.*) <([^>]*)> \d+ [+-]\d{4}$", re.MULTILINE)
_TREE = re.compile(r"^tree ([0-9a-f]+)\n")


@dataclass(frozen=True, slots=True)
class Edit:
    """What a commit has at one path.

    Attributes:
        path: In the repository; bytes that are no UTF-8 as `os.fsdecode` has them.
        mode: Git's mode; None where the path is gone.
        content: SHA-256 (hex) of the file's content; None for a submodule and for what is gone.
        target: A submodule's commit, else empty.
    """

    path: str
    mode: int | None
    content: str | None
    target: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A commit as it can be written again.

    Attributes:
        id: Its id.
        text: The commit object's own text: tree, parents, author, committer, message.
        edits: How its tree differs from its base's.
    """

    id: str
    text: str
    edits: tuple[Edit, ...] = ()

    @property
    def identity(self) -> tuple[str, str] | None:
        """The committer's name and address; None where the text has none."""
        found = _IDENTITY.search(self.text)
        return (found[1], found[2]) if found else None


def take_down(common_dir: str, commit: str, base: str | None) -> tuple[Written, dict[str, bytes]]:
    """Return a commit as data, and the contents that it brings, by their SHA-256.

    Args:
        common_dir: The repository's git directory.
        commit: Which.
        base: The commit that it is a change of; None leaves its edits out.

    Raises:
        GitError: there is no such commit.
    """
    repo = open_repository(common_dir)
    try:
        kind, raw = repo.read(pygit2.Oid(hex=commit))
        if kind != ObjectType.COMMIT:
            raise GitError(f"object {commit} is no commit")
        contents: dict[str, bytes] = {}
        edits = []
        for change in changes(repo, tree_of(repo, base), tree_of(repo, commit)) if base else ():
            new = change.new
            if new is None:
                edits.append(Edit(change.path, None, None))
            elif new.mode in (GITLINK, FOLDER):
                edits.append(Edit(change.path, new.mode, None, new.id))
            else:
                data = repo.read(pygit2.Oid(hex=new.id))[1]
                key = hashlib.sha256(data).hexdigest()
                contents[key] = data
                edits.append(Edit(change.path, new.mode, key))
    except (KeyError, ValueError, pygit2.GitError) as error:
        raise GitError(f"cannot read commit {commit[:40]}: {one_line(error)}") from None
    return Written(commit, raw.decode("utf-8", "surrogateescape"), tuple(edits)), contents


def write_again(common_dir: str, written: Written, base: str, contents: dict[str, bytes]) -> str:
    """Write a commit again and return its id; the same as before, unless something of it was changed.

    Args:
        common_dir: The repository's git directory.
        written: The commit.
        base: The commit that it is a change of.
        contents: By SHA-256, what its edits name.

    Raises:
        GitError: the base is missing, or the tree that comes out is not the one that the commit names.
    """
    repo = open_repository(common_dir)
    entries: dict[str, Entry | None] = {}
    for edit in written.edits:
        if edit.mode is None:
            entries[edit.path] = None
        elif edit.content is None:
            entries[edit.path] = Entry(edit.mode, edit.target)
        else:
            entries[edit.path] = Entry(edit.mode, str(repo.create_blob(contents[edit.content])))
    tree = with_changes(repo, tree_of(repo, base), entries)
    named = _TREE.match(written.text)
    if named is None or named[1] != tree:
        raise GitError(f"the edits give tree {tree}, commit {written.id} names another")
    return str(repo.write(ObjectType.COMMIT, written.text.encode("utf-8", "surrogateescape")))
