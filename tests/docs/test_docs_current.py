"""What the documentation says is so: generated pages are current, links lead somewhere, commands and settings exist."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel

from sid_cli.main import VERBS
from sid_cli.verbs.help import EXIT_CODES
from sid_protocol.settings import Settings

REPO = Path(__file__).parents[2]
GENERATE = runpy.run_path(str(REPO / "docs" / "generate.py"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()\s]*\))?[^()\s]*)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^(```+)[^\n]*\n.*?^\1\s*$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\bsictl ((?:--?[a-z][a-z-]* )*)([a-z][a-z-]*)\b")
NO_VERB = {"and", "is", "has", "does", "starts", "itself", "alone", "where", "or", "asks", "with", "knows"}
"""Words that follow the name of the program in a sentence."""


def markdown() -> list[Path]:
    listed = subprocess.run(
        ["git", "-C", str(REPO), "ls-files", "--cached", "--others", "--exclude-standard", "-z", "*.md"],
        capture_output=True,
        check=True,
        text=True,
    )
    # A page of the demo's or an example's repository belongs to that one.
    own = [name for name in listed.stdout.split("\0") if name and "/demo_repo/" not in name]
    return [REPO / name for name in own if (REPO / name).is_file()]


PAGES = markdown()


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {anchor(heading) for heading in HEADING.findall(text)}


@pytest.mark.parametrize("path", GENERATE["GENERATED"])
def test_a_generated_page_is_current(path: str) -> None:
    written = (REPO / "docs" / path).read_text(encoding="utf-8")
    assert written == GENERATE["GENERATED"][path](), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (fragment and there.suffix == ".md" and fragment not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_verb_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {verb for _, verb in COMMAND.findall(text)} - NO_VERB
    assert not named - set(VERBS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_picture_is_small(page: Path) -> None:
    pictures = [
        target
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if target.endswith((".png", ".svg"))
    ]
    assert all((page.parent / target).stat().st_size < 150_000 for target in pictures)


def test_every_setting_that_is_set_in_the_documentation_exists() -> None:
    keys = set(Settings.model_fields)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"--set '?([a-z_]+)(?:\.[a-z_.]+)?=", text) + re.findall(
            r"config [gs]et ([a-z_]+)", text
        )
        assert set(named) <= keys, page


def test_a_setting_without_effect_is_read_by_no_code() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("daemon/sid_daemon", "actors/sid_actors")
        for path in (REPO / folder).rglob("*.py")
    )
    keys = GENERATE["settings"].NO_EFFECT
    holders = r"\b(?:settings|measurement|rule|budget|own)"
    read = [key for key in keys if re.search(rf"{holders}\.{key.rpartition('.')[2]}\b", code)]
    assert not read, "take it out of NO_EFFECT in docs/pages/settings.py and run `make docs`"


def test_a_setting_that_is_said_to_have_an_effect_is_read_by_code() -> None:
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("daemon/sid_daemon", "actors/sid_actors")
        for path in (REPO / folder).rglob("*.py")
    )
    keys = set(Settings.model_fields) - GENERATE["settings"].NO_EFFECT
    for name in Settings().model_dump():
        if isinstance(group := getattr(Settings(), name), BaseModel):
            keys |= set(type(group).model_fields)
    unread = [key for key in keys if not re.search(rf"\.{key}\b|[\"']{key}[\"']", code)]
    assert not unread, "put it into NO_EFFECT in docs/pages/settings.py and run `make docs`"


def test_each_log_record_has_the_fields_that_its_row_names() -> None:
    events = GENERATE["events"]
    known: dict[str, set[str]] = {}
    for path in events.emitting():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        words = {
            node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        words |= {
            word.arg for node in nodes if isinstance(node, ast.Call) for word in node.keywords if word.arg
        }
        for name in {name for node in nodes for name, _ in events.named_by(node)}:
            known.setdefault(name, set()).update(words)
    wrong = {}
    for name, row in events.LOG_RECORDS.items():
        fields = re.sub(r"\([^)]*\)", "", row.partition(": ")[2])
        if missing := set(re.findall(r"`([a-z_]+)`", fields)) - known[name]:
            wrong[name] = missing
    assert not wrong, "no module that emits the record knows such a field"


def test_every_folder_of_tests_is_told_of() -> None:
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Tests")[2]
    told = {
        name
        for cells in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`([a-z0-9]+)/`", cells)
    }
    there = {path.parent.name for path in (REPO / "tests").glob("*/test_*.py")}
    assert told == there


def test_the_readme_begins_with_what_it_is_and_stays_short() -> None:
    lines = (REPO / "README.md").read_text(encoding="utf-8").splitlines()
    assert "sictl" in lines[0]
    assert "self-improving daemon" in lines[0]
    assert len(lines) < 150
    assert {"make demo", "make test", "make install"} <= set(re.findall(r"make [a-z]+", "\n".join(lines)))


def test_exit_codes_in_the_reference_are_those_of_help() -> None:
    assert EXIT_CODES in (REPO / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", sorted((REPO / "docs" / "man").iterdir()), ids=lambda page: page.name)
def test_a_manual_page_is_one_that_man_can_show(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    name, _, section = page.name.rpartition(".")
    assert text.startswith(f'.TH "{name.upper()}" "{section}"')
    assert "\n\n" not in text
    assert (
        f'"docs/man/{page.name}" = "share/man/man{section}/{page.name}"'
        in (REPO / "pyproject.toml").read_text()
    )
    assert f"man{section}/{page.name}" in (REPO / "Makefile").read_text()
    if (groff := shutil.which("groff")) is not None:
        done = subprocess.run(
            [groff, "-man", "-Tascii", "-ww", str(page)], capture_output=True, check=True, timeout=60
        )
        assert done.stderr == b""
