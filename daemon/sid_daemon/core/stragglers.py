"""How work is ended before it is done: stragglers one by one, and all work of a round that is blocked.

    deadline passes → Inspect → evidence → reason and record → Kill → killed → the record is complete

Part of the round machine; pure. The reason is `classify`'s; when a round is blocked is `execution`'s to say.
"""

from __future__ import annotations

from sid_daemon.core import deadlines
from sid_daemon.core.classify import classify
from sid_daemon.core.rounds import execution, planning
from sid_daemon.core.transition import Transition
from sid_protocol.commands import (
    AdvisePlan,
    AgentCommand,
    AnyCommand,
    DraftPlan,
    Inspect,
    JudgePlan,
    Kill,
    Measure,
    RunGuards,
    RunPlan,
    agent_of,
    role_of,
)
from sid_protocol.events import Activity, AgentKilled, DeadlinePassed, EvidenceTaken
from sid_protocol.records import ForceKill


def on_deadline(transition: Transition, event: DeadlinePassed) -> None:
    """Look at a straggler before it is ended."""
    command = transition.state.outstanding.get(event.target)
    if isinstance(command, AgentCommand) and command.id not in transition.round.killing:
        transition.issue(
            Inspect(
                id=f"{command.id}.inspect.{transition.state.starts}",
                iteration=command.iteration,
                target=command.id,
                clock=event.clock,
            )
        )


def on_evidence(transition: Transition, event: EvidenceTaken) -> None:
    """Decide the reason, write the record, end the straggler."""
    command = transition.state.outstanding.get(event.target)
    if not isinstance(command, AgentCommand):
        return
    record = _kill_record(transition, command, event.activity)
    transition.set_round(killing={**transition.round.killing, command.id: record})
    transition.issue(
        Kill(
            id=f"{command.id}.kill.{transition.state.starts}",
            iteration=command.iteration,
            target=command.id,
            reason=record.reason,
        )
    )


def _kill_record(transition: Transition, command: AgentCommand, activity: Activity) -> ForceKill:
    return ForceKill(
        agent_id=agent_of(command),
        role=role_of(command),
        iteration=command.iteration,
        reason=classify(activity),
        last_activity=activity.last_activity,
        last_tool=activity.last_tool,
        repeats=activity.repeats,
        waiting_in=activity.process_states[-1] if activity.process_states else None,
        snippet=activity.snippet[-200:],
        deadline_s=activity.deadline_s,
        elapsed_s=round(activity.elapsed_s, 3),
        processes_killed=0,
        at=transition.at,
    )


def _unseen(transition: Transition, command: AgentCommand, event: AgentKilled) -> ForceKill:
    """Return the record of a kill whose evidence was lost; a killed turn must still end."""
    return ForceKill(
        agent_id=agent_of(command),
        role=role_of(command),
        iteration=command.iteration,
        reason=event.reason,
        deadline_s=deadlines.hard_s(command, transition.state.settings),
        elapsed_s=0.0,
        processes_killed=event.processes_killed,
        at=transition.at,
    )


def forget_kill(transition: Transition, command: AgentCommand) -> None:
    """Drop a kill under way: it is done, or its target has ended by itself before it."""
    killing = transition.round.killing
    if command.id in killing:
        transition.set_round(killing={key: one for key, one in killing.items() if key != command.id})


def on_killed(transition: Transition, command: AgentCommand, event: AgentKilled) -> None:
    """Complete the record; a force-kill is not retried."""
    record = transition.round.killing.get(command.id) or _unseen(transition, command, event)
    record = record.model_copy(update={"processes_killed": event.processes_killed})
    forget_kill(transition, command)
    transition.set_round(kills=(*transition.round.kills, record))
    transition.spend(role_of(command), event.cost, record.elapsed_s)
    why = f"force-killed: {record.reason}"
    if isinstance(command, RunPlan):
        execution.on_executor_killed(transition, command, event, record)
    else:
        planning.on_failed(transition, command, execution.ATTEMPTS, why)


def on_halted(transition: Transition, command: AnyCommand) -> None:
    """Settle work of a blocked round that was ended unfinished."""
    what = "ended: the round was blocked by force-kills"
    match command:
        case RunPlan() | RunGuards():
            execution.end(transition, command.executor, "error", "infrastructure", what, what)
        case Measure(stage="smoke"):
            execution.end(transition, command.arm, "error", "infrastructure", what, what)
        case DraftPlan():
            transition.set_slot(command.planner, status="failed")
        case AdvisePlan():
            transition.set_round(
                advising=planning.without(transition.round.advising, command.plan.planner_id)
            )
            transition.set_slot(command.plan.planner_id, status="failed")
        case JudgePlan():
            transition.set_round(judging=planning.without(transition.round.judging, command.plan.planner_id))
            transition.set_slot(command.plan.planner_id, status="failed")
        case _:
            return
