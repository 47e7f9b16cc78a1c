"""The words of measuring: what the core asks for, what it is told, what it decides.

Plain frozen data, free of behaviour but for a property or two. Everything is made of plain fields, tuples, dicts
and other such classes, so pydantic's `TypeAdapter` writes it to JSON and reads the same value back. Scores are in the metric's own units; gaps, gains, tolerances and intervals
are relative (0.01 is 1 %) unless a field says otherwise; times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from sid_daemon.core.measuring.evidence import Direction, Interval

T = TypeVar("T")
Arm: TypeAlias = str
"""A checked-out tree: "A" (head of the improvement branch), "executor_<k>", or "merged"."""
Mode = Literal["deterministic", "noisy"]
Stage = Literal["screen", "confirm", "merge", "check", "warmup", "calibrate", "audit"]
OutcomeStatus = Literal["success", "regression", "error", "timeout"]
VerdictStatus = Literal["merged", "no_improvement", "no_winner"]

INCUMBENT: Arm = "A"
MERGED: Arm = "merged"
# Smallest relative gain worth a merge where noise hides anything less and the user set nothing.
NOISY_MIN_EFFECT = 0.005


@dataclass(frozen=True, slots=True)
class RunResult:
    """One fresh process of the benchmark (or of the hold-out command).

    Args:
        arm: The tree it ran in.
        score: What it printed; None where there is none.
        sub_scores: By name.
        status: `success` only with exit 0 and a parsed score.
        cpu_s: CPU time of the process tree, if known.
        wall_s: Wall time, if known.
        category: The shell's own failure category, if it knows one.
        why: What went wrong, in one line.
    """

    arm: Arm
    score: float | None
    sub_scores: dict[str, float]
    status: Literal["success", "error", "timeout"]
    cpu_s: float | None = None
    wall_s: float | None = None
    category: str | None = None
    why: str | None = None

    @property
    def valid(self) -> bool:
        """Whether it gave a score; NaN and infinities are none. A slow run is as good as any."""
        return self.status == "success" and self.score is not None and math.isfinite(self.score)

    @property
    def value(self) -> float:
        """The score of a valid run."""
        if self.score is None:
            raise ValueError(f"{self.arm} has no score")
        return self.score


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What became of a merge that was asked for."""

    arm: Arm
    conflict: bool


