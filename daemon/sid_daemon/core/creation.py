"""How a run begins, and begins anew: its first state, and what stays of it at another `init`.

Called by `step` for `RunCreated` alone. Pure.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from sid_daemon.core.longterm.audit import Audited
from sid_daemon.core.measuring.words import SelectionHistory
from sid_daemon.core.state import RunState
from sid_daemon.core.transition import spent_by_now
from sid_protocol.events import CarriedOver, RunCreated
from sid_protocol.settings import Settings


def create(event: RunCreated) -> RunState:
    """Return the state of a run that `init` has just made."""
    over = event.carried_over or CarriedOver()
    history = learnt(event.calibration)
    mode = event.settings.measurement.mode
    return RunState(
        run_id=event.run_id,
        repo=event.repo,
        root=event.root,
        topic=event.topic,
        goal_slug=event.goal_slug,
        settings=event.settings,
        created_at=event.at,
        baseline_score=event.baseline_score if over.baseline_score is None else over.baseline_score,
        baseline_commit=event.baseline_commit,
        first_commit=over.first_commit or event.baseline_commit,
        head=event.baseline_commit,
        best_score=event.baseline_score,
        noisy=mode == "noisy" or not event.deterministic,
        replay_of=event.replay_of,
        history=replace(history, merges=over.merges, holdout_looks=over.holdout_looks),
        run_timeout_s=event.calibration.get("run_timeout_s"),
        iteration=over.iterations,
        completed=over.iterations,
        plateau_count=over.plateau_count,
        breaker_count=over.breaker_count,
        winner_families=over.winner_families,
        summed_gain=over.summed_gain,
        summed_score=over.summed_score,
        audited=_audited(over.audited),
        audited_merges=over.audited_merges,
        theirs=over.theirs,
    )


def carried_over(state: RunState) -> CarriedOver:
    """Return what of a run's time before its newest `init` a replay of the time since begins with; `create` reads it."""
    return CarriedOver(
        iterations=state.completed,
        best_score=state.best_score,
        plateau_count=state.plateau_count,
        breaker_count=state.breaker_count,
        winner_families=state.winner_families,
        baseline_score=state.baseline_score,
        first_commit=state.first_commit,
        merges=state.history.merges,
        summed_gain=state.summed_gain,
        summed_score=state.summed_score,
        audited=asdict(state.audited) if state.audited else None,
        audited_merges=state.audited_merges,
        holdout_looks=state.history.holdout_looks,
    )


def learnt(calibration: dict[str, Any]) -> SelectionHistory:
    """Return what set-up learned of the noise; its values come back from JSON as lists."""
    values: dict[str, Any] = dict(calibration.get("history", {}))
    values["aa_gaps"] = tuple(values.get("aa_gaps", ()))
    values["sessions"] = tuple(tuple(session) for session in values.get("sessions", ()))
    return SelectionHistory(**values)


def recreate(state: RunState, created: RunState) -> RunState:
    """Return the state after another `init` of the same run: new settings, same history.

    Where scores can still be compared, the first baseline stays what improvement is told against.
    """
    alike = _measure_alike(state.settings, created.settings)
    if alike:
        created = _told_against_the_first(state, created)
    return replace(
        created,
        created_at=state.created_at,
        # A round that was under way is taken back: it was planned against another baseline. Its ideas were not tried.
        iteration=state.completed,
        completed=state.completed,
        ideas_left=state.round.ideas if state.round else state.ideas_left,
        plateau_count=state.plateau_count,
        breaker_count=state.breaker_count,
        blocked_count=state.blocked_count,
        winner_families=state.winner_families,
        tried=state.tried,
        dry_rounds=state.dry_rounds if alike else 0,
        spent=spent_by_now(state),
        wall_s=state.wall_s,
        starts=state.starts,
        lessons=state.lessons,
        theirs=state.theirs,
        status=state.status,
        reason=state.reason,
    )


def _told_against_the_first(state: RunState, created: RunState) -> RunState:
    """Return the new state with the first baseline and, on the same branch, the wins since."""
    same_holdout = created.settings.holdout_command == state.settings.holdout_command
    looks = state.history.holdout_looks if same_holdout else 0
    created = replace(
        created,
        baseline_score=state.baseline_score,
        first_commit=state.first_commit,
        history=replace(created.history, holdout_looks=looks),
    )
    if created.goal_slug != state.goal_slug:
        return created
    return replace(
        created,
        history=replace(created.history, merges=state.history.merges),
        summed_gain=state.summed_gain,
        summed_score=state.summed_score,
        audited=state.audited,
        audited_merges=state.audited_merges,
    )


def _audited(found: dict[str, Any] | None) -> Audited | None:
    """Return what an earlier audit found; its interval comes back from JSON as a list."""
    if found is None:
        return None
    interval = found["interval"]
    return Audited(**{**found, "interval": None if interval is None else tuple(interval)})


def _measure_alike(old: Settings, new: Settings) -> bool:
    """Say whether scores under two settings can be compared."""
    keys = ("benchmark_command", "benchmark_format", "benchmark_direction", "primary_metric")
    return all(getattr(old, key) == getattr(new, key) for key in keys)
