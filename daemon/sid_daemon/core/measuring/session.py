"""One round's bookkeeping: what was asked and answered so far, and the verdict made of it.

A round's rule is written as straight-line code (a generator that yields what it wants run and is sent the
answer), so that it reads like the rule it implements; `deterministic` and `noisy` hold that code, and both
work on one `Session`. A session lives only while a round's answers are being gone through, is built anew each
time, and is never stored: the answers are the state. Sources of the numbers: comments beside them.

Called by `selection`, `deterministic` and `noisy`. Never decides which candidate is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from sid_daemon.core.measuring.evidence import Interval, Scale, median_interval
from sid_daemon.core.measuring.words import (
    INCUMBENT,
    MERGED,
    NOISY_MIN_EFFECT,
    Arm,
    AskHoldout,
    AskMerge,
    AskRun,
    CandidateOutcome,
    MergeResult,
    Mode,
    RunResult,
    Selection,
    SelectionHistory,
    Stage,
    Steps,
    Verdict,
    VerdictStatus,
)
from sid_daemon.core.wording import percent

# Gaps between neighbouring incumbent runs that are remembered: about ten rounds' worth, so that the noise
# floor follows a machine that changes.
AA_KEPT = 64
BROKEN = "benchmark broken on the incumbent"
NO_SCORE = "no candidate gave a valid score"


def screened_out(best: str | None) -> str:
    """Return the reason of a round whose every candidate fell behind by its own runs; `best` is the best gain."""
    return "all candidates screened out as regressions" + (f": best {best}" if best else "")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a would-be merge is refused: the failure's category, and one line."""

    category: Literal["regression", "infrastructure"]
    why: str


def failure(result: RunResult, default: str) -> CandidateOutcome:
    """Return the outcome of a candidate whose run gave no score.

    Args:
        result: The failed run.
        default: Category of an error that the shell did not classify.
    """
    if result.status == "timeout":
        return CandidateOutcome("timeout", None, result.category or "timeout", result.why or "timed out")
    if result.status == "success":  # NaN, an infinity or nothing where a score should be
        return CandidateOutcome("error", None, "benchmark_parse_error", result.why or "no finite score")
    return CandidateOutcome("error", None, result.category or default, result.why or "benchmark failed")


def medians(runs: Sequence[RunResult]) -> dict[str, float]:
    """Return each sub-score's median over the runs that report it."""
    names = sorted({name for run in runs for name in run.sub_scores})
    return {name: median([run.sub_scores[name] for run in runs if name in run.sub_scores]) for name in names}


def _around(score: float | None, ends: Interval | None) -> Interval | None:
    """Return an interval of two sessions' runs so that it holds the newest one's median, too.

    A session may be short and the machine another than in the one before; an interval that leaves out the score that
    it stands beside would be believed by nobody.
    """
    if score is None or ends is None:
        return ends
    low, high = ends
    return (None if low is None else min(low, score)), (None if high is None else max(high, score))


