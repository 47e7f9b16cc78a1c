"""A run and its rounds as the rows that RPC results carry.

Made of the run's state and of the round's documents, for `run.list`, `run.status` and `run.history`. Pure: what
actors are doing right now is handed in by the conductor, which alone knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sid_daemon.core.longterm.audit import headline
from sid_daemon.core.longterm.ladder import rung_of
from sid_daemon.core.measuring.evidence import Direction, Scale
from sid_daemon.core.rounds.round import seconds_between
from sid_daemon.core.state import RunState
from sid_daemon.core.transition import spent_by_now
from sid_daemon.figures import difference
from sid_daemon.report.text import gained, status_notes
from sid_daemon.store.views_state import current_step
from sid_protocol.events import RunMeasured
from sid_protocol.records import IterationHistory, MergeReport
from sid_protocol.settings import Settings
from sid_protocol.status import (
    ActorRow,
    BudgetRow,
    Counters,
    ForecastRow,
    LadderRow,
    MeasuredRun,
    RoleSpend,
    RoundSummary,
    RunRow,
    Spend,
)


def run_row(
    state: RunState,
    *,
    actors: Sequence[ActorRow] = (),
    sandbox: str = "",
    now: str | None = None,
    forecast: ForecastRow | None = None,
) -> RunRow:
    """Return one run as `run.list` and `run.status` tell of it.

    Args:
        state: The run.
        actors: Of the round under way.
        sandbox: How jobs are contained, or why they are not.
        now: The present, ISO 8601, so that an active run's time goes on; None counts whole rounds only.
        forecast: What a round will cost.
    """
    settings = state.settings
    return RunRow(
        run_id=state.run_id,
        repo=state.repo,
        topic=state.topic,
        root=state.root,
        status=state.status,
        iteration=state.iteration,
        max_iterations=settings.max_iterations,
        current_step=current_step(state),
        best_score=state.best_score,
        baseline=state.baseline_score,
        interval=state.best_interval,
        counters=_counters(state),
        budget=_budget(state, now, forecast),
        actors=list(actors),
        reason=state.reason,
        goal_slug=state.goal_slug,
        target_branch=settings.target_branch,
        sandbox=sandbox,
        notes=status_notes(state),
        metric=settings.primary_metric,
        direction=settings.benchmark_direction,
        target=settings.target_value,
        audit=headline(state.audited) if state.audited else None,
        ladder=_ladder(state),
        gain=gained(state),
    )


def _ladder(state: RunState) -> LadderRow | None:
    rung = rung_of(state.dry_rounds)
    if rung is None:
        return None
    return LadderRow(step=rung.step, of=rung.of, name=rung.name, told=rung.told, rounds=rung.dry)


def _counters(state: RunState) -> Counters:
    settings = state.settings
    kills = sum(1 for one in state.round.executions.values() if one.kill is not None) if state.round else 0
    return Counters(
        plateau=state.plateau_count,
        plateau_window=settings.plateau_window,
        circuit_breaker=state.breaker_count,
        circuit_breaker_threshold=settings.circuit_breaker_threshold,
        blocked=state.blocked_count,
        blocked_limit=settings.blocked_limit,
        force_kills=kills,
        kill_threshold=settings.kill_threshold,
    )


def _budget(state: RunState, now: str | None, forecast: ForecastRow | None) -> BudgetRow:
    budget, by_now = state.settings.budget, spent_by_now(state)
    spent = by_now.values()
    wall_s = state.wall_s
    if now is not None and state.running_since is not None:
        wall_s += seconds_between(state.running_since, now)
    models = state.settings.agent_backend != "local"
    return BudgetRow(
        usd=Spend(spent=_known(one.usd for one in spent), limit=budget.usd),
        tokens=Spend(
            spent=_known(tokens for one in spent for tokens in (one.input_tokens, one.output_tokens)),
            limit=budget.tokens,
        ),
        # Without a model no call is made that anybody pays for.
        calls=Spend(spent=sum(one.calls for one in spent) if models else None, limit=budget.calls),
        wall_s=Spend(spent=wall_s, limit=budget.wall_s),
        roles=[RoleSpend(role=role, **asdict(one)) for role, one in by_now.items()],
        forecast=forecast,
    )


def _known(amounts: Iterable[float | None]) -> float | None:
    """Return the sum of what is known, None if nothing is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _exact_gain(history: IterationHistory, direction: Direction) -> float | None:
    """Return what a winner gained whose score is exact, as the rule reckons it; None without one."""
    before, after = history.baseline_score, history.winner.score if history.winner else None
    if before is None or after is None:
        return None
    whole = before == int(before) and after == int(after)
    return Scale(direction, min(before, after) > 0 and not whole, before).gap(before, after)


