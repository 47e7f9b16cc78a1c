"""A round on a benchmark that gives one tree one score: one run a candidate, one a merge attempt.

Theory of operation
-------------------
Where a tree has one score, a comparison needs no statistics: any strict gain is a gain, however small, and a
tie is none, so a tie is never merged (accepting ties, the rule of the common tools, merges changes without
effect in every round). What needs care is the supposition itself. It is tested where it costs nothing, at
each re-benchmark of a merge (the same tree as the candidate's), and where it costs little: twice more for both
arms before a run's first merge, and one run of the incumbent every tenth round, which also notices a machine
or a network that has changed. One difference, ever, and the run is noisy for good: this round goes on by the
rule of `noisy`, after a calibration.

Called by `selection`. The candidates' runs were made before the round's measuring began.
"""

from __future__ import annotations

from dataclasses import replace

from sid_daemon.core.measuring.evidence import beats
from sid_daemon.core.measuring.guards import refused_by_scores
from sid_daemon.core.measuring.session import NO_SCORE, Session, failure, screened_out
from sid_daemon.core.measuring.words import (
    MERGED,
    Candidate,
    CandidateOutcome,
    OutcomeStatus,
    RunResult,
    Steps,
    Verdict,
)
from sid_daemon.core.wording import percent, share

# Rounds between two runs of the incumbent: a tenth of a run a round, and a change of the machine misleads
# at most ten rounds.
CHECK_EVERY = 10
# More runs of each arm before a run's first merge: with calibration's three this makes five equal runs.
CHECK_RUNS = 2


def deterministic_round(session: Session) -> Steps[Verdict | None]:
    """Judge the candidates by their one score.

    Returns:
        The verdict, or None if one tree gave two scores: the benchmark is noisy.
    """
    if _check_is_due(session):
        known = session.best
        session.rounds_since_check = 0
        result = yield from session.run_incumbent("check")
        if result is None:
            return session.broken()
        if known is not None and result.value != known:
            return None
    session.outcomes.update({one.arm: _judge(session, one) for one in session.candidates})
    reason: str | None = None
    confirmed: float | None = None
    for candidate in _contenders(session):
        if not (yield from session.merge(candidate.arm)):
            reason = _refuse(session, candidate, "merge conflict")
            continue
        merged = yield from session.run(MERGED, "merge")
        if not merged.valid:
            session.outcomes[candidate.arm] = failed = failure(merged, "infrastructure")
            session.refused.add(candidate.arm)
            reason = f"{candidate.arm}: {failed.why}"
            continue
        if merged.value != candidate.smoke.value:
            return None
        confirmed = merged.value
        refused = refused_by_scores(session.policy.guards, session.guard_baseline, merged)
        if refused is not None:
            reason = _refuse(session, candidate, refused, category="regression", guard=True)
            continue
        if not session.determinism_checked:
            steady = yield from _check_determinism(session, merged.value)
            if steady is None:
                return session.broken()
            if not steady:
                return None
            session.determinism_checked = True
        look = yield from session.holdout()
        if look is not None:
            reason = _refuse(session, candidate, look.why, category=look.category)
            continue
        return _merged(session, candidate, merged)
    return replace(_nobody(session, reason), score_after=confirmed)


def _check_is_due(session: Session) -> bool:
    """Return whether the incumbent is to be run before anything else."""
    unknown = any(rule.name not in session.guard_baseline for rule in session.policy.guards)
    return session.best is None or unknown or session.rounds_since_check >= CHECK_EVERY


def _check_determinism(session: Session, merged_score: float) -> Steps[bool | None]:
    """Run both arms again; returns whether all scores are as before, None if the incumbent fails."""
    session.rounds_since_check = 0
    for _ in range(CHECK_RUNS):
        known = session.best
        incumbent = yield from session.run_incumbent("check")
        if incumbent is None:
            return None
        merged = yield from session.run(MERGED, "check")
        # A tree that scored once and fails now has two results, too.
        if incumbent.value != known or not merged.valid or merged.value != merged_score:
            return False
    return True


def _gap(session: Session, candidate: Candidate) -> float:
    return session.scale().gap(session.best or 0.0, candidate.smoke.value)


def _judge(session: Session, candidate: Candidate) -> CandidateOutcome:
    """Return what one run says of a candidate, as if it did not win."""
    smoke = candidate.smoke
    if not smoke.valid:
        return failure(smoke, "logic_error")
    gap = _gap(session, candidate)
    strict = session.policy.accept == "improve"
    worse = session.best is not None and beats(session.policy.direction, session.best, smoke.value)
    if worse and (strict or gap < -session.tolerance):
        return CandidateOutcome(
            "regression",
            smoke.score,
            "regression",
            f"{percent(gap)} against the incumbent",
            dict(smoke.sub_scores),
        )
    if strict and smoke.value == session.best:
        why = "same score as the incumbent"
    elif not strict and candidate.diff_lines >= 0:
        why = "no fewer lines"
    elif gap < session.min_effect:
        why = f"gain below {share(session.min_effect)}"
    else:
        why = "a better one was merged"
    return CandidateOutcome("success", smoke.score, None, why, dict(smoke.sub_scores))


def _contenders(session: Session) -> list[Candidate]:
    """Return the candidates that may be merged, best first; ties by fewer lines, then by number."""
    direction = session.policy.direction
    able = []
    for candidate in session.candidates:
        if session.outcomes[candidate.arm].status != "success":
            continue
        if session.policy.accept == "non_inferior":
            if candidate.diff_lines < 0:
                able.append(candidate)
        elif (
            session.best is not None
            and beats(direction, candidate.smoke.value, session.best)
            and _gap(session, candidate) >= session.min_effect
        ):
            able.append(candidate)
    sign = -1.0 if direction == "higher_is_better" else 1.0
    return sorted(able, key=lambda one: (sign * one.smoke.value, one.diff_lines))


def _refuse(
    session: Session, candidate: Candidate, why: str, *, category: str | None = None, guard: bool = False
) -> str:
    """Record why a contender was not merged; returns it for the round's reason."""
    session.refused.add(candidate.arm)
    outcome = session.outcomes[candidate.arm]
    status: OutcomeStatus = "regression" if category == "regression" else "success"
    session.outcomes[candidate.arm] = replace(
        outcome, status=status, category=category, why=why, guard_failed=guard
    )
    return f"{candidate.arm}: {why}"


def _merged(session: Session, winner: Candidate, merged: RunResult) -> Verdict:
    gap = _gap(session, winner)
    session.outcomes[winner.arm] = replace(session.outcomes[winner.arm], why=None)
    verdict = session.end("merged", None, winner=winner.arm, merged_runs=[merged])
    return replace(verdict, score_before=session.best, gain=gap, finalist=winner.arm)


def _nobody(session: Session, reason: str | None) -> Verdict:
    scored = [one for one in session.candidates if one.smoke.valid]
    if not scored:
        verdict = session.end("no_winner", NO_SCORE)
        return replace(verdict, score_before=session.best, best_score=session.best)
    best = max(scored, key=lambda one: _gap(session, one))
    gap = _gap(session, best)
    if reason is None and all(one.status != "success" for one in session.outcomes.values()):
        verdict = session.end("no_winner", screened_out(percent(gap)))
    else:
        why = reason or f"no candidate is better than the incumbent: best {percent(gap)}"
        verdict = session.end("no_improvement", why)
    return replace(verdict, score_before=session.best, best_score=session.best, gain=gap, finalist=best.arm)
