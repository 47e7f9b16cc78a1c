"""What the step chart shows: every candidate's score, and the best score so far.

Called by `vega`, which makes a specification of it, in the process that draws. Pure: raw data in, frozen data out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sid_daemon.figures import improvement

if TYPE_CHECKING:
    from sid_daemon.core.state import RunState

MERGED, NO_GAIN, WORSE, FAILED = "merged", "no gain", "worse", "failed"
SPREAD = 0.7
"""Share of a round's width over which its candidates are spread."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a chart is about.

    Attributes:
        goal_slug: The run's goal.
        metric: Name of its metric.
        direction: Of the metric.
        baseline: The baseline's score.
        target: The score to be reached, or None.
    """

    goal_slug: str
    metric: str
    direction: str
    baseline: float
    target: float | None = None

    @classmethod
    def of(cls, state: RunState) -> Subject:
        """Return what a run's chart is about."""
        settings = state.settings
        return cls(
            goal_slug=state.goal_slug,
            metric=settings.primary_metric,
            direction=settings.benchmark_direction,
            baseline=state.baseline_score,
            target=settings.target_value,
        )


@dataclass(frozen=True, slots=True)
class Dot:
    """One candidate in the chart; `before` is the best score before its round."""

    x: float
    iteration: int
    score: float | None
    before: float
    outcome: str
    family: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """What is drawn.

    Attributes:
        dots: Every candidate, in order.
        line: `(x, best score)` from the baseline on, a step at each merge.
        rounds: The last round.
    """

    dots: tuple[Dot, ...]
    line: tuple[tuple[float, float], ...]
    rounds: int


def series(entries: Iterable[str], baseline: float, direction: str) -> Series:
    """Return what raw data tell.

    Args:
        entries: Entries of `tracking/raw_data.json`, in order.
        baseline: The baseline's score.
        direction: Of the metric.
    """
    raw = [json.loads(entry) for entry in entries]
    by_round: dict[int, list[dict[str, Any]]] = {}
    for one in raw:
        by_round.setdefault(int(one["iteration"]), []).append(one)
    dots: list[Dot] = []
    first = min(by_round, default=1) - 1
    line, best = [(float(first), baseline)], baseline
    for iteration, candidates in sorted(by_round.items()):
        won = best
        for number, one in enumerate(candidates):
            dot = _dot(one, _place(iteration, number, len(candidates)), best, direction)
            dots.append(dot)
            if dot.outcome == MERGED and dot.score is not None:
                won = dot.score
                line.append((dot.x, won))
        best = won
    last = max(by_round, default=first + 1)
    line.append((last + 0.5, best))
    return Series(tuple(dots), tuple(line), last)


def _place(iteration: int, number: int, of: int) -> float:
    return round(iteration + SPREAD * ((number + 0.5) / of - 0.5), 4)


def _dot(one: dict[str, Any], x: float, before: float, direction: str) -> Dot:
    score = one["benchmark_score"]
    outcome = FAILED
    if score is not None:
        outcome = WORSE if improvement(score, before, direction) < 0 else NO_GAIN
        outcome = MERGED if one["is_winner"] else outcome
    low, high = _bounds(one.get("measurement") or {}, before, direction)
    return Dot(x, int(one["iteration"]), score, before, outcome, one["approach_family"], low, high)


def _bounds(measurement: dict[str, Any], before: float, direction: str) -> tuple[float | None, float | None]:
    """Return the interval of a candidate's gain in score units, where both ends are known."""
    low, high = measurement.get("ci") or (None, None)
    if low is None or high is None:
        return None, None
    sign = 1 if direction == "higher_is_better" else -1
    ends = sorted((before + sign * low * abs(before), before + sign * high * abs(before)))
    return ends[0], ends[1]