def round_summary(
    history: IterationHistory, report: MergeReport, direction: Direction = "higher_is_better"
) -> RoundSummary:
    """Return one round as a row of the history.

    Args:
        history: Of the round.
        report: Its merge report.
        direction: Which way the metric is better, where the report does not say which way it was then.
    """
    winner = history.winner
    # A noisy winner was measured beside the incumbent: what that scored on another day says nothing of it.
    tested_against = report.winner.score_before if report.winner else None
    before = history.baseline_score if tested_against is None else tested_against
    tested: dict[str, Any] = report.measurement or {}
    tokens = _known((history.cost.input_tokens, history.cost.output_tokens))
    ours = (report.winner.model_extra or {}) if report.winner else {}
    return RoundSummary(
        iteration=history.iteration,
        status=report.status,
        baseline_score=history.baseline_score,
        score=winner.score if winner else None,
        delta=difference(winner.score, before)
        if winner is not None and winner.score is not None and before is not None
        else None,
        family=winner.approach_family if winner else None,
        hypothesis=winner.hypothesis if winner else None,
        commit=ours.get("commit"),
        candidates=len(history.losers) + (winner is not None),
        rejected=len(history.rejected_plans),
        force_kills=len(history.force_kills),
        started_at=history.started_at,
        ended_at=history.ended_at,
        duration_s=seconds_between(history.started_at, history.ended_at)
        if history.started_at and history.ended_at
        else None,
        reason=report.reason,
        gain=tested.get("gain") if tested else _exact_gain(history, ours.get("direction", direction)),
        ci=tested.get("ci95"),
        n=tested.get("n_pairs"),
        p=tested.get("p"),
        tokens=None if tokens is None else int(tokens),
        usd=history.cost.usd,
        input_tokens=history.cost.input_tokens,
        cached_tokens=history.cost.cached_tokens,
        output_tokens=history.cost.output_tokens,
        roles=[
            RoleSpend.model_validate(one.model_dump(include=set(RoleSpend.model_fields)))
            for one in history.costs
        ],
    )


def measured_run(event: RunMeasured) -> MeasuredRun:
    """Return one benchmark run as a row of its round."""
    return MeasuredRun(
        stage=event.stage,
        block=event.block,
        arm=event.arm,
        tree=event.tree,
        score=event.score,
        sub_scores=event.sub_scores,
        status=event.status,
        exit=event.exit_code,
        cpu_s=event.cpu_s,
        wall_s=event.wall_s,
        load1=event.load1,
        at=event.started_at,
        why=event.why,
    )


def blank_counters(settings: Settings) -> Counters:
    """Return the counters of a run of which nothing is known, beside the settings' limits."""
    return Counters(
        plateau_window=settings.plateau_window,
        circuit_breaker_threshold=settings.circuit_breaker_threshold,
        blocked_limit=settings.blocked_limit,
        kill_threshold=settings.kill_threshold,
    )


def blank_budget() -> BudgetRow:
    """Return the cost of a run of which nothing is known."""
    return BudgetRow()