@dataclass(frozen=True, slots=True)
class GuardRule:
    """A sub-score that must not get worse.

    Args:
        name: Of the sub-score.
        direction: Which way it is better.
        tolerance: By how much it may fall behind.
        tolerance_absolute: The tolerance is in units of the sub-score, not relative.
    """

    name: str
    direction: Direction = "higher_is_better"
    tolerance: float = 0.05
    tolerance_absolute: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """What the rule needs, resolved from the settings.

    Args:
        direction: Which way the metric is better.
        mode: What calibration found or the user set.
        alpha: Chance, a round, to merge something that is no improvement.
        beta: Evidence of 1/beta that the gain is under the bar ends a test.
        min_effect: Smallest gain worth a merge. None: any strict gain if deterministic, 0.005 if noisy.
        screen_blocks: Blocks of runs, the incumbent and every candidate once, before one is chosen.
        min_pairs: Pairs before a confirm stage may end.
        max_pairs: Pairs after which it is inconclusive.
        futility_sd: Give-up bar in sd of a pair.
        warmup_runs: Unscored runs an arm and session; a candidate's smoke run is its first.
        fast_lane: Three pairs may do (see `noisy`).
        pairing: One run at a time, or both runs of a pair at once.
        accept: `non_inferior` is for simplification: no worse than the tolerance, and fewer lines.
        tolerance: By how much worse is still "not shown worse".
        tolerance_absolute: The tolerance is in score units, not relative.
        guards: Sub-scores that must not get worse.
        seed: Of coins and shuffles.
        pass_fail: Scores are 0 and 1.
        integer: Scores are counts; None: judged from the scores seen.
        holdout: A would-be merge is looked at with the hold-out command, too.
        holdout_looks: How often a run may do so.
        calibration_runs: Runs of the incumbent when a deterministic benchmark turns out noisy.
        max_minutes: Ends a confirm stage early, by the wall time of its runs.
    """

    direction: Direction
    mode: Mode
    alpha: float = 0.01
    beta: float = 0.20
    min_effect: float | None = None
    screen_blocks: int = 4
    min_pairs: int = 4
    max_pairs: int = 40
    futility_sd: float = 0.75
    warmup_runs: int = 1
    fast_lane: bool = False
    pairing: Literal["sequential", "duet"] = "sequential"
    accept: Literal["improve", "non_inferior"] = "improve"
    tolerance: float = 0.05
    tolerance_absolute: bool = False
    guards: tuple[GuardRule, ...] = ()
    seed: int = 0
    pass_fail: bool = False
    integer: bool | None = None
    holdout: bool = False
    holdout_looks: int = 20
    calibration_runs: int = 5
    max_minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate of a round, in order of executor number.

    Args:
        arm: "executor_<k>".
        smoke: Its first run: the whole measurement in deterministic mode, no evidence in noisy mode.
        diff_lines: Lines added minus lines removed; negative if the tree gets smaller.
    """

    arm: Arm
    smoke: RunResult
    diff_lines: int


@dataclass(frozen=True, slots=True)
class AskRun:
    """Run the benchmark once in this arm.

    Args:
        arm: The tree.
        stage: What for.
        block: Block of the screen or pair of the confirm stage, from 1; 0 elsewhere.
        beside: Duet only: the arm to be run at the same time. Its result answers the next ask.
        serial: Number of the ask within the round, from 0; tells a repeated run from the first.
    """

    arm: Arm
    stage: Stage
    block: int = 0
    beside: Arm | None = None
    serial: int = 0


@dataclass(frozen=True, slots=True)
class AskMerge:
    """Merge this candidate in the object database and check the result out as "merged"."""

    arm: Arm


@dataclass(frozen=True, slots=True)
class AskHoldout:
    """Run the hold-out command once in this arm; answered like a run."""

    arm: Arm


Ask: TypeAlias = AskRun | AskMerge | AskHoldout
Fed: TypeAlias = RunResult | MergeResult
Steps: TypeAlias = Generator[Ask, Fed, T]
"""A piece of a round: asks, is fed one answer an ask, returns what it found."""


@dataclass(frozen=True, slots=True)
class SelectionHistory:
    """What measuring remembers from round to round of a run.

    Args:
        aa_gaps: Sizes of gaps between neighbouring runs of one incumbent, newest last.
        merges: Merges so far.
        determinism_checked: The check before the first merge was passed.
        rounds_since_check: Rounds since the incumbent of a deterministic run was last measured.
        sessions: Scores of the present incumbent, newest session last, two at most.
        forced_noisy: One tree gave two scores once; noisy for good.
        broken_rounds: Rounds in a row in which the benchmark failed on the incumbent.
        all_positive: Every score seen was above 0.
        all_whole: Every score seen was a whole number.
        guard_baseline: Guarded sub-scores of the baseline; deterministic guards compare with these.
        holdout_looks: Looks at the hold-out command so far.
    """

    aa_gaps: tuple[float, ...] = ()
    merges: int = 0
    determinism_checked: bool = False
    rounds_since_check: int = 0
    sessions: tuple[tuple[float, ...], ...] = ()
    forced_noisy: bool = False
    broken_rounds: int = 0
    all_positive: bool = True
    all_whole: bool = True
    guard_baseline: dict[str, float] = field(default_factory=dict)
    holdout_looks: int = 0


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """What a round found out about one candidate.

    Args:
        status: As in its benchmark result.
        benchmark_score: Median of its scored runs; None where there is none.
        category: Failure category, None for `success`.
        why: What it fell by, in one line; None for the winner.
        sub_scores: Medians by name.
        measurement: Samples, n, gain, interval, p, mode, sd of a pair; None in deterministic mode.
        guard_failed: One of its sub-scores fell by more than its guard lets it.
    """

    status: OutcomeStatus
    benchmark_score: float | None
    category: str | None = None
    why: str | None = None
    sub_scores: dict[str, float] = field(default_factory=dict)
    measurement: dict[str, object] | None = None
    guard_failed: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a round's measuring.

    Args:
        winner: Arm of the candidate to keep, or None.
        status: As in the merge report.
        reason: Why there is no winner; None when merged.
        score_before: The incumbent's, of the confirm session if there was one.
        score_after: The merged tree's; None where it was not measured.
        best_score: What `best_score` becomes; None leaves it.
        best_interval: 95 % interval of the incumbent's median; None under 6 runs and if deterministic.
        gain: Of the winner, or of the best that was tested; positive is better.
        regressions_detected: A guard or the primary metric was shown worse.
        outcomes: By arm of the candidates.
        measurement: Of the confirm stage, as the merge report carries it; None if deterministic.
        became_noisy: One tree gave two scores in this round.
        incumbent_broken: The benchmark fails on the incumbent; nobody is to blame.
        mode: In which the round ended.
        history: For the next round.
        finalist: The candidate that was tested to the end, or else the best of the screen.
        interval: Of the gain; an end is None where it is open.
        pairs: Complete pairs of the confirm stage.
        p: Always-valid p-value of the gain; None without a confirm stage and for the fast lane.
        sd_pair: Sd of the gaps of pairs.
        fast: Accepted by the fast lane, outside the guarantee.
        runs: Benchmark runs asked for in this round, smoke runs not among them.
        wall_s: Their wall time.
    """

    winner: Arm | None
    status: VerdictStatus
    reason: str | None
    score_before: float | None
    score_after: float | None
    best_score: float | None
    best_interval: Interval | None
    gain: float | None
    regressions_detected: bool
    outcomes: dict[Arm, CandidateOutcome]
    measurement: dict[str, object] | None
    became_noisy: bool
    incumbent_broken: bool
    mode: Mode
    history: SelectionHistory
    finalist: Arm | None = None
    interval: Interval | None = None
    pairs: int = 0
    p: float | None = None
    sd_pair: float | None = None
    fast: bool = False
    runs: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """A round's measuring: what it began with and every answer since, in order.

    Nothing that is derived is kept, so a replay of the journal is a replay of the decision.
    """

    policy: Policy
    incumbent_score: float | None
    history: SelectionHistory
    candidates: tuple[Candidate, ...]
    iteration: int
    fed: tuple[Fed, ...] = ()
