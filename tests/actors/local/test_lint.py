"""Ruff as a source of ideas: found without importing it, its fixes read and carried out, silent where it is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sid_actors.backends.local.apply import apply_recipe
from sid_actors.backends.local.hotspots import HotFunction, HotSpots
from sid_actors.backends.local.ideas import Idea, survey
from sid_actors.backends.local.lint import LINT, find_ruff, fixes, lint_argv, parse_lint
from sid_actors.backends.local.recipe import Attempt, Recipe, RecipeFailed
from tests.conftest import Spawn

TEXT = """\
# ü
table = dict([(n, n) for n in range(3)])


def pairs(rows, table):
    for name, count in table.items():
        rows.append((count, table[name]))
    return dict([(a, b) for a, b in rows])


class Book:
    def starts(self, text):
        return text.startswith("a") or text.startswith("b")
"""


@pytest.fixture
def rows(real_process: Spawn, short_dir: Path) -> dict[str, Any]:
    program = find_ruff("/nowhere", sys.prefix)
    assert program is not None, "ruff is a dependency of the tests"
    (short_dir / "lib").mkdir()
    (short_dir / "lib" / "b.py").write_text(TEXT)
    (short_dir / "pyproject.toml").write_text('[tool.ruff]\nexclude = ["*"]\n')
    child = real_process(lint_argv(program), cwd=short_dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, b"")
    return parse_lint(out, str(short_dir.resolve()))


def lint_ideas(rows: Any, attempts: list[Attempt] | None = None, hot: HotSpots | None = None) -> list[Idea]:
    ideas = survey({"lib/b.py": TEXT}, hot, attempts or [], lint=rows)
    return [idea for idea in ideas if idea.recipe.transformation == LINT]


def test_what_ruff_would_change_in_functions_becomes_ideas_that_can_be_carried_out(
    rows: dict[str, Any],
) -> None:
    ideas = lint_ideas(rows)

    assert {(i.recipe.params["rule"], i.recipe.symbol) for i in ideas} == {
        ("C404", "pairs"), ("PLR1733", "pairs"), ("PIE810", "Book.starts"),
    }  # fmt: skip
    changed = {i.recipe.params["rule"]: apply_recipe(TEXT, i.recipe) for i in ideas}
    assert "    return {a: b for a, b in rows}\n" in changed["C404"]
    assert (
        "    for name, count in table.items():\n        rows.append((count, count))\n" in changed["PLR1733"]
    )
    assert 'return text.startswith(("a", "b"))' in changed["PIE810"]
    for idea in ideas:
        assert Recipe.from_json(json.loads(json.dumps(idea.recipe.to_json()))) == idea.recipe
        assert idea.hypothesis.count(". ") == 0
        assert ";" not in idea.hypothesis
        assert idea.recipe.params["rule"] in idea.hypothesis
    unsafe = {i.recipe.params["rule"]: "unsafe" in i.hypothesis for i in ideas}
    assert unsafe == {"C404": True, "PLR1733": False, "PIE810": True}


def test_ideas_of_ruff_follow_the_profile_and_the_record_as_all_do(rows: dict[str, Any]) -> None:
    hot = HotSpots((HotFunction("lib/b.py", 12, "starts", 9, 5.0, 5.0),), 5.0)
    assert lint_ideas(rows, hot=hot)[0].recipe.symbol == "Book.starts"

    first = lint_ideas(rows)[0]
    assert first.recipe.key not in {i.recipe.key for i in lint_ideas(rows, [Attempt(first.recipe, 1.0)])}


def test_a_fix_finds_its_text_again_after_others_moved_it_and_fails_where_it_is_gone(
    rows: dict[str, Any],
) -> None:
    recipe = next(i.recipe for i in lint_ideas(rows) if i.recipe.params["rule"] == "C404")

    assert "{a: b for a, b in rows}" in apply_recipe(f"import os\n\n{TEXT}", recipe)
    once = apply_recipe(TEXT, recipe)
    for text in (once, "", TEXT.replace("(a, b) for", "(b, a) for")):
        with pytest.raises(RecipeFailed):
            apply_recipe(text, recipe)


def test_equal_lines_are_different_places() -> None:
    text = "def f(xs):\n    y = list([1])\n    y = list([1])\n    return y\n"
    edits = [
        {"content": "[1]", "location": {"row": row, "column": 9}, "end_location": {"row": row, "column": 18}}
        for row in (2, 3)
    ]
    made = list(
        fixes(text, [{"rule": "C410", "says": "x", "line": 2, "safe": True, "edits": [e]} for e in edits])
    )

    assert [fix.occurrence for fix in made] == [0, 1]
    results = [apply_recipe(text, fix.recipe("a.py", "f")) for fix in made]
    assert results == [
        "def f(xs):\n    y = [1]\n    y = list([1])\n    return y\n",
        "def f(xs):\n    y = list([1])\n    y = [1]\n    return y\n",
    ]


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"x",
        b"{}",
        b"[1]",
        b"[" * 99_999,
        b'[{"filename": "/r/a.py", "code": "C4", "fix": null}]',
        b"\xff",
    ],
)
def test_junk_is_no_fix(output: bytes) -> None:
    assert parse_lint(output, "/r") == {}


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [1],
        [{"content": "x", "location": {"row": 9, "column": 1}, "end_location": {"row": 9, "column": 2}}],
        [{"content": "x", "location": {"row": 1, "column": 8}, "end_location": {"row": 1, "column": 2}}],
        [
            {"content": "x", "location": {"row": 1, "column": 1}, "end_location": {"row": 1, "column": 4}},
            {"content": "y", "location": {"row": 1, "column": 2}, "end_location": {"row": 1, "column": 3}},
        ],
    ],
)
def test_edits_that_do_not_fit_the_text_are_passed_over(edits: list[Any]) -> None:
    row = {"rule": "C4", "says": "x", "line": 1, "safe": True, "edits": edits}
    assert list(fixes("x = 123\n", [row, "junk"])) == []


def test_where_there_is_no_ruff_nothing_is_found(short_dir: Path) -> None:
    assert find_ruff(str(short_dir), str(short_dir)) is None
    program = shutil.which("ruff", path=str(Path(sys.prefix) / "bin"))
    assert program is not None
    (short_dir / "ruff").symlink_to(program)
    assert find_ruff(str(short_dir), "/nowhere") == str(Path(program).resolve())
