"""How many files and lines a change has, in the words of `git diff --shortstat`; without git, where that is quick.

`local` asks for each candidate, in a worker thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pygit2

from sid_actors.git.trees import GITLINK, Change, Entry, open_repository

_SHORTSTAT = re.compile(r"([0-9]+) (insertion|deletion)")
_STAT_LIMIT_BYTES = 1_000_000
_REGULAR = 0o100000


def small_stat(common_dir: str, differences: Sequence[Change]) -> str | None:
    """Say how two trees differ, as `git diff --shortstat` does; None for what is large, no plain file, or may have been renamed.

    That is for git to count, in a process of its own, which holds nobody up.
    """
    repo = open_repository(common_dir)
    sides = [(change.old, change.new) for change in differences]
    kinds = {(entry.mode & 0o170000) for side in sides for entry in side if entry}
    sizes = [
        repo.odb.read_header(pygit2.Oid(hex=e.id))[1]
        for side in sides
        for e in side
        if e and e.mode != GITLINK
    ]
    moved = any(old is None for old, _ in sides) and any(new is None for _, new in sides)
    if kinds != {_REGULAR} or sum(sizes) > _STAT_LIMIT_BYTES or moved:
        return None
    added, gone = map(sum, zip(*(_lines(repo, old, new) for old, new in sides), strict=True))
    parts = [_counted(len(sides), "file", " changed")]
    parts += [_counted(added, "insertion", "(+)")] if added or not gone else []
    parts += [_counted(gone, "deletion", "(-)")] if gone or not added else []
    return ", ".join(parts)


def _lines(repo: pygit2.Repository, old: Entry | None, new: Entry | None) -> tuple[int, int]:
    """Return how many lines of a file were added and taken away; of two trees libgit2 would read every folder."""
    before, after = (repo.read(pygit2.Oid(hex=entry.id))[1] if entry else None for entry in (old, new))
    _, added, gone = pygit2.Patch.create_from(before, after).line_stats
    return added, gone


def _counted(number: int, noun: str, rest: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}{rest}"


def net_lines(shortstat: str) -> int:
    """Return the insertions less the deletions of such a line."""
    signs = {"insertion": 1, "deletion": -1}
    return sum(signs[kind] * int(number) for number, kind in _SHORTSTAT.findall(shortstat))
