"""The confirm stage: is the merged tree of the one finalist better than the incumbent?

Theory of operation
-------------------
Pairs of fresh runs of A (the incumbent) and B (the merged tree), the order of each pair a coin's. After every
pair the purse of `evidence`, with the whole of alpha, is looked at; it may be, at no cost in error. Only one
candidate a round stands here and on runs made after it was chosen, so the number of candidates costs nothing
either. The stage ends early in three ways: proven; hopeless (a second purse bets that the gain is under the
bar; it needs only 1/beta, as giving up wrongly costs one missed gain, not a false merge); or a guard falls.

The fast lane accepts three pairs whose every gap exceeds all gaps of the incumbent with itself. It supposes
that the noise has not risen since, so it is outside the guarantee and says so.

A pair with a failed run is void and repeated with a fresh coin. Only a failure voids: never a slow run.
Called by `noisy`. Never touches the branch, never compares with a remembered score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Literal

from sid_daemon.core.measuring.dice import coin
from sid_daemon.core.measuring.evidence import (
    EProcess,
    Scale,
    estimate,
    findable_gains,
    interval,
    mad_sd,
    pair_sd,
    pairs_to_show,
)
from sid_daemon.core.measuring.guards import refused_by_pairs
from sid_daemon.core.measuring.session import Refusal, Session
from sid_daemon.core.measuring.words import INCUMBENT, MERGED, RunResult, Steps
from sid_daemon.core.wording import bounds, percent, share

# The fast lane's terms: three gaps above all of eight are a chance of 1 in 165 if both were drawn alike, four
# of the eight from now because noise has its hours.
FAST_PAIRS = 3
FAST_RECORD = 8
FAST_RECORD_NOW = 4
# A run that fails is repeated once, as everywhere.
FAILURES_A_PAIR = 2
# So many failures more than the incumbent's, scattered over the stage, are the candidate's own (1 in 8 by
# chance): dropping them pair by pair would hide a crash that users would meet.
FAILURES_AHEAD = 3

EndKind = Literal[
    "improved", "fast", "below", "inconclusive", "guard", "holdout", "conflict", "failed", "broken"
]


@dataclass(frozen=True, slots=True)
class End:
    """How a confirm stage ended, and why in one line; `failed` carries the run that failed."""

    kind: EndKind
    why: str | None = None
    run: RunResult | None = None


@dataclass(slots=True)
class Trial:
    """The evidence of one confirm stage: complete pairs in order, and the purse.

    Args:
        scale: How scores become gaps; changes only if a score of 0 or less turns up.
        shift: Added to each gap before it is bet on: the tolerance of `non_inferior`, else 0.
    """

    scale: Scale
    shift: float
    before: list[RunResult] = field(default_factory=list)
    after: list[RunResult] = field(default_factory=list)
    order: str = ""
    void: int = 0
    failures: dict[str, int] = field(default_factory=lambda: {INCUMBENT: 0, MERGED: 0})
    wall_s: float = 0.0
    purse: EProcess = field(default_factory=EProcess)

    @property
    def gaps(self) -> list[float]:
        """By how much B beat A, pair by pair."""
        return [self.scale.gap(a.value, b.value) for a, b in zip(self.before, self.after, strict=True)]

    def add(self, a: RunResult, b: RunResult, scale: Scale) -> None:
        """Count a complete pair."""
        if scale.logarithmic != self.scale.logarithmic:
            self.scale = scale
            self.purse.rescale(gap + self.shift for gap in self.gaps)
        self.before.append(a)
        self.after.append(b)
        self.purse.add(self.scale.gap(a.value, b.value) + self.shift)


def confirm(session: Session, trial: Trial, arm: str) -> Steps[End]:
    """Build the candidate's merge and measure it in pairs until the rule ends the stage."""
    if not (yield from session.merge(arm)):
        return End("conflict", "merge conflict")
    for _ in range(session.policy.warmup_runs):  # the incumbent is warm from the screen
        result = yield from session.run_retried(MERGED, "warmup")
        if not result.valid:
            return End("failed", result.why, result)
    while True:
        end = yield from _pair(session, trial)
        end = end or judge(session, trial)
        if end is None:
            continue
        if end.kind in {"improved", "fast"}:
            look: Refusal | None = yield from session.holdout()
            if look is not None:
                return End("holdout" if look.category == "regression" else "inconclusive", look.why)
        return end


