"""The audit: what have all merges together gained? The baseline against the head, measured anew.

Theory of operation
-------------------
Each merge was judged against the incumbent of its day. Sums of such gains overstate: each was picked because it
looked good (the winner's curse), and a gain can be lost again by what came after. So every `audit_every` merges and
at the run's end the commit that the run began with and the head are run in fresh pairs, the order of each pair a
coin's, with the purse and the interval of `evidence`; a figure made so owes nothing to the choices before it. It
ends once the interval is tight beside the gain, or at `max_pairs`. A deterministic benchmark needs one run of each.

The audit decides nothing: no merge is taken back for it. Periodic tests of the whole beside tests of each change are
Fishtest's (regression tests).

Pure. `auditing` asks for the runs; status, log and report tell of what was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from sid_daemon.core.measuring.dice import coin
from sid_daemon.core.measuring.evidence import (
    INTERVAL_PAIRS,
    Direction,
    EProcess,
    Interval,
    Scale,
    estimate,
    interval,
)
from sid_daemon.core.measuring.words import RunResult
from sid_daemon.core.wording import bounds, percent

BASELINE, HEAD = "baseline", "A"
FAILURES_A_PAIR = 2
# Half of the interval beside the gain, or half a percent: a tighter figure would change nobody's mind.
TIGHT_SHARE = 0.125
TIGHT = 0.005


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit under way: what it compares, and every run since, in order.

    Attributes:
        continuous: The run's scores were all positive and not all whole, so that its gains were logarithms of ratios.
        reference: The score on record of the baseline, which a difference is relative to.
        merges: Merges of the run when it began.
        summed: Sum of the gains of these merges, as each was measured in its own round.
        summed_score: The same in score units: of differences, each relative to another score, only this is a sum.
        results: So far, in order.
    """

    baseline_sha: str
    head_sha: str
    direction: Direction
    noisy: bool
    max_pairs: int
    max_minutes: float | None
    pass_fail: bool
    continuous: bool
    reference: float
    seed: int
    merges: int
    summed: float
    summed_score: float
    results: tuple[RunResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found.

    Attributes:
        gain: Of the head over the baseline; None where one of them does not run.
        interval: 95 %, an end None where it is open; None where scores are exact.
        n: Pairs.
        p: Always-valid p-value; None where scores are exact.
        why: What failed, if something did; the pairs before it count all the same.
        summed: Sum of the wins, on the scale of `gain`.
        score: Median of the head's runs; None where there is none.
        logarithmic: The gain is the logarithm of a ratio, else a difference relative to `reference`.
        reference: What a difference is relative to: the baseline's score on record.
    """

    baseline_sha: str
    head_sha: str
    gain: float | None
    interval: Interval | None
    n: int
    p: float | None
    merges: int
    summed: float
    why: str | None = None
    score: float | None = None
    logarithmic: bool = False
    reference: float = 0.0


def next_ask(audit: Audit) -> tuple[str, int] | Audited:
    """Return the arm to be run next and the pair's number, or what was found."""
    pairs: list[tuple[RunResult, RunResult]] = []
    misses = {BASELINE: 0, HEAD: 0}
    left = list(audit.results)
    while True:
        number = len(pairs) + 1
        heads = coin(audit.seed, audit.merges, "audit", number, sum(misses.values()))
        got: dict[str, RunResult] = {}
        for arm in (BASELINE, HEAD) if heads else (HEAD, BASELINE):
            if not left:
                return arm, number
            result = left.pop(0)
            if not result.valid:
                misses[arm] += 1
                break
            got[arm] = result
        if len(got) == len(misses):
            pairs.append((got[BASELINE], got[HEAD]))
            misses = {BASELINE: 0, HEAD: 0}
        elif misses[arm] >= FAILURES_A_PAIR:
            where = "baseline" if arm == BASELINE else "head"
            return _found(audit, pairs, f"the benchmark fails on the {where}: {result.why or result.status}")
        if not left and pairs and got and len(got) == len(misses) and (end := _enough(audit, pairs)):
            return end


def _enough(audit: Audit, pairs: list[tuple[RunResult, RunResult]]) -> Audited | None:
    """Return what was found once it is enough."""
    wall_s = sum(run.wall_s or 0.0 for run in audit.results)
    late = audit.max_minutes is not None and wall_s >= 60 * audit.max_minutes
    if not audit.noisy or late or len(pairs) >= audit.max_pairs:
        return _found(audit, pairs)
    if len(pairs) < INTERVAL_PAIRS:
        return None
    found = _found(audit, pairs)
    low, high = found.interval or (None, None)
    if low is None or high is None or found.gain is None:
        return None
    return found if (high - low) / 2 <= max(TIGHT, TIGHT_SHARE * abs(found.gain)) else None


def _found(audit: Audit, pairs: list[tuple[RunResult, RunResult]], why: str | None = None) -> Audited:
    scale = _scale(audit, pairs)
    gaps = [scale.gap(before.value, after.value) for before, after in pairs]
    exact = not audit.noisy or not gaps
    return Audited(
        baseline_sha=audit.baseline_sha,
        head_sha=audit.head_sha,
        gain=estimate(gaps) if gaps else None,
        interval=None if exact else interval(gaps),
        n=len(gaps),
        p=None if exact else EProcess(gaps).p,
        merges=audit.merges,
        summed=audit.summed if scale.logarithmic else scale.relative(audit.summed_score, absolute=True),
        why=why,
        score=median([after.value for _, after in pairs]) if pairs else None,
        logarithmic=scale.logarithmic,
        reference=scale.reference,
    )


def _scale(audit: Audit, pairs: list[tuple[RunResult, RunResult]]) -> Scale:
    positive = all(run.value > 0 for pair in pairs for run in pair)
    logarithmic = audit.continuous and positive and not audit.pass_fail
    return Scale(audit.direction, logarithmic, 1.0 if audit.pass_fail else audit.reference)


def headline(found: Audited) -> str:
    """Return the audit in one line.

    Returns:
        For example "total since baseline +11.6 % [10.2, 13.1] audited at a1b2c3d, n=18 pairs (sum of wins would say
        +12.4 %)".
    """
    at = f"audited at {found.head_sha[:7]}"
    if found.gain is None:
        return f"total since baseline not known, {at}: {found.why}"
    if found.interval is None:  # exact: the wins held nothing to take back
        return f"total since baseline {percent(found.gain)} {at}, one run each"
    summed = f"(sum of wins would say {percent(found.summed)})"
    shown = "" if _shown(found.interval) else "~ "
    pairs = f"n={found.n} pair{'' if found.n == 1 else 's'}"
    cut = f"; cut short: {found.why}" if found.why else ""
    return f"total since baseline {shown}{percent(found.gain)} {bounds(found.interval)} {at}, {pairs} {summed}{cut}"


def _shown(ends: Interval) -> bool:
    """Say whether an interval excludes zero."""
    low, high = ends
    return (low is not None and low > 0) or (high is not None and high < 0)
