"""The house rules that no linter knows: each is one test over the files of the project."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ("protocol", "actors", "daemon", "cli")
FOLDERS = (*CODE, "benchmarks", "systemd", "tests")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# The two places where anything may go wrong: an actor's `handle` and an RPC method.
CATCH_ALL = {"actors/sid_actors/actor.py": 1, "daemon/sid_daemon/rpc/server.py": 1}
MOST_LINES = 400
MOST_WORDS = 600  # of `protocol`: one model after another, which is long but not deep


def _sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_build_files_name_no_host_and_no_place_of_a_machine() -> None:
    files = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "Makefile")]
    files += [*(ROOT / ".ci").iterdir(), *(ROOT / "systemd").iterdir()]
    host = re.compile(r"\w://|git@|\b[\w-]+\.(?:org|com|io|net)\b|(?<![\w~.$)])/(?:root|work|home)\b")
    found = [f"{_name(f)}: {line}" for f in files for line in f.read_text().splitlines() if host.search(line)]

    assert found == []


def test_code_and_docs_name_no_place_of_a_machine() -> None:
    files = [*_sources(*CODE), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    place = re.compile(r"(?<![\w~.])/(?:root|work)/")

    assert [_name(f) for f in files if place.search(f.read_text())] == []


def test_constraints_are_names_and_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()

    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    pinned = {_normal(line.partition("==")[0]) for line in lines}
    extras = PROJECT["optional-dependencies"].values()
    wanted = {_normal(re.split(r"[><=]", need)[0]) for need in sum(extras, PROJECT["dependencies"])}
    assert wanted - pinned == set()


def test_every_dependency_is_imported() -> None:
    code = "\n".join(path.read_text() for path in _sources(*CODE))
    names = [re.split(r"[><=]", need)[0] for need in PROJECT["dependencies"]]

    imported = set(re.findall(r'\b(?:import |from |import_module\(")(\w+)', code))
    assert [name for name in names if name not in imported] == []


def test_everything_is_caught_in_two_places_only() -> None:
    found: Counter[str] = Counter()
    for path in _sources(*CODE):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and _catches_all(node) and not _passes_on(node):
                found[_name(path)] += 1

    assert found == CATCH_ALL


def _most_lines(name: str) -> int:
    if name.startswith("protocol/"):
        return MOST_WORDS
    # A table of cases and a state machine read better whole.
    return 2 * MOST_LINES if name.startswith("tests/") else MOST_LINES


def test_no_file_is_too_long_to_read() -> None:
    lengths = {_name(p): len(p.read_text().splitlines()) for p in _sources(*CODE, "tests", "docs")}
    limits = {name: _most_lines(name) for name in lengths}

    assert {name: lines for name, lines in lengths.items() if lines > limits[name]} == {}


def test_every_ignored_complaint_has_a_reason() -> None:
    marker = re.compile(r"#\s*(?:noqa\b(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?|type:\s*ignore(?:\[[\w, -]+\])?)")
    bare = []
    for path in _sources(*CODE, "tests"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (found := marker.search(line)) and not re.search(
                r"[a-z]{3}", marker.sub("", line[found.start() :])
            ):
                bare.append(f"{_name(path)}:{number}: {line.strip()}")
    rules = re.findall(r'^  "[A-Z]+\d*",.*$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    bare += [f"pyproject.toml: {rule.strip()}" for rule in rules if not re.search(r"# \w+", rule)]

    assert bare == []


@pytest.mark.parametrize("role", ["researcher", "planner", "architect", "critic", "executor"])
def test_every_role_has_a_prompt(role: str) -> None:
    assert (ROOT / f"actors/sid_actors/prompts/{role}.md").read_text().strip()


def test_the_version_has_an_entry_for_its_readers() -> None:
    version = PROJECT["version"]

    assert metadata.version(PROJECT["name"]) == version
    assert re.search(rf"^## \[{re.escape(version)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_says_what_it_is_for_and_points_at_what_is_there(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text()
    named = re.findall(r"`([\w/.]+(?:\.py|\.md|\.service|\.socket|/))`", text)

    assert [name for name in named if not ((ROOT / folder / name).exists() or (ROOT / name).exists())] == []


@pytest.mark.parametrize(
    ("folder", "page"),
    [
        ("actors/sid_actors", "actors/README.md"),
        ("daemon/sid_daemon", "daemon/README.md"),
        ("daemon/sid_daemon/core", "daemon/sid_daemon/core/__init__.py"),
    ],
)
def test_a_map_names_every_module(folder: str, page: str) -> None:
    words = set(re.findall(r"\w+", (ROOT / page).read_text()))
    modules = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}

    assert sorted(modules - words) == []


def test_every_package_ships_its_types() -> None:
    assert [folder for folder in CODE if not (ROOT / folder / f"sid_{folder}" / "py.typed").exists()] == []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(
        k is None or (isinstance(k, ast.Name) and k.id in {"Exception", "BaseException"}) for k in kinds
    )


def _passes_on(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None
