"""The interview of `init`: how clear a goal is, what to ask next, what an answer means.

Pure; `verbs/init` asks and prints. Four dimensions (objective, metric, target, scope) are scored from 0 to 100, and the
weakest is asked about, one question at a time, until each is at least 80; after 8 questions only about what is
hardly known, never more than 12.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Dimension = Literal["objective", "metric", "target", "scope"]
Field = Literal["objective", "benchmark", "format", "direction", "target", "scope"]

DIMENSIONS: tuple[Dimension, ...] = ("objective", "metric", "target", "scope")
ENOUGH = 80
HARDLY = 50
SOFT_CAP = 8
HARD_CAP = 12

_LESS = re.compile(
    r"\b(fewer|less|lower|reduce|shrink|smaller|time|latency|seconds|memory|bytes|size|cost|loss|error)\b",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\b(accuracy|higher|improve|increase|maximi[sz]e|more|ops|precision|raise|recall|score|throughput)\b",
    re.IGNORECASE,
)
_SPEED = re.compile(
    r"\b(fast|faster|quick|quicker|speed|speedup|cheaper|better|optimi[sz]e)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is known so far.

    Attributes:
        objective: What is to get better.
        objective_known: Whether an existing track has a goal already.
        benchmark: The command that measures it.
        metric_known: Whether an existing track measures already.
        format: json, number, pass_fail or regex:PATTERN.
        direction: higher or lower; empty where nobody said.
        target: The value that would be enough.
        target_known: Whether somebody said, even if only that there is none.
        scope: Globs of files that may change.
        scope_known: Whether somebody said, even if only that all may.
    """

    objective: str = ""
    objective_known: bool = False
    benchmark: str = ""
    metric_known: bool = False
    format: str = ""
    direction: str = ""
    target: float | None = None
    target_known: bool = False
    scope: tuple[str, ...] = ()
    scope_known: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask: the dimension it is for, the field an answer fills, the words, what Enter means."""

    dimension: Dimension
    field: Field
    text: str
    default: str = ""


def scores(goal: Goal) -> dict[Dimension, int]:
    """Return how clear each dimension is, 0 to 100."""
    words = re.findall(r"\w+", goal.objective)
    quality = any(kind.search(goal.objective) for kind in (_LESS, _MORE, _SPEED))
    # A wish (20), a quality that can be measured (30), and of what: two more words (30), a whole sentence (20).
    objective = 20 * (len(words) > 0) + 30 * quality + 30 * (len(words) >= 3) + 20 * (len(words) >= 5)
    metric = 50 * bool(goal.benchmark) + 25 * bool(goal.format) + 25 * bool(goal.direction)
    if goal.format == "pass_fail" and goal.benchmark:
        metric = 100  # it passes or it does not: there is only one direction
    return {
        "objective": 100 if goal.objective_known else min(100, objective),
        "metric": 100 if goal.metric_known else metric,
        "target": 100 if goal.target_known or goal.target is not None else 0,
        "scope": 100 if goal.scope_known or goal.scope else 0,
    }


def next_question(goal: Goal, asked: int, offers: Sequence[str] = ()) -> Question | None:
    """Return the question about the weakest dimension, or None if enough is known or enough was asked.

    Args:
        goal: What is known.
        asked: How many questions there have been.
        offers: Commands that the repository already has for measuring, best first.
    """
    if asked >= HARD_CAP:
        return None
    known = scores(goal)
    bar = ENOUGH if asked < SOFT_CAP else HARDLY
    open_dimensions = [dimension for dimension in DIMENSIONS if known[dimension] < bar]
    if not open_dimensions:
        return None
    weakest = min(open_dimensions, key=lambda dimension: (known[dimension], DIMENSIONS.index(dimension)))
    return _question(weakest, goal, offers)


def _question(dimension: Dimension, goal: Goal, offers: Sequence[str]) -> Question:
    match dimension:
        case "objective":
            text = "What is to get better, and of what?"
            if goal.objective:
                text = f"{goal.objective!r}: of what exactly? Say it in a sentence, such as 'make the parser faster'."
            return Question("objective", "objective", text)
        case "metric":
            return _metric_question(goal, offers)
        case "target":
            return Question(
                "target", "target", "Which value would be enough? Enter: as far as it goes.", "none"
            )
        case "scope":
            text = "Which files may change? Globs such as src/**, Enter: all but those that are sealed."
            return Question("scope", "scope", text, "**")


def _metric_question(goal: Goal, offers: Sequence[str]) -> Question:
    if not goal.benchmark:
        text = "Which command measures it? It runs in a clean checkout and ends with its score."
        if offers:
            listed = "\n".join(f"  {number}) {offer}" for number, offer in enumerate(offers, 1))
            text = f"{text} Found here:\n{listed}\nA number or a command."
        return Question("metric", "benchmark", text, "1" if offers else "")
    if not goal.format:
        text = 'How does it tell the score? json (last line {"primary": 1.5}), number (last line), pass_fail, or regex:PATTERN.'
        return Question("metric", "format", text, "number")
    return Question(
        "metric", "direction", "Is a higher or a lower value better?", guess_direction(goal.objective)
    )


def guess_direction(objective: str) -> str:
    """Return `higher` or `lower` where the objective's words say so, else nothing: a wrong guess costs a run."""
    less, more = bool(_LESS.search(objective)), bool(_MORE.search(objective))
    if less == more:
        return ""
    return "lower" if less else "higher"


def answered(goal: Goal, question: Question, answer: str, offers: Sequence[tuple[str, str]] = ()) -> Goal:
    """Return what is known after an answer; an empty one means the question's default.

    Args:
        goal: What was known.
        question: What was asked.
        answer: What was typed.
        offers: Command and format of each offer, as listed.

    Raises:
        ValueError: the answer does not fit; the message says what would.
    """
    text = answer.strip() or question.default
    match question.field:
        case "objective":
            return replace(goal, objective=text) if text else goal
        case "benchmark":
            if text.isascii() and text.isdigit() and 1 <= int(text) <= len(offers):
                command, form = offers[int(text) - 1]
                return replace(goal, benchmark=command, format=goal.format or form)
            return replace(goal, benchmark=text) if text else goal
        case "format":
            if text not in ("json", "number", "pass_fail") and not text.startswith("regex:"):
                raise ValueError("json, number, pass_fail, or regex: and a pattern")
            return replace(goal, format=text)
        case "direction":
            word = text.lower()
            if not word or not ("higher".startswith(word) or "lower".startswith(word)):
                raise ValueError("higher or lower")
            return replace(goal, direction="higher" if word[0] == "h" else "lower")
        case "target":
            return replace(goal, target=_target(text), target_known=True)
        case "scope":
            globs = tuple(part for part in re.split(r"[\s,]+", text) if part and part != "**")
            return replace(goal, scope=globs, scope_known=True)


def _target(text: str) -> float | None:
    if text.lower() in ("none", "no", "-"):
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("a number, or Enter for as far as it goes")
    return value
