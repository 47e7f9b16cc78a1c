"""A change's fingerprint: alike for what is alike but for its layout, and different for everything else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sid_actors.git.trees import FILE, PROGRAM, Entry, changes, open_repository, with_changes
from sid_actors.workbench.checks.fingerprint import fingerprint
from tests.conftest import MakeRepo

BASE = {
    "app.py": "def f(x):\n    # doubles it\n    return x + x\n",
    "other.py": "y = 1  # one\n",
    "notes.md": "One\n\nTwo\n",
}
CHANGED = {"app.py": "def f(x):\n    return 2 * x\n"}
Files = Mapping[str, "str | bytes | None"]


@pytest.mark.parametrize(
    ("one", "two", "alike"),
    [
        (CHANGED, {"app.py": "def f( x ):\n\n    # by two\n    return (2*x)  # so\n"}, True),
        (CHANGED, {**CHANGED, "other.py": "y = 1  # uno\n"}, True),
        (CHANGED, {**CHANGED, "notes.md": "One\nTwo   \n\n"}, True),
        (CHANGED, {"app.py": "def f(x):\n    return x * 2\n"}, False),
        (CHANGED, {"app.py": 'def f(x):\n    """Double."""\n    return 2 * x\n'}, False),
        (CHANGED, {**CHANGED, "notes.md": "Three\n"}, False),
        ({"app.py": "def f(:\n    pass\n"}, {"app.py": "def f(:\n        pass\n"}, False),
        ({"app.py": "def f(:\n    pass\n"}, {"app.py": "def f(:\n    pass  \n\n"}, True),
        # A number that Python parses and does not write: it is compared by lines.
        ({"app.py": f"x = 0x{'f' * 5000}\n"}, {"app.py": f"x = 0x{'f' * 5000}  \n"}, True),
        ({"app.py": f"x = 0x{'f' * 5000}\n"}, {"app.py": f"x = 0x{'e' * 5000}\n"}, False),
        ({"new.txt": "a\r\nb\r\n"}, {"new.txt": "a\nb"}, True),
        ({"new.txt": "  a\n"}, {"new.txt": "a\n"}, False),
        ({"new.bin": b"\0 a"}, {"new.bin": b"\0 a "}, False),
        ({"new.py": "x = 1\n"}, {"other_name.py": "x = 1\n"}, False),
        ({"app.py": None}, {"other.py": None}, False),
        # Nothing but layout: then the layout is what is tried.
        ({"other.py": "y = 1  # uno\n"}, {"other.py": "y = 1  # eins\n"}, False),
        ({"notes.md": "One\nTwo\n"}, {"notes.md": "One\nTwo\n"}, True),
    ],
)
def test_changes_of_layout_are_no_other_change(
    repo: MakeRepo, one: Files, two: Files, *, alike: bool
) -> None:
    made = repo(BASE)
    common_dir = str(made.path / ".git")
    git = open_repository(common_dir)
    base = str(git.revparse_single("HEAD^{tree}").id)

    def taken(files: Files) -> str:
        wanted = {}
        for path, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            wanted[path] = None if data is None else Entry(FILE, str(git.create_blob(data)))
        return fingerprint(common_dir, changes(git, base, with_changes(git, base, wanted)))

    assert (taken(one) == taken(two)) is alike
    assert len(taken(one)) == 32


def test_a_mode_and_code_beyond_all_depth_count(repo: MakeRepo) -> None:
    made = repo(BASE)
    common_dir = str(made.path / ".git")
    git = open_repository(common_dir)
    base = str(git.revparse_single("HEAD^{tree}").id)
    deep = str(git.create_blob(b"x = " + b"(" * 5000 + b")" * 5000))
    found = [
        fingerprint(common_dir, changes(git, base, with_changes(git, base, {"app.py": entry})))
        for entry in (Entry(PROGRAM, str(git.revparse_single("HEAD:app.py").id)), Entry(FILE, deep))
    ]

    assert len({*found, ""}) == 3
    assert fingerprint(common_dir, []) == ""
