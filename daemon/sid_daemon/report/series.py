"""The step chart as data: what every candidate scored, and the best score so far, as a Vega-Lite specification.

Called for `plot`, for `progress.png` and by the page. Pure: raw data and state in, a JSON-like dict out; `chart`
draws it. Nothing is left out: a candidate without a score is a mark in the strip below, one far off the scale
stands at its edge and the subtitle says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sid_daemon.core.state import RunState
from sid_daemon.core.wording import one_line
from sid_daemon.figures import difference, improvement, percentage
from sid_protocol.records import FAMILIES

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"  # the specification's name, never fetched
# Okabe and Ito's palette, told apart by colour-blind readers, too; grey and its kin for the rest.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#7f7f7f")
MORE_COLOURS = ("#5254a3", "#637939", "#ad494a", "#a55194")
MERGED, NO_GAIN, WORSE, FAILED = "merged", "no gain", "worse", "failed"
SHAPES = {MERGED: "diamond", NO_GAIN: "circle", WORSE: "triangle-down"}
# Scores further away than this many spans of the line are drawn at the edge: one wild candidate would
# flatten everything else.
EDGE_SPANS = 0.75
TARGET_SPANS = 3.0
"""A target further away than this many spans is told of, not drawn."""
HEIGHT = 380
LABEL_WIDTH, LABEL_HEIGHT = 62, 15
SPREAD = 0.7
"""Share of a round's width over which its candidates are spread."""


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


def series(entries: Sequence[str], baseline: float, direction: str) -> Series:
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


def step_chart(entries: Sequence[str], state: RunState, *, width: int = 900) -> dict[str, Any]:
    """Return the step chart of a run as a Vega-Lite specification.

    Args:
        entries: Entries of `tracking/raw_data.json`, in order.
        state: The run: its goal, metric, baseline and target.
        width: Of the drawing area, in pixels.
    """
    settings = state.settings
    shown = series(entries, state.baseline_score, settings.benchmark_direction)
    target = settings.target_value
    low, high = _scale(shown, state.baseline_score, target)
    families = sorted({dot.family for dot in shown.dots}, key=_family_rank)
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"domain": [shown.line[0][0] - 0.25, shown.rounds + 0.5], "nice": False, "zero": False},
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": [low, high], "zero": False, "nice": False},
        "axis": {"title": _metric(settings.primary_metric, settings.benchmark_direction), "format": ".6~g"},
    }
    colour = {
        "field": "family",
        "type": "nominal",
        "scale": {"domain": families, "range": [_colour(name) for name in families]},
        "legend": {"title": "family"} if families else None,
    }
    hidden = {**x, "axis": {"labels": False, "ticks": False, "title": None, "values": _ticks(shown)}}
    rug = {**x, "axis": {"title": "round", "values": _ticks(shown), "format": "d", "tickMinStep": 1}}
    return {
        "$schema": SCHEMA,
        "background": "white",
        "padding": 12,
        "title": _title(shown, state, low, high),
        "spacing": 4,
        "vconcat": [
            {
                "width": width,
                "height": HEIGHT,
                "layer": [
                    *_rules(state.baseline_score, target, low, high),
                    *_line(shown, hidden, y),
                    *_dots(shown, hidden, y, colour, low, high),
                    *_labels(shown, hidden, y, settings.benchmark_direction, width),
                ],
            },
            _rug(shown, rug, colour, width),
        ],
        "config": _config(),
    }


def _metric(name: str, direction: str) -> str:
    better = "higher" if direction == "higher_is_better" else "lower"
    return f"{one_line(name, 40)} ({better} is better)"


def _ticks(shown: Series) -> list[int]:
    """Return the rounds that the axis names: all of few, every fifth, tenth and so on of many."""
    first = int(shown.line[0][0])
    count = shown.rounds - first
    every = next((step for step in (1, 2, 5, 10, 20, 50, 100) if count / step <= 25), 200)
    return [n for n in range(first, shown.rounds + 1) if n % every == 0]


def _family_rank(name: str) -> tuple[int, str]:
    return (FAMILIES.index(name) if name in FAMILIES else len(FAMILIES), name)


