"""A change's fingerprint: what tells it from another change of the same commit, whatever its layout.

`LocalWorkbench.collect` takes one of every candidate, before anything is measured; the core compares them. Python counts
by its syntax tree, so white space and comments do not make a change new, other text by its lines without trailing
white space and blank lines. Where a change is nothing but layout, the layout is the change and counts as it is. Blocks,
and belongs in a worker thread; runs nothing of the change.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence

import pygit2

from sid_actors.git.trees import GITLINK, LINK, Change, Entry, content, open_repository
from sid_actors.workbench.checks.pysyntax import parsed

_PARSED_LIMIT_BYTES = 256_000
_TEXT_LIMIT_BYTES = 4_000_000


def fingerprint(common_dir: str, differences: Sequence[Change]) -> str:
    """Return the digest of a change: 32 hex digits, empty where nothing is changed.

    Args:
        common_dir: The repository's git directory.
        differences: How the candidate's tree differs from that of the commit it is a change of.
    """
    if not differences:
        return ""
    repo = open_repository(common_dir)
    normal = [
        (change, _normal(repo, change.path, change.old), _normal(repo, change.path, change.new))
        for change in differences
    ]
    real = [(change.path, new) for change, old, new in normal if old != new]
    told = real or [(change.path, _plain(change.new)) for change in differences]
    return _digest("\0".join(f"{path}\0{new}" for path, new in told).encode("utf-8", "surrogateescape"))


def _normal(repo: pygit2.Repository, path: str, entry: Entry | None) -> str:
    """Return a file's mode and the digest of its normalised content."""
    if entry is None or entry.mode in (LINK, GITLINK):
        return _plain(entry)
    data = content(repo, entry, _TEXT_LIMIT_BYTES)
    if data is None or b"\0" in data:
        return _plain(entry)
    normal = _syntax(data) if path.endswith((".py", ".pyi")) else None
    return f"{entry.mode:o} {_digest(normal or _lines(data))}"


def _syntax(data: bytes) -> bytes | None:
    if len(data) > _PARSED_LIMIT_BYTES:
        return None
    tree = parsed(data.decode("utf-8", "replace"))
    try:
        return None if tree is None else ast.dump(tree).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):  # Python writes no longer number than 4300 digits
        return None


def _lines(data: bytes) -> bytes:
    return b"\n".join(line for raw in data.splitlines() if (line := raw.rstrip()))


def _plain(entry: Entry | None) -> str:
    return "gone" if entry is None else f"{entry.mode:o} {entry.id}"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
