"""What was measured, as text: a gain with its interval, pairs and p, and every benchmark run of a round.

Pure; used by `round_text` and `status_text`'s readers. A gain that was not shown is led by `~`, an end that the
pairs do not bound reads `?`; nothing here decides what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sid_cli.text import DASH, clean, duration, number, table

Row = Mapping[str, Any]
UNSHOWN = "~"
_RUNS_SHOWN = 120


def gain_text(gain: float | None, ends: Sequence[float | None] | None) -> str:
    """Return a relative gain with its 95 % interval in percent, for example `+3.1 % [2.4, 3.9]`."""
    if gain is None:
        return ""
    low, high = ends if ends is not None and len(ends) == 2 else (None, None)
    if low is None and high is None and ends is None:
        return f"{_figure(gain, sign=True)} %"
    return f"{_figure(gain, sign=True)} % [{_end(low)}, {_end(high)}]"


def evidence_text(gain: float | None, ends: Sequence[float | None] | None, n: int | None, p: Any) -> str:
    """Return a gain with all that speaks for it: interval, number of pairs, always-valid p."""
    parts = [gain_text(gain, ends)]
    if n:
        parts.append(f"n={n}")
    if isinstance(p, float):
        parts.append(f"p<={p:.2g}")
    return "  ".join(part for part in parts if part)


def of_measurement(measurement: Row | None) -> str:
    """Return the evidence of a candidate's or of a merge report's `measurement`; empty where there is none."""
    if not measurement or not isinstance(measurement.get("gain"), (int, float)):
        return ""
    ends = measurement.get("interval", measurement.get("ci95"))
    n = measurement.get("n", measurement.get("n_pairs"))
    told = evidence_text(measurement["gain"], ends, n, measurement.get("p"))
    return f"{told}  fast: not proven" if measurement.get("fast") else told


def round_gain(entry: Row) -> str:
    """Return what a round gained, positive is better: with interval and n where scores are noisy, `~` where unshown.

    Args:
        entry: The round's row.
    """
    merged = entry["status"] == "merged"
    if entry.get("gain") is None:
        return UNSHOWN if entry["status"] == "no_improvement" else DASH
    told = gain_text(entry["gain"], entry.get("ci"))
    told = f"{told} n={entry['n']}" if entry.get("n") else told
    return told if merged else f"{UNSHOWN} {told}"


def runs_table(runs: Sequence[Row], *, width: int | None) -> str:
    """Return every benchmark run of a round in the order in which it was used."""
    body = [
        (
            str(index),
            clean(run["stage"]),
            str(run["block"]) if run["block"] else "",
            clean(run["arm"]),
            clean(run["tree"])[:7],
            number(run["score"], 9),
            "" if run["exit"] is None else str(run["exit"]),
            f"{run['wall_s']:.3f}" if run["wall_s"] < 60 else duration(run["wall_s"]),
            f"{run['cpu_s']:.3f}",
            f"{run['load1']:.2f}",
            clean(run["at"])[11:23],
            clean(run["why"] or ("" if run["status"] == "success" else run["status"])),
        )
        for index, run in enumerate(runs, 1)
    ]
    heads = (">RUN", "STAGE", ">NR", "ARM", "TREE", ">SCORE", ">EXIT", ">WALL S", ">CPU S", ">LOAD", "AT", "")
    shown = table(heads, body[:_RUNS_SHOWN], width=width, flexible=len(heads) - 1)
    more = len(body) - _RUNS_SHOWN
    return f"{shown}\n({more} more runs with --json)" if more > 0 else shown


def _end(value: float | None) -> str:
    return "?" if value is None else _figure(value, sign=False)


def _figure(share: float, *, sign: bool) -> str:
    """Return a share in percent: one decimal, more where one would read as zero, as in the daemon's own lines."""
    value = 100 * share
    if abs(value) >= 1000:
        return "> +999" if value > 0 else "< -999"
    digits = min(6, -math.floor(math.log10(abs(value)))) if 0 < abs(value) < 0.095 else 1
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return "0.0" if text in ("-0.0", "+0.0") else text
