"""Changes that the program ruff proposes: its fixable rules about speed, as a further source of ideas.

Pure: builds the command and reads what it printed. The program is looked for on PATH and beside our interpreter,
never imported; without it this source has nothing to say. A fix travels as the text that it replaces and the text
that it puts there, so that carrying it out needs no ruff.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sid_actors.backends.local.recipe import Recipe, RecipeFailed

LINT = "lint"
"""The transformation of a recipe that carries out a fix of ruff's."""

_RULES = ("PERF", "C4", "SIM118", "PIE810", "PLR1714", "PLR1733", "PLR1736", "RUF015", "RUF017")
_WIDEST = 4000  # characters that one fix may replace or put there; more is a rewrite, not a hypothesis
# Rules whose change an entry of the catalogue proposes, too, and proves.
_TWINS = {"C419": "no_temporary", "C414": "no_temporary", "C403": "no_temporary", "SIM118": "dict_once"}
_OFTEN = frozenset(
    {"RUF017", "PERF101", "PERF102", "PLR1733", "PLR1736", "RUF015"}
)  # of work that a loop repeats


@dataclass(frozen=True, slots=True)
class Fix:
    """One change that ruff proposes.

    Attributes:
        rule: Ruff's code.
        line: Where it starts.
        says: What ruff says of it, one clause.
        safe: Ruff is sure that the meaning stays.
        old: The text that it replaces.
        occurrence: Which of the equal texts in the file, from 0.
        new: What is put there.
    """

    rule: str
    line: int
    says: str
    safe: bool
    old: str
    occurrence: int
    new: str

    @property
    def family(self) -> Literal["optimization", "architecture"]:
        """The approach family: work saved in loops, or a plainer expression."""
        return "optimization" if self.rule in _OFTEN else "architecture"

    @property
    def twin(self) -> str:
        """The entry of the catalogue that proposes the same, if any."""
        return _TWINS.get(self.rule, "")

    def recipe(self, path: str, symbol: str) -> Recipe:
        """Return the fix as a recipe."""
        params = {"rule": self.rule, "old": self.old, "new": self.new, "occurrence": self.occurrence}
        return Recipe(LINT, path, symbol, params)


def find_ruff(path: str, prefix: str) -> str | None:
    """Return the program, from PATH or from the environment at `prefix`, links followed; None without one."""
    found = shutil.which("ruff", path=path) or shutil.which("ruff", path=str(Path(prefix) / "bin"))
    return str(Path(found).resolve()) if found else None


def lint_argv(ruff: str) -> tuple[str, ...]:
    """Return the command that looks at the working directory, whatever the repository has configured."""
    quiet = ("--isolated", "--no-cache", "--quiet", "--exit-zero", "--output-format", "json")
    return (ruff, "check", *quiet, "--select", ",".join(_RULES), ".")


def parse_lint(output: bytes, root: str) -> dict[str, list[dict[str, Any]]]:
    """Return path → fixes as ruff printed them (rule, message, edits); nothing for junk.

    Args:
        output: What ruff printed.
        root: The folder that it looked at; what lies elsewhere is left out.
    """
    try:
        rows = json.loads(output)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows if isinstance(rows, list) else []:
        match row:
            case {
                "filename": str(name),
                "code": str(rule),
                "message": str(says),
                "location": {"row": int(line)},
                "fix": {"edits": list(edits), "applicability": str(how)},
            } if name.startswith(f"{root}/"):
                fix = {"rule": rule, "says": says, "line": line, "safe": how == "safe", "edits": edits}
                found.setdefault(name.removeprefix(f"{root}/"), []).append(fix)
            case _:
                pass
    return found


def fixes(text: str, rows: object) -> Iterator[Fix]:
    """Yield the fixes for one file that fit its text and leave it Python."""
    lines = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]
    for row in rows if isinstance(rows, list) else []:
        match row:
            case {
                "rule": str(rule),
                "says": str(says),
                "line": int(line),
                "safe": bool(safe),
                "edits": list(edits),
            }:
                spans = [_span(edit, lines, len(text)) for edit in edits]
                known = [span for span in spans if span is not None]
                change = _joined(text, known) if known and len(known) == len(spans) else None
                if change is not None:
                    said = " ".join(says.split()).rstrip(".")
                    yield Fix(rule, line, said, safe, *change)
            case _:
                pass


def apply_fix(text: str, params: Mapping[str, Any]) -> str:
    """Return the text after a fix.

    Raises:
        RecipeFailed: what it replaces is not there any more, or the result is no Python.
    """
    match params:
        case {"old": str(old), "new": str(new), "occurrence": int(occurrence)} if old:
            at = _place(text, old, occurrence)
        case _:
            raise RecipeFailed("a fix has the texts old and new, and the number occurrence")
    if at < 0:
        raise RecipeFailed("the text is not as it was when this was proposed")
    changed = text[:at] + new + text[at + len(old) :]
    try:
        ast.parse(changed)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RecipeFailed(f"the result is no Python: {type(error).__name__}") from error
    if changed == text:
        raise RecipeFailed("nothing would change")
    return changed


def _span(edit: object, lines: list[int], length: int) -> tuple[int, int, str] | None:
    match edit:
        case {
            "content": str(content),
            "location": {"row": int(row), "column": int(column)},
            "end_location": {"row": int(last), "column": int(end)},
        } if 1 <= row <= len(lines) and 1 <= last <= len(lines):
            start, stop = lines[row - 1] + column - 1, lines[last - 1] + end - 1
            return (start, stop, content) if 0 <= start <= stop <= length else None
        case _:
            return None


def _joined(text: str, edits: list[tuple[int, int, str]]) -> tuple[str, int, str] | None:
    """Return the edits as one: old text, which of its kind, new text; None where that is too wide or unclear."""
    edits = sorted(edits)
    at, stop = edits[0][0], max(end for _, end, _ in edits)
    new, last = "", at
    for start, end, content in edits:
        if start < last:
            return None
        new += text[last:start] + content
        last = end
    # an edit that only adds needs something that it can be found by: its whole lines
    at = text.rfind("\n", 0, at) + 1
    ends = text.find("\n", stop)
    stop_line = ends if ends >= 0 else len(text)
    old, made = text[at:stop_line], text[at : edits[0][0]] + new + text[last:stop_line]
    if not old or len(old) > _WIDEST or len(made) > _WIDEST:
        return None
    occurrence = text[:at].count(old)
    return (old, occurrence, made) if _place(text, old, occurrence) == at else None


def _place(text: str, old: str, occurrence: int) -> int:
    """Return where the `occurrence`-th `old` starts, counted without overlap; -1 if there are not so many."""
    at = -len(old)
    for _ in range(occurrence + 1):
        at = text.find(old, at + len(old))
        if at < 0:
            return -1
    return at
