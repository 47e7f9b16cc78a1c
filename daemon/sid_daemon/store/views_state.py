"""The two views of where a run is: `iteration_state.json` and `agent-settings.json`.

Pure functions of the state, called by `views`. Other self-improve tools resume from these files, so
`current_step` is the earliest step that is not finished, although the steps of a round overlap.
"""

from __future__ import annotations

import functools
from typing import Literal

from sid_daemon.core.state import Round, RunState
from sid_daemon.layout import brief_path, history_path, plan_path, result_path
from sid_protocol.records import (
    AgentSettings,
    ExecutionState,
    ExecutorState,
    IterationState,
    PlannerState,
    PlanningState,
    RecordingState,
    ResearchState,
    Step,
    StepStatus,
    TournamentState,
)

IterationStatus = Literal["in_progress", "completed", "failed", "interrupted"]
_KEPT = 256
FINISHED: frozenset[StepStatus] = frozenset({"completed", "failed", "skipped"})


def agent_settings(state: RunState) -> AgentSettings:
    """Return contract 10 of a run; a run exists only when goal, benchmark, harness and trust are set."""
    known = AgentSettings(
        trust_confirmed=True,
        si_setting_goal=True,
        si_setting_benchmark=True,
        si_setting_harness=True,
        iterations=state.completed,
        best_score=state.best_score,
        current_milestone=state.standing.milestone,
        current_phase=state.standing.phase,
        plateau_consecutive_count=state.plateau_count,
        circuit_breaker_count=state.breaker_count,
        status=state.status,
        goal_slug=state.goal_slug,
        measurement=_best_ci(state) if state.is_noisy else None,
    )
    return known.model_copy(update=state.theirs) if state.theirs else known


def _best_ci(state: RunState) -> dict[str, object]:
    return {"best_ci": list(state.best_interval) if state.best_interval else None}


def iteration_state(state: RunState, updated_at: str) -> IterationState | None:
    """Return contract 8 of the round under way; None between rounds.

    Args:
        state: The run.
        updated_at: When it last changed, ISO 8601.
    """
    now = state.round
    if now is None:
        return None
    return _iteration(now, _status(state), updated_at, closing=_is_closing(state, now))


def ended_iteration(now: Round, status: IterationStatus, updated_at: str) -> IterationState:
    """Return contract 8 of a round that is over.

    Args:
        now: The round as it was last.
        status: `completed` when it is recorded; `interrupted` when it was given up before it began.
        updated_at: When it ended, ISO 8601.
    """
    done = _iteration(now, status, updated_at, closing=status == "completed")
    if status != "completed":
        return done
    recording = RecordingState(
        status="completed",
        history_path=history_path(now.iteration),
        visualization_updated=True,
        cleanup_done=True,
    )
    return done.model_copy(update={"recording": recording, "current_step": "stop_check"})


def current_step(state: RunState) -> Step | None:
    """Return the earliest step of the round that is not finished; None between rounds."""
    now = state.round
    if now is None:
        return None
    tournament = _tournament(now, closing=_is_closing(state, now))
    return _step(now, _planning_status(now), _execution_status(now), tournament.status)


def steps_begun(state: RunState) -> set[tuple[int, str]]:
    """Return the steps of the round under way that have begun, as `(round, step)`; they overlap."""
    now = state.round
    if now is None:
        return set()
    reviewed = any(slot.status not in ("drafting", "failed") for slot in now.slots.values())
    signs = {
        "research": now.research != "pending",
        "planning": bool(now.slots),
        "critic_review": reviewed,
        "execution": bool(now.executions),
        "tournament": now.selection is not None,
        "recording": f"r{now.iteration}.close" in state.outstanding,
    }
    return {(now.iteration, step) for step, begun in signs.items() if begun}


def _status(state: RunState) -> IterationStatus:
    if state.status == "user_stopped":
        return "interrupted"
    return "failed" if state.status == "failed" else "in_progress"


def _is_closing(state: RunState, now: Round) -> bool:
    return f"r{now.iteration}.close" in state.outstanding


