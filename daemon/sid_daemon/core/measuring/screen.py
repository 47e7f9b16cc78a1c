"""The screen: which candidate of a noisy round is worth fresh pairs of its own.

Theory of operation
-------------------
Blocks of runs, the incumbent and every candidate still alive once each, in an order shuffled afresh, so that
a drift of the machine meets all arms alike. Halving after the second block and again after the third spends
the runs on the better ones (successive halving; racing as in irace). Nothing is decided for good but a
candidate far behind the incumbent: the best of many looks better than it is, and only the confirm stage, on
runs made after the choice, may merge. So the choice may be greedy and costs no error rate.

Called by `noisy`. Never merges, never draws on the smoke run, never drops a slow run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from sid_daemon.core.measuring.dice import shuffled
from sid_daemon.core.measuring.evidence import MAD_TO_SD, estimate, interval, pair_sd
from sid_daemon.core.measuring.session import Session, failure, medians
from sid_daemon.core.measuring.words import INCUMBENT, Candidate, CandidateOutcome, RunResult, Steps
from sid_daemon.core.wording import percent

# One block shows a candidate behind at three sd of what the incumbent differs from itself.
FAR_BEHIND_SD = 3.0
HALF_AFTER = 2
QUARTER_AFTER = 3
# Stopping for want of any gain needs as many blocks as the last cut.
HOPELESS_FROM = 3


@dataclass(slots=True)
class Entrant:
    """A candidate in the screen: its gaps to the incumbent, block by block."""

    candidate: Candidate
    gaps: list[float] = field(default_factory=list)
    runs: list[RunResult] = field(default_factory=list)
    failed: RunResult | None = None
    behind: bool = False

    @property
    def arm(self) -> str:
        """The arm it runs in."""
        return self.candidate.arm

    @property
    def gain(self) -> float:
        """What its gaps say; nothing measured is nothing gained."""
        return estimate(self.gaps) if self.gaps else 0.0


def screen(session: Session, entrants: Sequence[Entrant]) -> Steps[bool]:
    """Measure the entrants in blocks, dropping the worse ones on the way.

    Returns:
        False if the incumbent failed twice in a row.
    """
    policy = session.policy
    alive = list(entrants)
    if not (yield from _warm_up(session, alive)):
        return False
    alive = _unfailed(alive)
    entered = len(alive)
    for block in range(1, policy.screen_blocks + 1):
        if not alive:
            break
        if not (yield from _block(session, alive, block)):
            return False
        alive = _unfailed(alive)
        alive = _cut(session, alive, block, entered)
        if block >= HOPELESS_FROM and all(fmean(one.gaps) <= _floor(session) for one in alive):
            break
    return True


def in_line(session: Session, entrants: Sequence[Entrant]) -> list[Entrant]:
    """Return who may stand for the confirm stage: longest-lived, then best, then by number."""
    floor = _floor(session)
    able = [one for one in entrants if one.gaps and one.failed is None and one.gain > floor]
    return sorted(able, key=lambda one: (-len(one.gaps), -one.gain))


def outcome(session: Session, entrant: Entrant) -> CandidateOutcome:
    """Return what the screen says of an entrant, as if it did not win."""
    if entrant.failed is not None:
        return failure(entrant.failed, "infrastructure")
    if not entrant.gaps:
        smoke = entrant.candidate.smoke
        return CandidateOutcome("success", smoke.score, None, "not measured", dict(smoke.sub_scores))
    gain, (low, high) = entrant.gain, interval(entrant.gaps)
    score = median([run.value for run in entrant.runs])
    measurement: dict[str, object] = {
        "mode": "noisy",
        "n": len(entrant.gaps),
        "gain": gain,
        "interval": [low, high],
        "p": None,  # the screen chooses, it proves nothing
        "sd_pair": pair_sd(entrant.gaps),
        "samples": [run.value for run in entrant.runs],
    }
    worse = gain <= -session.tolerance or (high is not None and high < 0)
    if worse or entrant.behind:
        return CandidateOutcome(
            "regression",
            score,
            "regression",
            f"{percent(gain)} against the incumbent",
            medians(entrant.runs),
            measurement,
        )
    why = f"screened out at {percent(gain)}"
    return CandidateOutcome("success", score, None, why, medians(entrant.runs), measurement)


def _floor(session: Session) -> float:
    """Return the gain at or under which a candidate is not worth fresh pairs."""
    return -session.tolerance if session.policy.accept == "non_inferior" else 0.0


def _unfailed(entrants: Sequence[Entrant]) -> list[Entrant]:
    return [one for one in entrants if one.failed is None]


def _warm_up(session: Session, entrants: Sequence[Entrant]) -> Steps[bool]:
    """Run every arm unscored; a candidate's smoke run was its first. False: the incumbent fails."""
    for turn in range(session.policy.warmup_runs):
        incumbent = yield from session.run_retried(INCUMBENT, "warmup")
        if not incumbent.valid:
            return False
        for entrant in _unfailed(entrants) if turn else ():
            result = yield from session.run_retried(entrant.arm, "warmup")
            if not result.valid:
                entrant.failed = result
    return True


def _block(session: Session, alive: Sequence[Entrant], block: int) -> Steps[bool]:
    """Run the incumbent and everybody alive once. False: the incumbent failed twice in a row."""
    entrants = {one.arm: one for one in alive}
    order = shuffled((INCUMBENT, *entrants), session.policy.seed, session.iteration, "screen", block)
    results: dict[str, RunResult] = {}
    for arm in order:
        result = yield from session.run_retried(arm, "screen", block)
        if result.valid:
            results[arm] = result
        elif arm == INCUMBENT:
            return False
        else:
            entrants[arm].failed = result
    session.record_incumbent(results[INCUMBENT])
    scale = session.scale()
    for arm, result in results.items():
        if arm != INCUMBENT:
            entrants[arm].gaps.append(scale.gap(results[INCUMBENT].value, result.value))
            entrants[arm].runs.append(result)
    return True


def _cut(session: Session, alive: list[Entrant], block: int, entered: int) -> list[Entrant]:
    """Return who goes on after a block, best first."""
    ranked = sorted(alive, key=lambda one: -one.gain)
    if session.policy.accept == "non_inferior":  # a simplification need not be among the best
        for one in ranked:
            one.behind = one.gain < -session.tolerance
        return [one for one in ranked if not one.behind]
    if block == 1 and session.aa_on_record:
        noise = MAD_TO_SD * median(session.aa_on_record)
        bar = -(FAR_BEHIND_SD * noise + session.min_effect)
        for one in ranked[1:]:  # the best stays, wherever it stands
            one.behind = one.gain < bar
        return [one for one in ranked if not one.behind]
    if block == HALF_AFTER:
        return ranked[: -(-entered // 2)]
    if block == QUARTER_AFTER:
        return ranked[: -(-entered // 4)]
    return ranked
