"""Trees as plain data: what is read, compared and written agrees with git itself."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sid_actors.git.trees import (
    FILE,
    LINK,
    Change,
    Entry,
    changes,
    entries,
    files,
    open_repository,
    tree_of,
    with_changes,
)
from sid_protocol.errors import GitError
from tests.conftest import MakeRepo

names = st.sampled_from(["a", "a.b", "a-", "b", "ü", "\udcff"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


def without_clashes(found: Mapping[str, Entry]) -> dict[str, Entry]:
    return {p: e for p, e in found.items() if not any(other.startswith(f"{p}/") for other in found)}


def trees_of(blobs: list[str]) -> st.SearchStrategy[dict[str, Entry]]:
    entry = st.builds(Entry, st.sampled_from([FILE, LINK]), st.sampled_from(blobs))
    return st.dictionaries(paths, entry, max_size=8).map(without_clashes)


def test_trees_read_back_as_written_and_differences_lead_from_one_to_the_other(repo: MakeRepo) -> None:
    made = repo({"x": "1"})
    git = open_repository(str(made.path / ".git"))
    blobs = [str(git.create_blob(data)) for data in (b"1", b"2", b"3")]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(trees_of(blobs), trees_of(blobs))
    def check(before: dict[str, Entry], after: dict[str, Entry]) -> None:
        old, new = with_changes(git, None, before), with_changes(git, None, after)
        assert dict(files(git, old)) == before
        difference = changes(git, old, new)
        assert {c.path: (c.old, c.new) for c in difference} == {
            p: (before.get(p), after.get(p))
            for p in before.keys() | after.keys()
            if before.get(p) != after.get(p)
        }
        assert with_changes(git, old, {c.path: c.new for c in difference}) == new
        subprocess.run(["git", "-C", made.path, "ls-tree", "-r", new], check=True, capture_output=True)

    check()
    made.git("fsck", "--strict", "--no-dangling")


def test_a_tree_is_the_one_that_git_writes(repo: MakeRepo) -> None:
    made = repo({"a/b": "1", "a.b": "2", "a-b/c": "3", "ü/x": "4"})
    git = open_repository(str(made.path / ".git"))
    tree = tree_of(git, made.head)
    assert tree == made.git("rev-parse", "HEAD^{tree}")
    assert with_changes(git, None, dict(files(git, tree))) == tree
    assert with_changes(git, tree, {"a/b": None, "missing/x": None}) != tree
    assert "a" not in entries(git, with_changes(git, tree, {"a/b": None}))
    assert changes(git, tree, tree) == []
    assert changes(git, tree, with_changes(git, tree, {"a/b": None}))[0] == Change(
        "a/b", Entry(FILE, made.git("rev-parse", "HEAD:a/b")), None
    )


def test_what_is_not_there_is_a_git_error(repo: MakeRepo) -> None:
    made = repo({"a": "1"})
    git = open_repository(str(made.path / ".git"))
    for revision in ("0" * 40, "main", "", made.git("rev-parse", "HEAD:a")):
        with pytest.raises(GitError, match="no commit or tree"):
            tree_of(git, revision)
    with pytest.raises(GitError, match="cannot read the repository"):
        open_repository(str(made.path.parent))
