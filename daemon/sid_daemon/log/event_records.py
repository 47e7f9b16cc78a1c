"""What the log tells of one event: a few records with flat fields, for people and for programs.

Called by `runs.folding` beside `project`, with the same arguments, so that file, journal and subscribers tell one
story. Pure; the log adds time and run id. Names of records are promises, fields are added at will.
"""

from __future__ import annotations

from typing import Any

from sid_daemon.core.describe import describe
from sid_daemon.core.longterm.ladder import rung_line, rung_of
from sid_daemon.core.rounds.round import seconds_between
from sid_daemon.core.state import Execution, Round, RunState
from sid_daemon.core.wording import one_line
from sid_daemon.log.lesson_records import of_lessons
from sid_daemon.log.record import LogRecord
from sid_daemon.log.run_records import of_adoption, of_audit, of_end, of_request
from sid_daemon.store import views_round as rounds
from sid_daemon.store import views_state as places
from sid_protocol import ids
from sid_protocol.commands import AgentCommand, BuildMerge, Measure, RunPlan, agent_of, role_of
from sid_protocol.events import (
    ActorCrashed,
    AgentFailed,
    AnyEvent,
    BranchAdvanced,
    BranchMoved,
    BriefDone,
    CandidateCommitted,
    DeadlinePassed,
    GuardsDone,
    IdeasReturned,
    MergeBuilt,
    MergeConflicted,
    PlanAdvised,
    PlanDrafted,
    RoundClosed,
    RoundPrepared,
    RunMeasured,
    WorkFailed,
)
from sid_protocol.log_levels import LogLevel
from sid_protocol.records import STEPS, ForceKill

_EMPTY = Round(iteration=0, started_at="", head="", baseline_score=None)


def log_records(before: RunState | None, event: AnyEvent, after: RunState) -> list[LogRecord]:
    """Return the log records of one event, in order.

    Args:
        before: The run before the event; None for its first.
        event: What happened.
        after: The run after `step` has taken the event.
    """
    if before is None:
        return of_request(event, after)
    if before is after:
        return []
    old, now = before.round or _EMPTY, after.round
    found = [*of_request(event, after), *of_adoption(before, event, after), *_of_work(before, event, after)]
    if now is not None:
        same = old if old.iteration == now.iteration else _EMPTY
        found += _of_plans(same, now)
        found += _of_candidates(same, now)
        found += _steps(before, after)
        found += _started(before, after)
        found += _of_round(same, now)
    if isinstance(event, RoundClosed) and after.completed > before.completed:
        found += _closed(before, event)
    found += of_audit(before, after)
    found += of_lessons(before, after)
    return [*found, *of_end(before, event, after)]


def candidate_of(iteration: int, executor: str) -> str:
    """Return the name by which the log knows a candidate."""
    return f"round_{iteration}_{executor}"


def _of_work(before: RunState, event: AnyEvent, after: RunState) -> list[LogRecord]:
    """Return the records of an event that tells of one command's work."""
    where: dict[str, Any] = {"iteration": after.iteration}
    command = before.outstanding.get(event.cause)
    match event:
        case RoundPrepared() if after.round is not None:
            resumed = before.round is not None and before.round.prepared
            name = "round_resumed" if resumed else "round_started"
            fields = {"head": event.head, "best_score": after.best_score, "ideas": len(event.ideas)}
            return [LogRecord("info", name, {**where, **fields}), *([] if resumed else _rung(after, where))]
        case BriefDone() if isinstance(command, AgentCommand):
            fields = {"ideas": len(event.brief.ideas), "duration_s": event.duration_s}
            actor = agent_of(command)
            return [LogRecord("info", "brief_done", {**where, "step": "research", "actor": actor, **fields})]
        case PlanDrafted() if command is not None and isinstance(command, AgentCommand):
            return [LogRecord("info", "plan_drafted", {**where, **_drafted(agent_of(command), event, after)})]
        case PlanAdvised():
            fields = {"verdict": event.review.verdict, "duration_s": event.duration_s}
            return [
                LogRecord(
                    "info", "plan_advised", {**where, "step": "critic_review", "actor": "architect", **fields}
                )
            ]
        case AgentFailed() | ActorCrashed() if isinstance(command, AgentCommand):
            why = event.why if isinstance(event, AgentFailed) else f"{event.actor} crashed: {event.error}"
            whose = _whose(agent_of(command), role_of(command), where)
            fields = {**whose, "role": role_of(command), "attempt": command.attempt}
            return [LogRecord("warning", "agent_failed", {**where, **fields, "reason": one_line(why, 500)})]
        case ActorCrashed():
            return [
                LogRecord("error", "actor_crashed", {**where, "actor": event.actor, "reason": event.error})
            ]
        case WorkFailed():
            return [LogRecord("error", "work_failed", {**where, "reason": event.why, "hint": event.hint})]
        case DeadlinePassed():
            late = before.outstanding.get(event.target)
            whose = {"actor": event.target}
            if isinstance(late, AgentCommand):
                whose = _whose(agent_of(late), role_of(late), where)
            return [LogRecord("warning", "deadline_passed", {**where, **whose, "clock": event.clock})]
        case _:
            return _of_measuring(before, event, where)