def _colour(name: str) -> str:
    if name in FAMILIES:
        return COLOURS[FAMILIES.index(name)]
    return MORE_COLOURS[sum(name.encode()) % len(MORE_COLOURS)]


def _scale(shown: Series, baseline: float, target: float | None) -> tuple[float, float]:
    """Return the lowest and highest score that is drawn where it belongs."""
    line = [baseline, *(best for _, best in shown.line)]
    scores = [dot.score for dot in shown.dots if dot.score is not None]
    least, most = min(line), max(line)
    span = most - least
    if span == 0:
        near = [abs(score - baseline) for score in scores if score != baseline]
        span = min(near, default=0.0) or abs(baseline) * 0.1 or 1.0
    if target is not None and least - TARGET_SPANS * span <= target <= most + TARGET_SPANS * span:
        least, most = min(least, target), max(most, target)
    edges = least - EDGE_SPANS * span, most + EDGE_SPANS * span
    shown_at = [least, most, *(min(max(score, edges[0]), edges[1]) for score in scores)]
    room = 0.06 * (max(shown_at) - min(shown_at) or span)
    low = min(shown_at) - room
    if min([least, *scores]) >= 0:
        low = max(low, 0.0)  # an axis below zero would suggest scores that cannot be
    return low, max(shown_at) + room


def _title(shown: Series, state: RunState, low: float, high: float) -> dict[str, Any]:
    best, baseline = shown.line[-1][1], state.baseline_score
    gain = improvement(best, baseline, state.settings.benchmark_direction)
    share = percentage(gain, baseline)
    change = "" if share == "n/a" else f" ({'+' if gain > 0 else ''}{share} %)"
    counts = {name: sum(dot.outcome == name for dot in shown.dots) for name in (*SHAPES, FAILED)}
    rounds, candidates = len({dot.iteration for dot in shown.dots}), len(shown.dots)
    told = [
        f"{rounds} round{'' if rounds == 1 else 's'}",
        f"{candidates} candidate{'' if candidates == 1 else 's'}",
    ]
    told += [f"{count} {name}" for name, count in counts.items() if count]
    off = sum(dot.score is not None and not low <= dot.score <= high for dot in shown.dots)
    if off:
        told.append(f"{off} off the scale, drawn at its edge")
    target = state.settings.target_value
    if target is not None and not low <= target <= high:
        told.append(f"target {target:g} is off the scale")
    return {
        "text": f"{one_line(state.goal_slug.replace('_', ' '), 80)}: {baseline:g} → {best:g}{change}",
        "subtitle": " · ".join(told),
        "anchor": "start",
        "offset": 14,
    }


def _values(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {"values": list(rows)}


def _rules(baseline: float, target: float | None, low: float, high: float) -> list[dict[str, Any]]:
    rows = [{"y": baseline, "told": f"baseline {baseline:g}", "colour": "#888888"}]
    if target is not None and low <= target <= high:
        rows.append({"y": target, "told": f"target {target:g}", "colour": "#1a9641"})
    y = {"field": "y", "type": "quantitative"}
    colour = {"field": "colour", "type": "nominal", "scale": None}
    return [
        {
            "data": _values(rows),
            "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.2},
            "encoding": {"y": y, "color": colour},
        },
        {
            "data": _values(rows),
            "mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": -4, "dy": -3},
            "encoding": {
                "y": y,
                "x": {"value": "width"},
                "text": {"field": "told"},
                "color": colour,
            },
        },
    ]


def _line(shown: Series, x: dict[str, Any], y: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{"x": at, "y": best} for at, best in shown.line]
    return [
        {
            "data": _values(rows),
            "mark": {"type": "line", "interpolate": "step-after", "color": "#222222", "strokeWidth": 2},
            "encoding": {"x": x, "y": y},
        }
    ]