class Session:
    """What this round has measured so far, and how to ask for more."""

    def __init__(self, selection: Selection) -> None:
        history = selection.history
        self.policy = selection.policy
        self.history = history
        self.iteration = selection.iteration
        self.candidates = selection.candidates
        self.best = selection.incumbent_score
        self.mode: Mode = "noisy" if history.forced_noisy else selection.policy.mode
        self.became_noisy = False
        self.outcomes: dict[Arm, CandidateOutcome] = {}
        self.refused: set[Arm] = set()
        self.runs = 0
        self.wall_s = 0.0
        self.incumbent_runs: list[RunResult] = []
        self.aa: list[float] = []
        self.looks = history.holdout_looks
        self.determinism_checked = history.determinism_checked
        self.rounds_since_check = history.rounds_since_check + 1
        self.guard_baseline = dict(history.guard_baseline)
        self._positive = history.all_positive
        self._whole = history.all_whole
        self._serial = 0
        if self.best is not None:  # of counts, too, an estimate may be half a count
            self._positive = self._positive and self.best > 0
        for candidate in selection.candidates:
            if candidate.smoke.valid:
                self._see(candidate.smoke.value)

    def turn_noisy(self) -> None:
        """One tree gave two scores: what the one scores said of the candidates counts no more."""
        self.mode = "noisy"
        self.became_noisy = True
        self.outcomes = {arm: one for arm, one in self.outcomes.items() if arm in self.refused}

    # -------------------------------------------------------------------------------------- asking

    def run(self, arm: Arm, stage: Stage, block: int = 0, beside: Arm | None = None) -> Steps[RunResult]:
        """Ask for one run and return its result, a score or none."""
        result = yield AskRun(arm, stage, block, beside, self._serial)
        if not isinstance(result, RunResult):
            raise TypeError(f"asked for a run of {arm}, was told of a merge")
        self._serial += 1
        self.runs += 1
        self.wall_s += result.wall_s or 0.0
        if result.valid:
            self._see(result.value)
        return result

    def run_retried(self, arm: Arm, stage: Stage, block: int = 0) -> Steps[RunResult]:
        """Ask for one run, and for one more if that gave no score."""
        result = yield from self.run(arm, stage, block)
        return result if result.valid else (yield from self.run(arm, stage, block))

    def run_incumbent(self, stage: Stage) -> Steps[RunResult | None]:
        """Ask for a scored run of the incumbent; None if it failed twice in a row."""
        result = yield from self.run_retried(INCUMBENT, stage)
        if not result.valid:
            return None
        self.record_incumbent(result)
        return result

    def record_incumbent(self, result: RunResult) -> None:
        """Count a valid run of the incumbent, and its gap to the one before it."""
        if self.best is None:
            self.best = result.value
        if self.incumbent_runs:
            self.aa.append(abs(self.scale().gap(self.incumbent_runs[-1].value, result.value)))
        self.incumbent_runs.append(result)
        for rule in self.policy.guards:
            if rule.name in result.sub_scores:
                self.guard_baseline.setdefault(rule.name, result.sub_scores[rule.name])

    def merge(self, arm: Arm) -> Steps[bool]:
        """Ask for the merge of a candidate; returns whether it merged without a conflict."""
        result = yield AskMerge(arm)
        if not isinstance(result, MergeResult):
            raise TypeError(f"asked for a merge of {arm}, was told of a run")
        return not result.conflict

    def holdout(self) -> Steps[Refusal | None]:
        """Look at a would-be merge with the hold-out command; None if nothing speaks against it.

        One run of each arm a look. Refused if the merged tree fails or is worse by more than the tolerance.
        Where the incumbent itself fails there is no comparison, and what is unavailable is never a pass.
        Every look wears the hold-out out, so past the limit none is taken.
        """
        if not self.policy.holdout or self.looks >= self.policy.holdout_looks:
            return None
        self.looks += 1
        before = yield AskHoldout(INCUMBENT)
        after = yield AskHoldout(MERGED)
        if not isinstance(before, RunResult) or not isinstance(after, RunResult):
            raise TypeError("asked for a look at the hold-out, was told of a merge")
        if not before.valid:
            return Refusal("infrastructure", "hold-out command fails on the incumbent")
        if not after.valid:
            return Refusal("regression", "hold-out command fails on the merged tree")
        positive = min(before.value, after.value) > 0
        scale = Scale(self.policy.direction, logarithmic=positive, reference=before.value)
        gap = scale.gap(before.value, after.value)
        if gap < -scale.relative(self.policy.tolerance, absolute=self.policy.tolerance_absolute):
            return Refusal("regression", f"hold-out {percent(gap)}")
        return None

    # ------------------------------------------------------------------------------------- figures

    def scale(self) -> Scale:
        """How scores become gaps: logarithmic if the metric is continuous and every score was positive."""
        integer = self.policy.integer if self.policy.integer is not None else self._whole
        logarithmic = self._positive and not integer and not self.policy.pass_fail
        reference = 1.0 if self.policy.pass_fail else (self.best or 0.0)
        return Scale(self.policy.direction, logarithmic, reference)

    @property
    def tolerance(self) -> float:
        """The tolerance in units of a gap."""
        return self.scale().relative(self.policy.tolerance, absolute=self.policy.tolerance_absolute)

    @property
    def min_effect(self) -> float:
        """The smallest gain worth a merge: none is asked of a simplification."""
        if self.policy.accept == "non_inferior":
            return 0.0
        if self.policy.min_effect is not None:
            return self.policy.min_effect
        return NOISY_MIN_EFFECT if self.mode == "noisy" else 0.0

    @property
    def aa_on_record(self) -> tuple[float, ...]:
        """Sizes of gaps between runs of one incumbent, this session's last."""
        return (*self.history.aa_gaps, *self.aa)[-AA_KEPT:]

    def _see(self, score: float) -> None:
        self._positive = self._positive and score > 0
        self._whole = self._whole and score == int(score)

    # ------------------------------------------------------------------------------------- verdict

    def end(
        self,
        status: VerdictStatus,
        reason: str | None,
        *,
        winner: Arm | None = None,
        merged_runs: Sequence[RunResult] = (),
    ) -> Verdict:
        """Return the verdict of this round; the flows add what only they know.

        Args:
            status: Of the merge report.
            reason: Why nothing was merged.
            winner: The candidate whose merge is kept.
            merged_runs: Scored runs of the merged tree, if it is kept.
        """
        before = median([run.value for run in self.incumbent_runs]) if self.incumbent_runs else None
        after = median([run.value for run in merged_runs]) if merged_runs else None
        sessions = self._sessions(merged_runs)
        best_score = after if winner is not None else before
        best_interval: Interval | None = None
        if self.mode == "noisy":
            best_interval = _around(
                best_score, median_interval([score for session in sessions for score in session])
            )
        return Verdict(
            winner=winner,
            status=status,
            reason=reason,
            score_before=before,
            score_after=after,
            best_score=best_score,
            best_interval=best_interval,
            gain=None,
            regressions_detected=any(one.status == "regression" for one in self.outcomes.values()),
            outcomes=dict(self.outcomes),
            measurement=None,
            became_noisy=self.became_noisy,
            incumbent_broken=False,
            mode=self.mode,
            history=self._history(sessions, merged=winner is not None),
            runs=self.runs,
            wall_s=self.wall_s,
        )

    def broken(self) -> Verdict:
        """Return the verdict of a round in which the benchmark fails on the incumbent: nobody's fault."""
        for candidate in self.candidates:
            if candidate.arm not in self.outcomes:
                smoke = candidate.smoke
                found = CandidateOutcome("success", smoke.score, None, BROKEN, smoke.sub_scores)
                if not smoke.valid:
                    found = replace(failure(smoke, "infrastructure"), category="infrastructure", why=BROKEN)
                self.outcomes[candidate.arm] = found
        verdict = self.end("no_winner", BROKEN)
        history = replace(verdict.history, broken_rounds=self.history.broken_rounds + 1)
        return replace(verdict, incumbent_broken=True, history=history)

    def _sessions(self, merged_runs: Sequence[RunResult]) -> tuple[tuple[float, ...], ...]:
        if self.mode == "deterministic":
            return ()
        if merged_runs:  # a new incumbent: what the old one scored says nothing of it
            return (tuple(run.value for run in merged_runs),)
        if not self.incumbent_runs:
            return self.history.sessions
        return (*self.history.sessions, tuple(run.value for run in self.incumbent_runs))[-2:]

    def _history(self, sessions: tuple[tuple[float, ...], ...], *, merged: bool) -> SelectionHistory:
        return replace(
            self.history,
            aa_gaps=self.aa_on_record,
            merges=self.history.merges + merged,
            determinism_checked=self.determinism_checked,
            rounds_since_check=self.rounds_since_check,
            sessions=sessions,
            forced_noisy=self.history.forced_noisy or self.became_noisy,
            broken_rounds=0,
            all_positive=self._positive,
            all_whole=self._whole,
            guard_baseline=self.guard_baseline,
            holdout_looks=self.looks,
        )
