"""Patterns read as `.gitignore` does; command lines give up every file that they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sid_actors.workbench.checks.named_paths import named_paths
from sid_actors.workbench.checks.patterns import covers, fold, matches
from sid_actors.workbench.checks.seal import SealRules, editable, has_control_characters, in_scope, make_seal
from sid_protocol.settings import Scope
from tests.actors.workbench.conftest import settings_of


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("**", ["a", "a/b", ".x/y"], []),
        ("*.py", ["a.py", "d/a.py", "d/a.py/x"], ["a.pyc", "py"]),
        ("/a.py", ["a.py"], ["d/a.py"]),
        ("./a.py", ["a.py", "d/a.py"], ["b.py"]),
        ("src/*.py", ["src/a.py"], ["src/d/a.py", "a.py", "x/src/a.py"]),
        ("src/**/*.py", ["src/a.py", "src/d/e/a.py"], ["a.py", "xsrc/a.py"]),
        ("**/t/*.json", ["t/a.json", "x/y/t/a.json"], ["t/d/a.json"]),
        ("bench/", ["bench/a", "bench/b/c", "x/bench/a"], ["bench", "benches/a"]),
        ("bench", ["bench", "bench/a"], ["benches"]),
        ("bench/**", ["bench/a", "bench/b/c"], ["bench"]),
        ("a/bench/", ["a/bench/x"], ["bench/x", "x/a/bench/x"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[ab].py", ["a.py"], ["c.py"]),
        ("[!ab].py", ["c.py"], ["a.py", "/.py"]),
        ("[", ["["], ["x"]),
        ("x[z-a]", ["x[z-a]"], ["xz"]),
        (r"\*", ["*"], ["a"]),
        ("a b/ü*", ["a b/ü.txt"], ["a b/u"]),
        ("", [], ["a", ""]),
        ("/", ["a"], []),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(path, [pattern])] == []
    assert [path for path in no if matches(path, [pattern])] == []


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_pattern_crashes_and_double_star_takes_everything(pattern: str, path: str) -> None:
    assert matches(path, [pattern]) in (True, False)
    assert matches(path, ["**"])


def test_a_pattern_covers_a_folder_only_if_nothing_in_it_can_escape() -> None:
    assert covers("bench", ["bench/"])
    assert covers("bench", ["bench/**"])
    assert covers("bench", ["bench/*"])
    assert covers("x/bench", ["bench/"])
    assert not covers("bench", ["bench/*.py"])
    assert not covers("bench", ["*.py"])


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python3 bench.py", {"bench.py"}),
        ("python3 ./tools/bench.py --data=data/x.json", {"tools/bench.py", "data/x.json"}),
        ("python -m pkg.bench", {"pkg/bench.py", "pkg/bench/__main__.py"}),
        ("PYTHONPATH=src python -m pkg", {"src/pkg.py", "src/pkg/__main__.py"}),
        ("python benchdir", {"benchdir/__main__.py"}),
        ("cd sub && python bench.py", {"sub/bench.py"}),
        ("cd sub; ./run.sh <in.txt", {"sub/run.sh", "sub/in.txt"}),
        ("sh -c 'python bench.py | tail -1'", {"bench.py"}),
        ('python "a b.py"', {"a b.py"}),
        ("pytest tests/test_a.py::test_b", {"tests/test_a.py"}),
        ("make bench", {"Makefile", "makefile", "GNUmakefile"}),
        ("cd web && npm run bench", {"web/package.json", "web/.npmrc"}),
        ("nox -s bench", {"noxfile.py"}),
        ("python 'unclosed bench.py", {"bench.py"}),
        ("true", set()),
    ],
)
def test_a_command_gives_up_the_files_it_names(command: str, named: set[str]) -> None:
    assert named <= named_paths(command)


def test_a_command_names_nothing_outside_the_repository() -> None:
    found = named_paths("/usr/bin/python3 ../x.py a/../../y.py .")
    assert all(not path.startswith(("/", "..")) and path != "." for path in found)


TRACKED = (
    "bench.py",
    "app.py",
    "tests/conftest.py",
    "eval/a.json",
    "eval/b/c.json",
    ".github/workflows/ci.yml",
)


def test_the_sealed_set_is_globs_commands_and_harness() -> None:
    seal = make_seal(TRACKED, SealRules.of(settings_of(sealed_files=["eval/"])))
    assert seal.shown == (".github/", "bench.py", "eval/", "tests/conftest.py")
    assert editable(TRACKED, seal, Scope()) == ("app.py",)


def test_scope_by_exact_name_frees_what_steers_but_never_the_users_own_globs() -> None:
    scope = {"include": ["bench.py", "tests/conftest.py", "eval/a.json"]}
    seal = make_seal(TRACKED, SealRules.of(settings_of(sealed_files=["eval/"], scope=scope)))
    assert seal.shown == (".github/", "eval/")
    assert not make_seal(TRACKED, SealRules.of(settings_of(scope={"include": ["*.py"]}))).holds("app.py")
    assert make_seal(TRACKED, SealRules.of(settings_of(scope={"include": ["*.py"]}))).holds("bench.py")


@pytest.mark.parametrize(
    ("path", "held"),
    [
        ("new.py", False),
        ("eval/new.json", True),
        ("eval", True),
        ("Eval/new.json", True),
        ("BENCH.py", True),
        ("bench.py/x", True),
        ("deep/conftest.py", True),
        ("deep/Conftest.py", True),
        ("x.pth", True),
        ("missing.json", True),
        ("naïve.txt", False),
    ],
)
def test_an_added_file_is_held_by_folders_names_and_twins(path: str, held: bool) -> None:
    command = "python3 bench.py missing.json"
    seal = make_seal(TRACKED, SealRules.of(settings_of(sealed_files=["eval/"], benchmark_command=command)))
    assert seal.holds(path, exists=False) is held


def test_twins_by_composition_are_the_same_name() -> None:
    assert fold("BENCH\u00dc.py") == fold("benchu\u0308.py")


def test_scope() -> None:
    scope = Scope(include=["src/"], exclude=["src/gen/"])
    assert in_scope("src/a.py", scope)
    assert not in_scope("src/gen/a.py", scope)
    assert not in_scope("a.py", scope)


@pytest.mark.parametrize("name", ["a\nb", "a\x7f", "a\x1b[31m", "a\u202eb", "\udcff", "a\u2028b"])
def test_control_characters_are_seen(name: str) -> None:
    assert has_control_characters(name)
    assert not has_control_characters("a b ü 日本.py")


def test_nothing_is_added_where_the_user_shares_a_path() -> None:
    values = {"benchmark_paths": ["data/eval", "/abs/data"], "share_paths": ["cache:rw"]}
    seal = make_seal(TRACKED, SealRules.of(settings_of(**values)))
    held = (
        ".sid",
        ".sid/x",
        ".omc",
        ".SID",
        "worktrees",
        "data",
        "data/eval",
        "data/eval/x.json",
        "Data/Eval/x",
        "cache",
        "cache/x",
    )
    assert [
        path for path in (*held, "data/x", "abs/data", "caches", ".omc/x") if seal.holds(path, exists=False)
    ] == [*held]
