"""Guards: sub-scores that must not get worse while the primary metric gets better.

They are measured in the same runs as the primary metric, so they cost nothing. In deterministic mode one
number stands against the baseline's, so that many small losses cannot creep past it one by one. In noisy mode
the pairs decide, with the purse of `evidence` betting that the guard gets worse. What is not reported is never
a pass. Called by `deterministic` and `noisy`; never asks for a run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from sid_daemon.core.measuring.evidence import EProcess, Scale, estimate
from sid_daemon.core.measuring.words import GuardRule, RunResult
from sid_daemon.core.wording import percent

# Evidence of 20 (alpha 5 %) shows a guard worse, shared among the guards (Bonferroni): a guard errs on the
# side of refusing, so it asks for less than a merge does.
GUARD_BAR = 20.0


def refused_by_scores(guards: Sequence[GuardRule], before: dict[str, float], after: RunResult) -> str | None:
    """Return which guard one run fails against known sub-scores, or None.

    Args:
        guards: The rules.
        before: Sub-scores to compare with.
        after: A run of the merged tree.
    """
    for rule in guards:
        old, new = _finite(before.get(rule.name)), _finite(after.sub_scores.get(rule.name))
        if old is None or new is None:
            return f"guard {rule.name}: not reported"
        scale = Scale(rule.direction, logarithmic=min(old, new) > 0, reference=old)
        gap = scale.gap(old, new)
        if gap < -scale.relative(rule.tolerance, absolute=rule.tolerance_absolute):
            return f"guard {rule.name}: {percent(gap)}"
    return None


def refused_by_pairs(
    guards: Sequence[GuardRule],
    before: Sequence[RunResult],
    after: Sequence[RunResult],
    *,
    proven: bool,
) -> str | None:
    """Return which guard the pairs fail, or None.

    Args:
        guards: The rules.
        before: Runs of the incumbent, a pair each.
        after: Runs of the merged tree, in the same order.
        proven: The primary metric is shown better: now an estimate beyond the tolerance refuses, too. Before
            that, with few pairs, only evidence does.
    """
    for rule in guards:
        old = [_finite(run.sub_scores.get(rule.name)) for run in before]
        new = [_finite(run.sub_scores.get(rule.name)) for run in after]
        pairs = [(a, b) for a, b in zip(old, new, strict=True) if a is not None and b is not None]
        if len(pairs) < len(before):
            return f"guard {rule.name}: not reported"
        positive = all(a > 0 and b > 0 for a, b in pairs)
        scale = Scale(rule.direction, logarithmic=positive, reference=median([a for a, _ in pairs]))
        gaps = [scale.gap(a, b) for a, b in pairs]
        gain = estimate(gaps)
        tolerance = scale.relative(rule.tolerance, absolute=rule.tolerance_absolute)
        shown_worse = EProcess(-gap for gap in gaps).sup >= GUARD_BAR * len(guards)
        if (proven and gain < -tolerance) or (shown_worse and gain < -tolerance / 2):
            return f"guard {rule.name}: {percent(gain)}"
    return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