def _rung(after: RunState, where: dict[str, Any]) -> list[LogRecord]:
    """Return the step of the escalation ladder that a new round is on."""
    rung = rung_of(after.dry_rounds)
    if rung is None:
        return []
    fields = {
        "rung": rung.step,
        "of": rung.of,
        "name": rung.name,
        "rounds": rung.dry,
        "told": rung_line(rung),
    }
    return [LogRecord("warning" if rung.is_report else "info", "ladder_step", {**where, **fields})]


def _drafted(planner: str, event: PlanDrafted, after: RunState) -> dict[str, Any]:
    return {
        "step": "planning",
        "actor": planner,
        "plan": ids.plan_id(after.iteration, planner),
        "family": event.plan.approach_family,
        "hypothesis": one_line(event.plan.hypothesis),
        "duration_s": event.duration_s,
    }


def _of_measuring(before: RunState, event: AnyEvent, where: dict[str, Any]) -> list[LogRecord]:
    """Return the records of commits, guards, benchmark runs and merges."""
    command = before.outstanding.get(event.cause)
    match event, command:
        case CandidateCommitted(), RunPlan():
            fields = {"commit": event.commit, "diff_stat": event.diff_stat, "duration_s": event.duration_s}
            if event.findings:
                fields["findings"] = list(event.findings)
            level: LogLevel = "warning" if event.findings else "info"
            return [
                LogRecord(
                    level, "candidate_committed", {**where, **_executing(command.executor, where), **fields}
                )
            ]
        case GuardsDone(), _ if command is not None and command.kind == "run_guards":
            red = [one.command for one in event.results if not one.passed]
            fields = {"passed": not red, "red": red, "duration_s": event.duration_s}
            return [
                LogRecord("info", "guards_done", {**where, **_executing(command.executor, where), **fields})
            ]
        case RunMeasured(), Measure():
            return [LogRecord("info", "benchmark_sample", {**where, **_sample(command, event, where)})]
        case ((MergeBuilt() | MergeConflicted()), BuildMerge()):
            fields = {
                "step": "tournament",
                "actor": "git_master",
                "conflict": isinstance(event, MergeConflicted),
            }
            candidate = candidate_of(where["iteration"], command.executor)
            return [LogRecord("info", "merge_tried", {**where, **fields, "candidate": candidate})]
        case BranchAdvanced(), _ if command is not None:
            return [LogRecord("info", "merged", {**where, **_merged(before, event)})]
        case BranchMoved(), _ if command is not None:
            fields = {"expected": event.expected, "actual": event.actual}
            return [LogRecord("warning", "branch_moved", {**where, "actor": "git_master", **fields})]
        case IdeasReturned(), _:
            return [LogRecord("info", "ideas_returned", where)]
        case _:
            return []


_STEPS = {
    "researcher": "research",
    "planner": "planning",
    "architect": "critic_review",
    "critic": "critic_review",
}


def _whose(agent: str, role: str, where: dict[str, Any]) -> dict[str, Any]:
    """Return whose turn a record tells of, and in which step."""
    return _executing(agent, where) if role == "executor" else {"step": _STEPS[role], "actor": agent}


def _executing(executor: str, where: dict[str, Any]) -> dict[str, Any]:
    return {
        "step": "execution",
        "actor": executor,
        "candidate": candidate_of(where["iteration"], executor),
    }


def _sample(command: Measure, event: RunMeasured, where: dict[str, Any]) -> dict[str, Any]:
    is_candidate = command.arm.startswith("executor_")
    who = {"candidate": candidate_of(where["iteration"], command.arm)} if is_candidate else {}
    fields = {
        "step": {"smoke": "execution", "audit": "stop_check"}.get(command.stage, "tournament"),
        "actor": command.arm if is_candidate else "benchmark",
        **who,
        "arm": command.arm,
        "stage": command.stage,
        "score": event.score,
        "status": event.status,
        "duration_s": event.wall_s,
    }
    return {**fields, "reason": event.why} if event.why else fields


def _merged(before: RunState, event: BranchAdvanced) -> dict[str, Any]:
    now = before.now_round
    verdict = now.verdict
    if verdict is None or verdict.winner is None:
        return {"commit": event.commit}
    one = now.executions[verdict.winner]
    return {
        "step": "tournament",
        "actor": "git_master",
        "candidate": candidate_of(now.iteration, one.executor),
        "commit": event.commit,
        "ref": event.ref,
        "score_before": verdict.score_before,
        "score": verdict.score_after,
        "family": one.plan.approach_family,
        "hypothesis": one_line(one.plan.hypothesis),
    }


