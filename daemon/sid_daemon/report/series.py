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
        gain: By how much the branch is better than the baseline, in score units.
        target: The score to be reached, or None.
    """

    goal_slug: str
    metric: str
    direction: str
    baseline: float
    gain: float
    target: float | None = None

    @classmethod
    def of(cls, state: RunState, gain: float) -> Subject:
        """Return what a run's chart is about, beside what its merges gained together."""
        settings = state.settings
        return cls(
            goal_slug=state.goal_slug,
            metric=settings.primary_metric,
            direction=settings.benchmark_direction,
            baseline=state.baseline_score,
            gain=gain,
            target=settings.target_value,
        )


@dataclass(frozen=True, slots=True)
class Dot:
    """One candidate in the chart; `before` is the best score before its round, `gain` what its pairs showed, if scores are noisy."""

    x: float
    iteration: int
    score: float | None
    before: float
    outcome: str
    family: str
    low: float | None = None
    high: float | None = None
    gain: float | None = None


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
    measured = one.get("measurement") or {}
    gain = measured.get("gain")
    outcome = FAILED
    if score is not None:
        ahead = improvement(score, before, direction) if gain is None else gain
        outcome = WORSE if ahead < 0 else NO_GAIN
        outcome = MERGED if one["is_winner"] else outcome
    low, high = _bounds(measured, score, before, direction)
    return Dot(x, int(one["iteration"]), score, before, outcome, one["approach_family"], low, high, gain)


def _bounds(
    measurement: dict[str, Any], score: float | None, before: float, direction: str
) -> tuple[float | None, float | None]:
    """Return the interval of a candidate's gain in score units around its score, where both ends are known.

    Around its score and not from the best one: that was measured on another day.
    """
    low, high = measurement.get("ci") or (None, None)
    gain = measurement.get("gain")
    if low is None or high is None or gain is None or score is None:
        return None, None
    unit = abs(before) if direction == "higher_is_better" else -abs(before)
    ends = sorted((score + unit * (low - gain), score + unit * (high - gain)))
    return ends[0], ends[1]
