"""A round on a noisy benchmark: screen, then confirm the one finalist on its merged tree.

Theory of operation
-------------------
Two stages with different duties. The screen (`screen`) chooses one candidate, greedily and cheaply. The confirm
stage (`confirm`) proves, on fresh pairs, that its merged tree is better, with a chance of at most alpha to be
wrong whatever the noise. Nothing is ever compared with a remembered score, so a machine that became slower or
faster since misleads nobody; `best_score` is re-estimated in every session and is never a maximum.

One finalist a round: the next in line stands only if the one before could not be merged or would not run, when
no pair was spent on it. The outcome of each candidate and the words of the reports are made here.

Called by `selection`. Never uses a smoke run in a decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sid_daemon.core.measuring.confirm import End, Trial, confirm, measurement, scores
from sid_daemon.core.measuring.evidence import estimate, interval, pair_sd
from sid_daemon.core.measuring.screen import Entrant, in_line, outcome, screen
from sid_daemon.core.measuring.session import NO_SCORE, Session, failure, medians, screened_out
from sid_daemon.core.measuring.words import CandidateOutcome, Steps, Verdict
from sid_daemon.core.wording import percent


def calibrate(session: Session) -> Steps[bool]:
    """Run the incumbent to learn the noise of a benchmark that was thought deterministic.

    Returns:
        False if the incumbent failed twice in a row.
    """
    for _ in range(session.policy.calibration_runs):
        if (yield from session.run_incumbent("calibrate")) is None:
            return False
    return True


def noisy_round(session: Session) -> Steps[Verdict]:
    """Judge the candidates of one round."""
    entrants = _entrants(session)
    if not entrants:
        return _nobody(session, entrants)
    healthy = yield from screen(session, entrants)
    for one in entrants:
        session.outcomes[one.arm] = outcome(session, one)
    if not healthy:
        return _broken(session, entrants)
    unable: str | None = None
    for finalist in in_line(session, entrants):
        shift = session.tolerance if session.policy.accept == "non_inferior" else 0.0
        trial = Trial(session.scale(), shift)
        end = yield from confirm(session, trial, finalist.arm)
        if end.kind == "broken":
            return _broken(session, entrants)
        _judged(session, finalist, trial, end)
        if trial.before:
            return _tested(session, finalist, trial, end)
        unable = f"{finalist.arm}: {end.why}"
    return _nobody(session, entrants, unable)


def _entrants(session: Session) -> list[Entrant]:
    """Return who enters the screen; who does not has its outcome already."""
    entrants = []
    for candidate in session.candidates:
        smoke = candidate.smoke
        if candidate.arm in session.refused:
            continue
        if not smoke.valid:
            session.outcomes[candidate.arm] = failure(smoke, "logic_error")
        elif session.policy.accept == "non_inferior" and candidate.diff_lines >= 0:
            session.outcomes[candidate.arm] = CandidateOutcome(
                "success", smoke.score, None, "no fewer lines", dict(smoke.sub_scores)
            )
        else:
            entrants.append(Entrant(candidate))
    return entrants


def _judged(session: Session, finalist: Entrant, trial: Trial, end: End) -> None:
    """Record the finalist's outcome: the confirm stage speaks, where it came to a pair."""
    if end.kind == "failed" and end.run is not None:
        # Its own tree ran in the screen, so what the shell made of the exit is not the plan's fault alone.
        found = failure(end.run, "infrastructure")
        category = "timeout" if found.status == "timeout" else "infrastructure"
        session.outcomes[finalist.arm] = replace(found, category=category, sub_scores=medians(trial.after))
        return
    known = session.outcomes[finalist.arm]
    if not trial.before:
        session.outcomes[finalist.arm] = replace(known, why=end.why)
        return
    gaps = trial.gaps
    gain, (low, high) = estimate(gaps), interval(gaps)
    fallen = end.kind in {"guard", "holdout"}
    won = end.kind in {"improved", "fast"}
    worse = gain <= -session.tolerance or (high is not None and high < 0)
    regressed = fallen or (worse and not won)
    session.outcomes[finalist.arm] = CandidateOutcome(
        "regression" if regressed else "success",
        scores(trial.after),
        "regression" if regressed else None,
        None if won else end.why,
        medians(trial.after),
        {
            "mode": "noisy",
            "n": len(gaps),
            "gain": gain,
            "interval": [low, high],
            "p": None if end.kind == "fast" else trial.purse.p,
            "sd_pair": pair_sd(gaps),
            "samples": [run.value for run in trial.after],
        },
        guard_failed=end.kind == "guard",
    )


def _tested(session: Session, finalist: Entrant, trial: Trial, end: End) -> Verdict:
    """Return the verdict of a round whose finalist came to at least one pair."""
    gaps = trial.gaps
    fast = end.kind == "fast"
    if fast or end.kind == "improved":
        verdict = session.end("merged", None, winner=finalist.arm, merged_runs=trial.after)
    else:
        verdict = session.end("no_improvement", end.why or "the merged tree fails")
    return replace(
        verdict,
        score_before=scores(trial.before),
        score_after=scores(trial.after),
        gain=estimate(gaps),
        measurement=measurement(session, trial, fast=fast),
        finalist=finalist.arm,
        interval=interval(gaps),
        pairs=len(gaps),
        p=None if fast else trial.purse.p,
        sd_pair=pair_sd(gaps),
        fast=fast,
    )


def _nobody(session: Session, entrants: Sequence[Entrant], unable: str | None = None) -> Verdict:
    """Return the verdict of a round in which nobody came to a pair."""
    found = [one.status for one in session.outcomes.values()]
    measured = [one for one in entrants if one.gaps]
    best = max(measured, key=lambda one: one.gain, default=None)
    gain = percent(best.gain) if best else None
    shown = f": best {gain}" if gain else ""
    if all(status in {"error", "timeout"} for status in found):
        verdict = session.end("no_winner", unable or NO_SCORE)
    elif all(status != "success" for status in found):
        verdict = session.end("no_winner", unable or screened_out(gain))
    elif best is None and session.policy.accept == "non_inferior":
        verdict = session.end("no_improvement", unable or "no candidate has fewer lines")
    else:
        verdict = session.end("no_improvement", unable or f"no gain seen in the screen{shown}")
    if best is None:
        return verdict
    return replace(verdict, gain=best.gain, finalist=best.arm)


def _broken(session: Session, entrants: Sequence[Entrant]) -> Verdict:
    """Return the verdict of a round whose incumbent fails: no candidate is blamed for that."""
    for one in entrants:
        if one.failed is not None:
            del session.outcomes[one.arm]
    return session.broken()