def _of_plans(old: Round, now: Round) -> list[LogRecord]:
    """Return what the pipeline decided on plans."""
    found: list[LogRecord] = []
    for planner, slot in now.slots.items():
        was = old.slots.get(planner)
        if slot.plan is None or (was is not None and was.status == slot.status):
            continue
        fields: dict[str, Any] = {
            "iteration": now.iteration,
            "step": "critic_review",
            "actor": "critic",
            "plan": slot.plan.plan_id,
            "family": slot.plan.approach_family,
        }
        if slot.status == "approved":
            told = {**fields, "hypothesis": one_line(slot.plan.hypothesis)}
            found.append(LogRecord("info", "plan_approved", told))
        elif slot.status == "rejected" and slot.plan.critic_review is not None:
            reason = slot.plan.critic_review.rejection_reason or ""
            rule = next((name for name in ("H001", "H002", "H003") if reason.startswith(name)), None)
            found.append(
                LogRecord("info", "plan_rejected", {**fields, "rule": rule, "reason": one_line(reason, 500)})
            )
    return found


def _of_candidates(old: Round, now: Round) -> list[LogRecord]:
    """Return which candidates were measured, and which have failed, which the tournament may find later."""
    found: list[LogRecord] = []
    for executor, one in now.executions.items():
        was = old.executions.get(executor)
        if one.status != "done":
            continue
        fields: dict[str, Any] = {
            "iteration": now.iteration,
            **_executing(executor, {"iteration": now.iteration}),
            "family": one.plan.approach_family,
        }
        if one.smoke is not None and (was is None or was.status != "done"):
            status = "success" if one.result == "regression" else one.result
            score = {"status": status, "score": one.score, "duration_s": one.benchmark_s}
            found.append(LogRecord("info", "benchmark_finished", {**fields, **score}))
        if one.failure is not None and (was is None or was.failure is None):
            why = {
                "status": one.result,
                "category": one.failure.category,
                "reason": one_line(one.failure.what),
            }
            found.append(LogRecord("warning", "candidate_failed", {**fields, **why}))
    return found


def _started(before: RunState, after: RunState) -> list[LogRecord]:
    """Return which executors were asked to begin."""
    found: list[LogRecord] = []
    for key, command in after.outstanding.items():
        if isinstance(command, RunPlan) and key not in before.outstanding:
            fields = {
                "iteration": command.iteration,
                **_executing(command.executor, {"iteration": command.iteration}),
                "plan": command.plan.plan_id,
                "family": command.plan.approach_family,
                "attempt": command.attempt,
                "rework": command.rework_of is not None,
            }
            found.append(LogRecord("info", "executor_started", fields))
    return found


def _of_round(old: Round, now: Round) -> list[LogRecord]:
    """Return force-kills, a block, and the tournament's verdict."""
    found: list[LogRecord] = [
        LogRecord("warning", "force_kill", _kill(kill)) for kill in now.kills[len(old.kills) :]
    ]
    where = {"iteration": now.iteration}
    if now.blocked and not old.blocked:
        found.append(LogRecord("warning", "round_blocked", {**where, "force_kills": len(now.kills)}))
    if now.verdict is not None and old.verdict is None:
        verdict = now.verdict
        fields = {"step": "tournament", "status": verdict.status, "reason": verdict.reason}
        found.append(LogRecord("info", "verdict", {**where, **fields, "told": describe(verdict)}))
    return found


def _kill(kill: ForceKill) -> dict[str, Any]:
    told = (
        "role",
        "reason",
        "last_tool",
        "repeats",
        "waiting_in",
        "deadline_s",
        "elapsed_s",
        "processes_killed",
    )
    where = {"iteration": kill.iteration}
    return {
        **where,
        **_whose(kill.agent_id, kill.role, where),
        **{name: getattr(kill, name) for name in told},
        "snippet": one_line(kill.snippet),
    }


def _closed(before: RunState, event: RoundClosed) -> list[LogRecord]:
    now = before.now_round
    status, reason = rounds.status_of(before, now)
    verdict = rounds.won(now)
    winner: Execution | None = now.executions[verdict.winner] if verdict and verdict.winner else None
    fields: dict[str, Any] = {
        "iteration": now.iteration,
        "step": "recording",
        "status": status,
        "score": verdict.score_after if verdict else None,
        "family": winner.plan.approach_family if winner else None,
        "candidates": len(now.executions),
        "rejected": len(now.rejected),
        "force_kills": len(now.kills),
        "reason": reason,
        "duration_s": seconds_between(now.started_at, event.at),
    }
    if winner is not None:
        fields["candidate"] = candidate_of(now.iteration, winner.executor)
    notes: list[LogRecord] = [
        LogRecord("info", "note", {"iteration": now.iteration, "told": one}) for one in event.notes
    ]
    return [LogRecord("info", "round_recorded", fields), *notes]


def _steps(before: RunState, after: RunState) -> list[LogRecord]:
    """Return the steps that have begun; they overlap, so several may be under way."""
    was = places.steps_begun(before)
    now = after.round
    if now is None:
        return []
    return [
        LogRecord("info", "step_started", {"iteration": now.iteration, "step": one})
        for one in STEPS
        if (now.iteration, one) in places.steps_begun(after) - was
    ]
