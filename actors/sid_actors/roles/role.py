"""What all role actors have in common: their tools, one turn of an agent, and what becomes of a failed one.

A turn is asked once; the core decides on repeating. A back end that fails or answers junk is `AgentFailed`;
git, the journal or the disk failing is `WorkFailed`, since another agent would fare no better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from sid_actors.actor import Actor, E, M
from sid_actors.backends.base import Backend, Role, Turn
from sid_actors.jobs.job import Mount
from sid_actors.prompts.compose import compose
from sid_actors.track import Track
from sid_actors.watching.activity import ActivityLog
from sid_actors.work_failed import work_failed
from sid_actors.workbench.base import Workbench
from sid_protocol.commands import (
    AdvisePlan,
    AgentCommand,
    Command,
    DraftPlan,
    JudgePlan,
    Research,
    RunPlan,
    agent_of,
    role_of,
)
from sid_protocol.errors import BackendError, BudgetSpent, SidError
from sid_protocol.events import AgentFailed, WorkFailed
from sid_protocol.ids import executor_number, planner_number
from sid_protocol.records import Cost, Plan, Record, agent_schema

R = TypeVar("R", bound=Record)


@dataclass(slots=True, kw_only=True, eq=False)
class RoleActor(Actor[M, E]):
    """An actor that asks an agent.

    Attributes:
        backend: Who answers.
        workbench: Where the agent reads or edits.
        track: What it may know of the run.
    """

    backend: Backend
    workbench: Workbench
    track: Track


@dataclass(frozen=True, slots=True)
class Asked(Generic[R]):
    """An agent's answer as a record, and what it took."""

    record: R
    cost: Cost
    duration_s: float


async def ask(
    actor: RoleActor[Any, Any],
    command: Research | DraftPlan | AdvisePlan | JudgePlan,
    activity: ActivityLog,
    read: Callable[[str], R],
) -> Asked[R] | AgentFailed | WorkFailed:
    """Ask an agent that only reads, once, and read its answer.

    Args:
        actor: Whose tools are used.
        command: What is asked.
        activity: Where its signs of life are noted.
        read: Reads the answer's text; raises `BackendError` on junk.
    """
    started = activity.clock.now()
    try:
        cwd = await actor.workbench.view(command.head)
        turn = await make_turn(command, actor.track, cwd, shown=await actor.workbench.shown_paths(cwd))
        answer = await actor.backend.answer(turn, activity)
        record = read(answer.text)
    except (SidError, OSError) as error:
        return failed(command, error, activity, started)
    return Asked(record, answer.cost, activity.clock.now() - started)


def failed(
    command: Command, error: SidError | OSError, activity: ActivityLog, started: float
) -> AgentFailed | WorkFailed:
    """Return the event for a turn that ended with an error.

    Args:
        command: The turn's command.
        error: What was raised.
        activity: The turn's activity, for what it had cost by then.
        started: When the turn began, in seconds of the activity's clock.
    """
    if isinstance(error, BackendError):
        spent = activity.clock.now() - started
        return AgentFailed(
            cause=command.id,
            why=str(error),
            cost=activity.cost,
            duration_s=spent,
            budget=error.key if isinstance(error, BudgetSpent) else None,
            final=not error.retryable,
        )
    return work_failed(command.id, error)


async def make_turn(
    command: AgentCommand,
    track: Track,
    cwd: str,
    *,
    shown: tuple[Mount, ...],
    sealed: tuple[str, ...] = (),
) -> Turn:
    """Put together the one question that a command asks of an agent; see `Turn` for the arguments.

    Raises:
        StoreError: the track's history could not be read.
    """
    role = role_of(command)
    plan = getattr(command, "plan", None)
    prompt = await compose(command, track)
    return Turn(
        role=cast("Role", role),
        agent_id=agent_of(command),
        iteration=command.iteration,
        prompt=prompt.text,
        shared=prompt.shared,
        schema=agent_schema(role),
        cwd=cwd,
        deadline_s=float(getattr(track.settings.deadlines, role)),
        track=track,
        sealed=sealed,
        plan=plan if isinstance(plan, Plan) else None,
        number=_number(command),
        guard_output=command.guard_output if isinstance(command, RunPlan) else "",
        shown=shown,
    )


def _number(command: AgentCommand) -> int:
    """Return which of those that play its role in this round is asked."""
    match command:
        case DraftPlan():
            return planner_number(command.planner)
        case RunPlan():
            return executor_number(command.executor)
        case _:
            return 1
