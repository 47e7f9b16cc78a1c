"""The step chart as a Vega-Lite specification.

Called by `chart`, in the process that draws it. Pure: raw data and what the run is about in, a JSON-like dict out.
Nothing is left out that could be seen: a candidate without a score is a mark in the strip below, one far off the scale
stands at its edge and the subtitle says so; of marks that would lie on each other, the last is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from sid_daemon.core.wording import one_line, percent
from sid_daemon.figures import difference, improvement, percentage
from sid_daemon.report.series import FAILED, MERGED, NO_GAIN, WORSE, Dot, Series, Subject, series
from sid_protocol.records import FAMILIES

T = TypeVar("T")

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"  # the specification's name, never fetched
# Okabe and Ito's palette, told apart by colour-blind readers, too; grey and its kin for the rest.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6d31", "#7f7f7f")
MORE_COLOURS = ("#5254a3", "#637939", "#ad494a", "#a55194")
SHAPES = {MERGED: "diamond", NO_GAIN: "circle", WORSE: "triangle-down"}
# Scores further away than this many spans of the line are drawn at the edge: one wild candidate would
# flatten everything else.
EDGE_SPANS = 0.75
TARGET_SPANS = 3.0
"""A target further away than this many spans is told of, not drawn."""
WIDTH, HEIGHT = 900, 380
"""Of the drawing area, in pixels."""
LABEL_WIDTH, LABEL_HEIGHT = 62, 15
MARKS = 4000
"""Most marks of a kind; drawing takes a millisecond for each, and more would cover each other."""


def step_chart(entries: Iterable[str], subject: Subject) -> dict[str, Any]:
    """Return the step chart of a run as a Vega-Lite specification.

    Args:
        entries: Entries of `tracking/raw_data.json`, in order.
        subject: What the run is about.
    """
    shown = series(entries, subject.baseline, subject.direction)
    low, high = _scale(shown, subject.baseline, subject.target)
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
        "axis": {"title": _metric(subject.metric, subject.direction), "format": ".6~g"},
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
        "title": _title(shown, subject, low, high),
        "spacing": 4,
        "vconcat": [
            {
                "width": WIDTH,
                "height": HEIGHT,
                "layer": [
                    *_rules(subject.baseline, subject.target, low, high),
                    *_line(shown, hidden, y),
                    *_dots(shown, hidden, y, colour),
                    *_labels(shown, hidden, y, subject.direction),
                ],
            },
            _rug(shown, rug, colour),
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


def _title(shown: Series, subject: Subject, low: float, high: float) -> dict[str, Any]:
    best, baseline = shown.line[-1][1], subject.baseline
    share = percentage(subject.gain, baseline)
    change = "" if share == "n/a" else f" ({'+' if subject.gain > 0 else ''}{share} %)"
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
    if subject.target is not None and not low <= subject.target <= high:
        told.append(f"target {subject.target:g} is off the scale")
    return {
        "text": f"{one_line(subject.goal_slug.replace('_', ' '), 80)}: {baseline:g} → {best:g}{change}",
        "subtitle": " · ".join(told),
        "anchor": "start",
        "offset": 14,
    }


def _per_pixel(x: dict[str, Any]) -> float:
    """Return how many rounds, or how much of one, a pixel is wide."""
    left, right = x["scale"]["domain"]
    return float(right - left) / WIDTH


def _apart(marks: Iterable[T], most: int, spot: Callable[[T, float], Hashable]) -> list[T]:
    """Return so many marks at most: the last of those that lie on one spot, in order.

    Args:
        marks: All of them, in order.
        most: So many are drawn in a second.
        spot: Returns where a mark lies, of spots so many pixels apart.
    """
    left, apart = list(marks), 1.0
    while len(left) > most:
        last = {spot(mark, apart): number for number, mark in enumerate(left)}
        left = [left[number] for number in sorted(last.values())]
        apart *= 2
    return left


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
    # In a pixel's width the line goes to the last score alone: it never goes back.
    scale = _per_pixel(x)
    steps = _apart(shown.line, MARKS, lambda step, apart: int((step[0] - shown.line[0][0]) / scale / apart))
    rows = [{"x": at, "y": best} for at, best in (shown.line[0], *steps)]
    return [
        {
            "data": _values(rows),
            "mark": {"type": "line", "interpolate": "step-after", "color": "#222222", "strokeWidth": 2},
            "encoding": {"x": x, "y": y},
        }
    ]


def _dots(
    shown: Series, x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any]
) -> list[dict[str, Any]]:
    (low, high), scale = y["scale"]["domain"], _per_pixel(x)
    rise = (high - low) / HEIGHT

    def spot(dot: Dot, apart: float) -> tuple[int, int, str]:
        at = min(max(dot.score or 0.0, low), high)
        return int(dot.x / scale / apart), int((at - low) / rise / apart), dot.outcome

    scored = _apart([dot for dot in shown.dots if dot.score is not None], MARKS, spot)
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


def _labels(shown: Series, x: dict[str, Any], y: dict[str, Any], direction: str) -> list[dict[str, Any]]:
    """Return the gain beside each merge; where two labels would meet, the larger gain has its own."""
    wins = [dot for dot in shown.dots if dot.outcome == MERGED and dot.score is not None]
    (left, right), (low, high) = x["scale"]["domain"], y["scale"]["domain"]
    taken: list[tuple[float, float]] = []
    rows = []
    for dot in sorted(wins, key=lambda one: -_size(one, direction)):
        at = (dot.x - left) / (right - left) * WIDTH, ((dot.score or 0.0) - low) / (high - low) * HEIGHT
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


def _size(dot: Dot, direction: str) -> float:
    return improvement(dot.score or 0.0, dot.before, direction) if dot.gain is None else dot.gain


def _told(dot: Dot, direction: str) -> str:
    if dot.gain is not None:
        return percent(dot.gain)
    gain = improvement(dot.score or 0.0, dot.before, direction)
    share = percentage(gain, dot.before)
    if share == "n/a":
        return f"{difference(dot.score or 0.0, dot.before):+g}"
    return f"{'+' if gain > 0 else ''}{share} %"


def _rug(shown: Series, x: dict[str, Any], colour: dict[str, Any]) -> dict[str, Any]:
    scale = _per_pixel(x)
    failed = [dot for dot in shown.dots if dot.outcome == FAILED]
    seen = _apart(failed, MARKS, lambda dot, apart: int(dot.x / scale / apart))
    rows = [{"x": dot.x, "family": dot.family} for dot in seen]
    middle = {"value": 11}
    return {
        "width": WIDTH,
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
