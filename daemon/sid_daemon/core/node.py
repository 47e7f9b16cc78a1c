"""The rules of a node: when its run has passed, what a judge said, and which violations become lessons. Pure.

A node is a folder with a prompt, a judge and its lessons (`BANS.md`); any program that reads a prompt and writes an answer
is its model. The contract is that of the seeds' self-improving nodes. A node's lessons have no probes: they stand
in a file that is the user's to edit, and leave by the user's hand alone. Carried out by `sid_daemon.nodes`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sid_daemon.core.longterm.lessons import promoted_by_runs
from sid_daemon.core.wording import one_line

NodeStatus = Literal["passed", "failed", "hard_cap", "aborted"]
PASS_SCORE = 0.9
HARD_CAP = 12
"""Turns of one run where `hard-cap.txt` says nothing else."""
KEY_LIMIT = 80
_BAN = re.compile(r"^- `([^`]+)`", re.MULTILINE)
_BLOCKED = re.compile(r"^BLOCKED:.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a judge said of one turn: a score from 0 to 1, and the rules that were violated."""

    score: float
    violations: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the run is done."""
        return self.score >= PASS_SCORE and not self.violations


@dataclass(frozen=True, slots=True)
class Ban:
    """A violation that becomes a lesson: in how many runs it was seen, and in which last."""

    key: str
    runs: int
    example: str


def read_judged(lines: str) -> Judged:
    """Return what a judge said, from the lines that it added to the events.

    Raises:
        ValueError: it said nothing, or not what a judge has to say.
    """
    found = [event for event in _events(lines) if event.get("type") == "judge_result"]
    if len(found) != 1:
        raise ValueError(f"the judge wrote {len(found) or 'no'} judge_result events, one is needed")
    score, violations = found[0].get("score"), found[0].get("violations", [])
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"the judge's score is {score!r}, not a number from 0 to 1")
    if not isinstance(violations, list) or not all(isinstance(one, str) for one in violations):
        raise ValueError("the judge's violations are no list of strings")
    return Judged(float(score), tuple(dict.fromkeys(filter(None, map(key_of, violations)))))


def key_of(text: str) -> str:
    """Return a violation as a key: one line that can stand between backquotes."""
    return one_line(text, KEY_LIMIT).replace("`", "'")


def violations_of(events: str) -> frozenset[str]:
    """Return the violations of a run, from all its events; a line that is none is passed over."""
    found = (event.get("violations", []) for event in _events(events) if event.get("type") == "judge_result")
    return frozenset(
        key_of(one) for listed in found if isinstance(listed, list) for one in listed if isinstance(one, str)
    ) - {""}


def _events(text: str) -> Iterable[dict[str, object]]:
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event


def bans_in(text: str) -> frozenset[str]:
    """Return the keys of the lessons that a `BANS.md` has."""
    return frozenset(_BAN.findall(text))


def promoted(
    runs: Sequence[tuple[str, frozenset[str]]], known: frozenset[str], *, window: int, threshold: int
) -> list[Ban]:
    """Return the violations that become lessons, sorted; one that is known is none.

    Args:
        runs: Id and violations of each run, the newest first.
        known: The lessons that there are.
        window: Runs looked back upon.
        threshold: Distinct runs in which a violation makes a lesson.
    """
    recent = runs[:window]
    counts = Counter(key for _, violations in recent for key in violations)
    return [
        Ban(key, count, next(run for run, violations in recent if key in violations))
        for key, count in sorted(counts.items())
        if key not in known and promoted_by_runs(count, threshold)
    ]


def ban_line(ban: Ban, window: int) -> str:
    """Return a lesson as a line of `BANS.md`."""
    return f"- `{ban.key}` — promoted from {ban.runs} of last {window} runs (example: {ban.example})"


def blocked(output: str) -> str | None:
    """Return the line with which a model says that it cannot go on, or None."""
    found = _BLOCKED.search(output)
    return found[0][:200] if found else None


def prompt_of(prompt: str, bans: str, seed: str, state: str, number: int) -> str:
    """Return the whole prompt of one turn."""
    parts = (
        prompt.strip(),
        f"## Lessons of earlier runs (BANS.md)\n\n{bans.strip() or 'None yet.'}",
        f"## Seed\n\n{seed.strip()}",
        f"## State before round {number}\n\n{state.strip() or 'Empty.'}",
    )
    return "\n\n".join(parts) + "\n"