def judge(session: Session, trial: Trial) -> End | None:
    """Return how the stage ends after its latest pair, or None if it goes on."""
    policy = session.policy
    gaps = trial.gaps
    shifted = [gap + trial.shift for gap in gaps]
    count, gain = len(gaps), estimate(gaps)
    enough = estimate(shifted) >= session.min_effect
    fast = enough and _fast(session, gaps)
    if count >= policy.min_pairs or fast:
        proven = enough and trial.purse.sup >= 1 / policy.alpha and count >= policy.min_pairs
        guard = refused_by_pairs(policy.guards, trial.before, trial.after, proven=proven or fast)
        if guard is not None:
            return End("guard", guard)
        if proven:
            return End("improved")
        if fast:
            return End("fast")
        bar = max(session.min_effect, policy.futility_sd * mad_sd(gaps))
        if EProcess(bar - gap for gap in shifted).now >= 1 / policy.beta:
            return End("below", f"gain below {share(bar - trial.shift)}")
    too_long = policy.max_minutes is not None and trial.wall_s >= 60 * policy.max_minutes
    if count >= policy.max_pairs or too_long:
        shown = f"{percent(gain)} {bounds(interval(gaps))}"
        pairs = f"{count} pair{'s' if count != 1 else ''}"
        return End("inconclusive", f"inconclusive after {pairs}: {shown}; {_missing(session, gaps)}")
    return None


def _missing(session: Session, gaps: Sequence[float]) -> str:
    """Return what would have led to a verdict: more pairs than the user allows, or a larger gain."""
    policy, fewest = session.policy, pairs_to_show(session.policy.alpha)
    if policy.max_pairs < fewest:
        return f"max_pairs {policy.max_pairs} can prove nothing, it takes {fewest} at alpha {policy.alpha:g}"
    if len(gaps) < policy.max_pairs:
        return f"max_minutes {policy.max_minutes:g} is up"
    return f"needs >= {share(findable_gains(pair_sd(gaps), session.min_effect)[1])} at this noise"


def measurement(session: Session, trial: Trial, *, fast: bool) -> dict[str, object]:
    """Return the stage as the merge report and the journal carry it, about 200 bytes."""
    gaps = trial.gaps
    low, high = interval(gaps)
    found: dict[str, object] = {
        "mode": "noisy",
        "n_pairs": len(gaps),
        "gain": _short(estimate(gaps)),
        "ci95": [_short(low), _short(high)],
        "p": None if fast else _short(trial.purse.p),
        "sd_pair": _short(pair_sd(gaps)),
        "alpha": session.policy.alpha,
        "pairing": session.policy.pairing,
        "runs": session.runs,
        "void_pairs": trial.void,
        "order": trial.order,
        "cpu_cv": _short(_cpu_cv(trial.before)),
    }
    if fast:
        found["fast"] = True
    return found


def _pair(session: Session, trial: Trial) -> Steps[End | None]:
    """Run one complete pair, repeating void ones; returns an end if that cannot be."""
    policy, number = session.policy, len(trial.before) + 1
    misses = {INCUMBENT: 0, MERGED: 0}
    while True:
        heads = coin(policy.seed, session.iteration, "pair", number, sum(misses.values()))
        order = (INCUMBENT, MERGED) if heads else (MERGED, INCUMBENT)
        results: dict[str, RunResult] = {}
        for index, arm in enumerate(order):
            beside = order[1] if index == 0 and policy.pairing == "duet" else None
            result = yield from session.run(arm, "confirm", number, beside)
            trial.wall_s += result.wall_s or 0.0
            if not result.valid:
                break
            results[arm] = result
        if len(results) == len(order):
            session.record_incumbent(results[INCUMBENT])
            trial.order += "AB" if heads else "BA"
            trial.add(results[INCUMBENT], results[MERGED], session.scale())
            return None
        trial.void += 1
        misses[arm] += 1
        trial.failures[arm] += 1
        ahead = trial.failures[MERGED] - trial.failures[INCUMBENT] >= FAILURES_AHEAD
        if misses[arm] >= FAILURES_A_PAIR or (arm == MERGED and ahead):
            return End("broken") if arm == INCUMBENT else End("failed", result.why, result)


def _fast(session: Session, gaps: Sequence[float]) -> bool:
    """Return whether the fast lane is open and its terms hold."""
    policy, record = session.policy, session.aa_on_record
    if not policy.fast_lane or policy.accept != "improve" or len(gaps) < FAST_PAIRS:
        return False
    if len(record) < FAST_RECORD or len(session.aa) < FAST_RECORD_NOW:
        return False
    return min(gaps) > max(record)


def _cpu_cv(runs: Sequence[RunResult]) -> float | None:
    """Return the coefficient of variation of the incumbent's CPU time, where it is known."""
    times = [run.cpu_s for run in runs if run.cpu_s]
    return stdev(times) / fmean(times) if len(times) > 1 else None


def _short(value: float | None) -> float | None:
    """Return a figure to four digits: for readers; decisions use the whole one."""
    return None if value is None else float(f"{value:.4g}")


def scores(runs: Sequence[RunResult]) -> float | None:
    """Return the median score of the runs, None if there is none."""
    return median([run.value for run in runs]) if runs else None
