"""How much a candidate changed is counted as git counts it."""

from __future__ import annotations

import pytest

from sid_actors.git.trees import changes, open_repository, tree_of
from sid_actors.workbench.shortstat import small_stat
from tests.conftest import MakeRepo

BASE: dict[str, str | bytes] = {
    "a.py": "1\n2\n3\n",
    "b/c.py": "x\ny",
    "empty": "",
    "data.bin": b"\0\1\2",
    "old.txt": "o\nl\nd\n",
}


@pytest.mark.parametrize(
    "after",
    [
        {"a.py": "1\n2\n3\n4\n"},
        {"a.py": "3\n"},
        {"a.py": "1\n2\n3"},
        {"a.py": ""},
        {"b/c.py": "y\nx\n", "a.py": "one\n2\nthree\n"},
        {"new.py": "n\ne\nw\n", "empty.too": ""},
        {"empty": "no more\n"},
        {"data.bin": b"\0\1\3"},
        {"data.bin": "text\n", "a.py": b"\0"},
        {"a.py": "1\r\n2\r\n3\r\n"},
        {"old.txt": None},
        {"old.txt": None, "moved.txt": "o\nl\nd\n", "empty": None},
        {"data.bin": None, "a.py": b"\xff\n"},
    ],
)
def test_lines_are_counted_as_git_counts_them(repo: MakeRepo, after: dict[str, str | bytes | None]) -> None:
    made = repo(BASE)
    base = made.head
    for name in (name for name, content in after.items() if content is None):
        (made.path / name).unlink()
    commit = made.commit({name: content for name, content in after.items() if content is not None})
    common_dir = str(made.path / ".git")
    opened = open_repository(common_dir)
    differing = changes(opened, tree_of(opened, base), tree_of(opened, commit))
    counted = small_stat(common_dir, differing)
    # A file that may have been renamed is for git.
    expected = None if "moved.txt" in after else made.git("diff", "--shortstat", base, commit).strip()
    assert counted == expected
