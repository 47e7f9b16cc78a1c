"""Where a run stands in the milestones and phases of its `goal.md`. Pure; told to users and agents, it selects nothing.

Both are optional tables under a heading of that name. A milestone has a value of the target metric, a phase has
sub-score targets (`recall >= 0.8, seconds <= 2`); the present one is the first that is not reached. A row whose status
says that it is done is passed, and one that says it is active comes first, since the file is the user's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ACTIVE = frozenset({"active", "current", "in progress", "in_progress"})
DONE = frozenset({"done", "complete", "completed", "reached", "achieved", "met", "passed", "x", "✓", "✅"})
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TARGET = re.compile(rf"([A-Za-z_][\w.-]*)\s*(>=|<=|≥|≤|>|<|=|:)?\s*({_NUMBER})(?![\w.])")


@dataclass(frozen=True, slots=True)
class Standing:
    """The present milestone and phase; None where there is none, or none left."""

    milestone: str | None = None
    phase: str | None = None


def standing(goal: str, best: float, sub_scores: Mapping[str, float], *, higher: bool) -> Standing:
    """Return where a run stands.

    Args:
        goal: Text of `goal.md`.
        best: The incumbent's score.
        sub_scores: The incumbent's sub-scores, by name.
        higher: Whether more is better; for targets that name no direction of their own.
    """
    milestones = (_open_milestone(row, best, higher=higher) for row in table(goal, "milestones"))
    phases = (_open_phase(row, sub_scores, higher=higher) for row in table(goal, "phases"))
    return Standing(
        milestone=next((name for name in milestones if name), None),
        phase=next((name for name in phases if name), None),
    )


def table(text: str, heading: str) -> list[dict[str, str]]:
    """Return the rows of the first Markdown table under a heading, by lowercase column name; active ones first."""
    section = re.search(rf"(?ims)^#{{1,4}}\s*{heading}\s*$\n(.*?)(?=^#{{1,4}}\s|\Z)", text)
    lines = [line.strip() for line in section.group(1).splitlines()] if section else []
    rows = [
        [cell.strip(" `*") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")
    ]
    if len(rows) < 2:
        return []
    names = [name.lower() for name in rows[0]]
    body = [row for row in rows[1:] if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    found = [dict(zip(names, row, strict=False)) for row in body]
    return sorted(found, key=lambda row: row.get("status", "").lower() not in ACTIVE)


def _open_milestone(row: dict[str, str], best: float, *, higher: bool) -> str | None:
    name = next(iter(row.values()), "")
    wanted = next((row[key] for key in ("value", "target", "score", "metric") if key in row), "")
    number = re.search(_NUMBER, wanted)
    if _is_done(row) or (number and _meets(best, "", float(number.group()), higher=higher)):
        return None
    return name


def _open_phase(row: dict[str, str], sub_scores: Mapping[str, float], *, higher: bool) -> str | None:
    name = next(iter(row.values()), "")
    wanted = next((row[key] for key in row if "target" in key), "")
    targets = _TARGET.findall(wanted)
    reached = bool(targets) and all(
        key in sub_scores and _meets(sub_scores[key], sign, float(value), higher=higher)
        for key, sign, value in targets
    )
    return None if reached or _is_done(row) else name


def _is_done(row: dict[str, str]) -> bool:
    return row.get("status", "").lower() in DONE


def _meets(value: float, sign: str, wanted: float, *, higher: bool) -> bool:
    if sign in ("<", ">"):
        return value < wanted if sign == "<" else value > wanted
    if sign in ("<=", "≤"):
        return value <= wanted
    if sign in (">=", "≥"):
        return value >= wanted
    return value >= wanted if higher else value <= wanted