def _dots(
    shown: Series, x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any], low: float, high: float
) -> list[dict[str, Any]]:
    scored = [dot for dot in shown.dots if dot.score is not None]
    rows = [
        {
            "x": dot.x,
            "y": min(max(dot.score or 0.0, low), high),
            "outcome": dot.outcome,
            "family": dot.family,
            "low": None if dot.low is None else min(max(dot.low, low), high),
            "high": None if dot.high is None else min(max(dot.high, low), high),
        }
        for dot in scored
    ]
    outcomes = [name for name in SHAPES if any(dot.outcome == name for dot in scored)]
    shape = {
        "field": "outcome",
        "type": "nominal",
        "scale": {"domain": outcomes, "range": [SHAPES[name] for name in outcomes]},
        "legend": {"title": "outcome"} if outcomes else None,
    }
    with_interval = [row for row in rows if row["low"] is not None and row["high"] is not None]
    whiskers = {
        "data": _values(with_interval),
        "mark": {"type": "rule", "opacity": 0.45, "strokeWidth": 1.5},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
    }
    points = {
        "data": _values(rows),
        "mark": {"type": "point", "filled": True, "stroke": "white", "strokeWidth": 0.8, "opacity": 0.9},
        "encoding": {
            "x": x,
            "y": y,
            "shape": shape,
            "color": colour,
            "size": {
                "condition": {"test": f"datum.outcome === '{MERGED}'", "value": 190},
                "value": 75,
            },
        },
    }
    return [*([whiskers] if with_interval else []), points]


def _labels(
    shown: Series, x: dict[str, Any], y: dict[str, Any], direction: str, width: int
) -> list[dict[str, Any]]:
    """Return the gain beside each merge; where two labels would meet, the larger gain has its own."""
    wins = [dot for dot in shown.dots if dot.outcome == MERGED and dot.score is not None]
    (left, right), (low, high) = x["scale"]["domain"], y["scale"]["domain"]
    taken: list[tuple[float, float]] = []
    rows = []
    for dot in sorted(wins, key=lambda one: -improvement(one.score or 0.0, one.before, direction)):
        at = (dot.x - left) / (right - left) * width, ((dot.score or 0.0) - low) / (high - low) * HEIGHT
        if all(abs(at[0] - x0) > LABEL_WIDTH or abs(at[1] - y0) > LABEL_HEIGHT for x0, y0 in taken):
            taken.append(at)
            rows.append({"x": dot.x, "y": dot.score, "told": _told(dot, direction)})
    # A win lies on the line's outer side of everything before it, so there its label is free.
    up = direction == "higher_is_better"
    mark = {
        "type": "text",
        "align": "right",
        "baseline": "bottom" if up else "top",
        "dx": -5,
        "dy": -6 if up else 7,
        "fontWeight": "bold",
        "color": "#222222",
    }
    encoding = {"x": x, "y": y, "text": {"field": "told"}}
    return [{"data": _values(rows), "mark": mark, "encoding": encoding}] if rows else []


def _told(dot: Dot, direction: str) -> str:
    gain = improvement(dot.score or 0.0, dot.before, direction)
    share = percentage(gain, dot.before)
    if share == "n/a":
        return f"{difference(dot.score or 0.0, dot.before):+g}"
    return f"{'+' if gain > 0 else ''}{share} %"


def _rug(shown: Series, x: dict[str, Any], colour: dict[str, Any], width: int) -> dict[str, Any]:
    rows = [{"x": dot.x, "family": dot.family} for dot in shown.dots if dot.outcome == FAILED]
    middle = {"value": 11}
    return {
        "width": width,
        "height": 22,
        "layer": [
            {
                "data": _values(rows),
                "mark": {"type": "point", "shape": "cross", "angle": 45, "size": 70, "filled": True},
                "encoding": {"x": x, "y": middle, "color": {**colour, "legend": None}},
            },
            {
                "data": _values([{"told": FAILED}]),
                "mark": {"type": "text", "align": "right", "baseline": "middle", "color": "#666666"},
                "encoding": {"x": {"value": -8}, "y": middle, "text": {"field": "told"}},
            },
        ],
    }


def _config() -> dict[str, Any]:
    return {
        "font": "Liberation Sans, Arial, sans-serif",
        "title": {"fontSize": 16, "subtitleFontSize": 12, "subtitleColor": "#666666", "subtitlePadding": 5},
        "axis": {
            "labelFontSize": 12,
            "titleFontSize": 12,
            "gridColor": "#eeeeee",
            "titleFontWeight": "normal",
        },
        "axisX": {"grid": False},
        "legend": {"labelFontSize": 12, "titleFontSize": 12, "symbolOpacity": 1},
        "view": {"stroke": "#dddddd"},
        "text": {"fontSize": 11},
    }
