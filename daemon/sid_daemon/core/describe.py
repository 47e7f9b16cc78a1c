"""One line a round, for people: what was merged, at which gain, on what evidence, or why not.

Called for status, history, log and reports. Never decides anything, never hides an open end: an interval that
the pairs do not bound reads "?", and a gain that was not proven is never called one.
"""

from __future__ import annotations

from sid_daemon.core.measuring.words import Verdict
from sid_daemon.core.wording import bounds, percent, rounded_up
from sid_protocol import ids


def describe(verdict: Verdict) -> str:
    """Return the line of one round, without its number.

    Args:
        verdict: Of its measuring.

    Returns:
        For example "candidate b  +3.1 % [2.4, 3.9]  n=14 pairs  p<=0.009  merged  (41 runs, 6 min)".
    """
    parts = [_who(verdict)]
    if verdict.gain is not None:
        shown = percent(verdict.gain)
        if verdict.pairs:
            shown = f"{shown} {bounds(verdict.interval)}"
        elif verdict.winner is not None:
            shown = f"{shown} ({verdict.score_before!r} -> {verdict.score_after!r})"
        parts.append(shown)
    if verdict.pairs:
        parts.append(f"n={verdict.pairs} pairs")
    if verdict.winner is not None and verdict.p is not None:
        parts.append(f"p<={rounded_up(verdict.p)}")
    parts += [_what(verdict), f"({_why(verdict)})"]
    return "  ".join(parts)


def _who(verdict: Verdict) -> str:
    if verdict.winner is not None:
        return f"candidate {ids.planner_letters(ids.executor_number(verdict.winner))}"
    scored = sum(one.benchmark_score is not None for one in verdict.outcomes.values())
    return f"best of {scored}" if scored else "nobody"


def _what(verdict: Verdict) -> str:
    if verdict.winner is not None:
        return "merged (fast)" if verdict.fast else "merged"
    if verdict.incumbent_broken:
        return "not judged"
    if verdict.pairs:
        return "not proven"
    return "not better" if verdict.mode == "deterministic" else "screened out"


def _why(verdict: Verdict) -> str:
    """Return the end of the line: what it cost, or what stood in the way."""
    if verdict.winner is None and (
        verdict.pairs or verdict.mode == "deterministic" or verdict.incumbent_broken
    ):
        # "inconclusive after 40 pairs: ...; needs >= 1.1 % at this noise": the line has shown the first half.
        return (verdict.reason or "no reason").split("; ")[-1]
    runs = f"{verdict.runs} run{'' if verdict.runs == 1 else 's'}"
    return f"{runs}, {_time(verdict.wall_s)}" if verdict.wall_s else runs


def _time(wall_s: float) -> str:
    return f"{wall_s / 60:.0f} min" if wall_s >= 90 else f"{wall_s:.0f} s"
