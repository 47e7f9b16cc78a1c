"""Git trees as plain data: read, compare, change. No index, no checkout, no hook, no filter.

The workbench and the git-master use it in a worker thread: what it does grows with the number of differing
folders, `files` with the number of files. Paths are `str` by `os.fsdecode`, so that any bytes survive.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pygit2
from pygit2.enums import ObjectType

from sid_protocol.errors import GitError

# Whose repository may be worked on git decides, which `repository.discover` asks; libgit2 reads fewer of the user's answers.
pygit2.settings.owner_validation = False

FILE, PROGRAM, LINK, FOLDER, GITLINK = 0o100644, 0o100755, 0o120000, 0o040000, 0o160000


@dataclass(frozen=True, slots=True)
class Entry:
    """A tree's entry: git's mode and the object's id, in hex."""

    mode: int
    id: str


@dataclass(frozen=True, slots=True)
class Change:
    """How one path differs between two trees; None where it is absent."""

    path: str
    old: Entry | None
    new: Entry | None


def open_repository(common_dir: str) -> pygit2.Repository:
    """Open a repository by its git directory; a handle belongs to one thread at a time.

    Raises:
        GitError: libgit2 cannot read it.
    """
    try:
        return pygit2.Repository(common_dir)
    except (pygit2.GitError, KeyError, ValueError) as error:
        raise GitError(f"cannot read the repository: {one_line(error)}") from None


def one_line(error: BaseException) -> str:
    """Return an error's text as one line."""
    return " ".join(str(error).split()) or type(error).__name__


def content(repo: pygit2.Repository, entry: Entry, limit_bytes: int) -> bytes | None:
    """Return a file's content; None, and nothing of it is read, where that is longer than a limit."""
    oid = pygit2.Oid(hex=entry.id)
    return None if repo.odb.read_header(oid)[1] > limit_bytes else repo.read(oid)[1]


def has_commit(common_dir: str, commit: str) -> bool:
    """Say whether a repository has a commit; False where it cannot be read."""
    try:
        return isinstance(open_repository(common_dir).get(commit), pygit2.Commit)
    except (GitError, ValueError):
        return False


def tree_of(repo: pygit2.Repository, revision: str) -> str:
    """Return the id of a commit's tree, or of the tree itself.

    Raises:
        GitError: there is no such object.
    """
    try:
        return str(repo[pygit2.Oid(hex=revision)].peel(pygit2.Tree).id)
    except (KeyError, ValueError, pygit2.GitError) as error:
        raise GitError(f"no commit or tree {revision[:40]}: {one_line(error)}") from None


def entries(repo: pygit2.Repository, tree: str) -> dict[str, Entry]:
    """Return the direct entries of one tree."""
    kind, data = repo.read(pygit2.Oid(hex=tree))
    if kind != ObjectType.TREE:
        raise GitError(f"object {tree} is no tree")
    size = len(tree) // 2
    found: dict[str, Entry] = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        name = os.fsdecode(data[space + 1 : end])
        found[name] = Entry(int(data[at:space], 8), data[end + 1 : end + 1 + size].hex())
        at = end + 1 + size
    return found


def files(repo: pygit2.Repository, tree: str, prefix: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield every path below a tree that is no folder, in no stated order."""
    for name, entry in entries(repo, tree).items():
        if entry.mode == FOLDER:
            yield from files(repo, entry.id, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", entry


def lookup(repo: pygit2.Repository, tree: str, paths: Iterable[str]) -> dict[str, Entry]:
    """Return the entries of some paths, without those that a tree lacks; only folders on the way are read."""
    level = entries(repo, tree)
    found: dict[str, Entry] = {}
    below: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        name, slash, rest = path.partition("/")
        entry = level.get(name)
        if entry is not None and slash and entry.mode == FOLDER:
            below[name].append(rest)
        elif entry is not None and not slash:
            found[path] = entry
    for name, inner in below.items():
        found |= {f"{name}/{path}": entry for path, entry in lookup(repo, level[name].id, inner).items()}
    return found


def changes(repo: pygit2.Repository, old: str, new: str) -> list[Change]:
    """Return how two trees differ, by path; equal folders are never entered."""
    return sorted(_differences(repo, old, new, ""), key=lambda change: change.path)


def _differences(repo: pygit2.Repository, old: str | None, new: str | None, prefix: str) -> Iterator[Change]:
    if old == new:
        return
    before = entries(repo, old) if old else {}
    after = entries(repo, new) if new else {}
    for name in before.keys() | after.keys():
        a, b = before.get(name), after.get(name)
        if a == b:
            continue
        path = f"{prefix}{name}"
        a_tree = a.id if a and a.mode == FOLDER else None
        b_tree = b.id if b and b.mode == FOLDER else None
        a_file = None if a_tree else a
        b_file = None if b_tree else b
        if a_file or b_file:
            yield Change(path, a_file, b_file)
        if a_tree or b_tree:
            yield from _differences(repo, a_tree, b_tree, f"{path}/")


def with_changes(repo: pygit2.Repository, tree: str | None, wanted: Mapping[str, Entry | None]) -> str:
    """Write a tree that differs from another in the given paths only, and return its id.

    Args:
        repo: Where it is written.
        tree: The tree to start from; None for an empty one.
        wanted: New entry of each path, None to remove it; folders come and go by themselves.
    """
    level = entries(repo, tree) if tree else {}
    below: dict[str, dict[str, Entry | None]] = defaultdict(dict)
    for path, entry in wanted.items():
        name, slash, rest = path.partition("/")
        if slash:
            below[name][rest] = entry
        elif entry is not None:
            level[name] = entry
        elif name in level and level[name].mode != FOLDER:
            del level[name]
    for name, inner in below.items():
        present = level.get(name)
        is_folder = present is not None and present.mode == FOLDER
        if present is not None and not is_folder and not any(inner.values()):
            continue  # the folder became a file: what lay in it is gone with it
        child = with_changes(repo, present.id if present and is_folder else None, inner)
        if entries(repo, child):
            level[name] = Entry(FOLDER, child)
        else:
            level.pop(name, None)
    return _write(repo, level)


def _write(repo: pygit2.Repository, level: Mapping[str, Entry]) -> str:
    def order(item: tuple[str, Entry]) -> bytes:
        return os.fsencode(item[0]) + (b"/" if item[1].mode == FOLDER else b"")

    data = b"".join(
        b"%o %s\0%s" % (entry.mode, os.fsencode(name), bytes.fromhex(entry.id))
        for name, entry in sorted(level.items(), key=order)
    )
    return str(repo.write(ObjectType.TREE, data))