def _iteration(now: Round, status: IterationStatus, updated_at: str, *, closing: bool) -> IterationState:
    research = ResearchState(
        status=now.research,
        output_path=brief_path(now.iteration) if now.brief else None,
        completed_at=now.research_done_at,
    )
    planning, execution = _planning(now), _execution(now)
    tournament = _tournament(now, closing=closing)
    return IterationState(
        iteration=now.iteration,
        status=status,
        current_step=_step(now, planning.status, execution.status, tournament.status),
        started_at=now.started_at,
        updated_at=updated_at,
        research=research,
        planning=planning,
        execution=execution,
        tournament=tournament,
        recording=RecordingState(status="in_progress" if closing else "pending"),
        user_ideas_consumed=list(now.ideas),
    )


def _step(now: Round, planning: StepStatus, execution: StepStatus, tournament: StepStatus) -> Step:
    if now.research not in FINISHED:
        return "research"
    if planning not in FINISHED:
        drafting = any(slot.status == "drafting" for slot in now.slots.values())
        return "planning" if drafting or not now.slots else "critic_review"
    if execution not in FINISHED:
        return "execution"
    return "tournament" if tournament not in FINISHED else "recording"


def _is_planned(now: Round) -> bool:
    """Say whether every plan has its verdict; a blocked round has no more need of one."""
    return now.planning_done_at is not None or now.execution_done_at is not None


def _planning_status(now: Round) -> StepStatus:
    if _is_planned(now):
        return "completed" if any(slot.plan for slot in now.slots.values()) else "failed"
    return "in_progress" if now.slots else "pending"


def _planning(now: Round) -> PlanningState:
    return PlanningState(
        status=_planning_status(now),
        plans={
            slot.planner: _planner(now.iteration, slot.planner, slot.status, planned=slot.plan is not None)
            for slot in now.slots.values()
        },
        approved_count=len(now.approved),
        completed_at=(now.planning_done_at or now.execution_done_at) if _is_planned(now) else None,
    )


@functools.lru_cache(_KEPT)  # each event tells of all of them again
def _planner(iteration: int, planner: str, slot: str, *, planned: bool) -> PlannerState:
    status: StepStatus = "completed"
    if slot == "drafting":
        status = "in_progress"
    elif slot == "failed":
        status = "failed"
    return PlannerState(
        status=status,
        output_path=plan_path(iteration, planner) if planned else None,
        critic_approved=slot == "approved" if slot in ("approved", "rejected") else None,
    )


def _execution_status(now: Round) -> StepStatus:
    if now.execution_done_at is not None:
        return "completed" if now.executions else "skipped"
    return "in_progress" if now.executions else "pending"


def _execution(now: Round) -> ExecutionState:
    return ExecutionState(
        status=_execution_status(now),
        executors={
            one.executor: _executor(
                now.iteration, one.executor, one.plan.plan_id, one.status, one.result, one.score
            )
            for one in now.executions.values()
        },
        completed_at=now.execution_done_at,
    )


@functools.lru_cache(_KEPT)  # as above
def _executor(
    iteration: int, executor: str, plan_id: str, at: str, result: str | None, score: float | None
) -> ExecutorState:
    status: StepStatus = "in_progress"
    if at == "waiting":
        status = "pending"
    elif at == "done":
        status = "completed" if result in ("success", "regression") else "failed"
    return ExecutorState(
        status=status,
        plan_id=plan_id,
        output_path=result_path(iteration, executor) if at == "done" else None,
        benchmark_score=score,
    )


def _tournament(now: Round, *, closing: bool) -> TournamentState:
    if now.execution_done_at is None:
        return TournamentState()
    if now.selection is None:
        return TournamentState(status="skipped", completed_at=now.verdict_at)
    if not closing:
        return TournamentState(status="in_progress")
    won = now.verdict if now.verdict and now.winner_commit else None
    return TournamentState(
        status="completed",
        winner=won.winner if won else None,
        winner_score=won.score_after if won else None,
        completed_at=now.verdict_at,
    )
