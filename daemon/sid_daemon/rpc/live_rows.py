"""What is going on right now, as rows: actors at work, the round under way, a run whose database is gone.

Beside `rows`, which tells of what is recorded. Reads the conductor's works; changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sid_actors.actor import Work
from sid_daemon.core import deadlines
from sid_daemon.core.state import Execution, Round, RunState, Slot
from sid_daemon.layout import DATABASE
from sid_daemon.rpc import rows
from sid_daemon.store.registry import KnownRun
from sid_protocol import ids
from sid_protocol.commands import AgentCommand, AnyCommand, Measure, RunGuards, agent_of, role_of
from sid_protocol.records import MergeReport
from sid_protocol.settings import Settings
from sid_protocol.status import ActorRow, RoundSummary, RunRow

_SLOT_STATES = {
    "drafting": "waiting",
    "drafted": "waiting",
    "advised": "waiting",
    "approved": "done",
    "rejected": "rejected",
    "failed": "failed",
}


def actor_rows(
    state: RunState,
    under_way: Mapping[str, AnyCommand],
    works: Mapping[str, Work],
    now: float,
    waits: Mapping[str, str] | None = None,
) -> list[ActorRow]:
    """Return one row an actor of the round under way, or of the audit between two rounds.

    Args:
        state: The run.
        under_way: Its commands under way.
        works: What is at work, by command id.
        now: Seconds of the works' clock.
        waits: What silent work waits in, by command id.
    """
    found: dict[str, ActorRow] = {}
    if state.round is not None:
        found |= {slot.planner: _planner(slot) for slot in state.round.slots.values()}
        found |= {one.executor: _executor(one) for one in state.round.executions.values()}
    at_work: dict[str, list[ActorRow]] = {}
    for command in under_way.values():
        work = works.get(command.id)
        row = _working(command, work, state, now, (waits or {}).get(command.id, ""))
        if row is not None:
            at_work.setdefault(row.id, []).append(row)
    return list((found | {name: _foremost(rows) for name, rows in at_work.items()}).values())


def _foremost(rows: list[ActorRow]) -> ActorRow:
    """Return the row of one who may have several plans to review: of the one whose time is up first."""
    first = min(rows, key=lambda row: math.inf if row.left_s is None else row.left_s)
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return first.model_copy(update={"doing": f"{first.doing}{more}"}) if more else first


def _planner(slot: Slot) -> ActorRow:
    doing = {"approved": "plan approved", "rejected": "plan rejected", "failed": "no plan"}
    return ActorRow(
        id=slot.planner,
        role="planner",
        state=_SLOT_STATES[slot.status],
        doing=doing.get(slot.status, "plan under review" if slot.plan else "to draft a plan"),
        idle_s=None,
        left_s=None,
        family=slot.plan.approach_family if slot.plan else None,
        score=None,
    )


def _executor(execution: Execution) -> ActorRow:
    if execution.kill is not None:
        state, doing = "killed", f"killed: {execution.kill.reason}"
    elif execution.status == "done":
        failed = execution.result not in ("success", None)
        state = "failed" if failed else "done"
        doing = execution.failure.what if execution.failure else "measured"
    else:
        state = {"measuring": "benchmark", "guarding": "benchmark"}.get(execution.status, "waiting")
        doing = {"measuring": "waits for the benchmark", "guarding": "guards"}.get(
            execution.status, "waits for a place"
        )
    return ActorRow(
        id=execution.executor,
        role="executor",
        state=state,
        doing=doing[:200],
        idle_s=None,
        left_s=None,
        family=execution.plan.approach_family,
        score=execution.score,
    )


def _working(
    command: AnyCommand, work: Work | None, state: RunState, now: float, waits: str
) -> ActorRow | None:
    family, score = None, None
    if isinstance(command, AgentCommand):
        name, role = agent_of(command), role_of(command)
    elif isinstance(command, Measure):
        name = command.arm if command.arm.startswith("executor_") and command.stage == "smoke" else "bench"
        role = "executor" if name != "bench" else "bench"
    elif isinstance(command, RunGuards):
        name, role = command.executor, "executor"
    elif command.kind in ("build_merge", "advance_branch", "close_round"):
        name, role = "git_master", "git_master"
    else:
        return None
    execution = state.round.executions.get(name) if state.round else None
    if execution is not None:
        family, score = execution.plan.approach_family, execution.score
    begun = work is not None and work.since is not None
    activity = work.activity if work is not None else None
    doing = activity.doing if activity is not None and begun else "waits its turn"
    if isinstance(command, Measure) and begun:
        doing = f"benchmark: {command.stage} of {command.arm}"
    elif isinstance(command, AgentCommand) and begun and activity is not None and activity.clock.stands:
        doing = f"stands still while another run measures; {doing}"
    elif begun and waits:
        doing = f"{doing}; {waits}"
    return ActorRow(
        id=name,
        role=role,
        state=("benchmark" if isinstance(command, Measure) else "working") if begun else "waiting",
        doing=doing[:200],
        idle_s=_rounded(activity.idle_s) if activity is not None and begun else None,
        left_s=_left_s(command, work, state.settings, now),
        family=family,
        score=score,
    )


def _left_s(command: AnyCommand, work: Work | None, settings: Settings, now: float) -> float | None:
    """Return the time to the deadline that comes first; None where no clock runs."""
    if work is None or work.since is None:
        return None
    if isinstance(command, AgentCommand):
        watched = deadlines.Watched.of(
            command, settings, started=work.since, last_seen=work.activity.last_seen
        )
        return _rounded(watched.expiry[0] - now)
    if isinstance(command, Measure):
        own = command.limit_s
        limit = settings.deadlines.benchmark if own is None else min(settings.deadlines.benchmark, own)
    elif isinstance(command, RunGuards):
        limit = settings.deadlines.guard
    else:
        return None
    return _rounded(work.since + limit - now)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else max(0.0, round(seconds, 1))


def lost_row(run: KnownRun, why: str = "") -> RunRow:
    """Return the row of a run whose database is not there any more, or cannot be read."""
    gone = f"{run.root}/{DATABASE} is missing; bring back the daemon's copy: {run.command('start')}"
    blank = Settings()
    return RunRow(
        run_id=run.run_id,
        repo=run.repo,
        topic=run.topic,
        root=run.root,
        status="failed",
        iteration=0,
        max_iterations=blank.max_iterations,
        current_step=None,
        best_score=None,
        baseline=None,
        interval=None,
        counters=rows.blank_counters(blank),
        budget=rows.blank_budget(),
        actors=[],
        reason=why or gone,
    )


def open_round(state: RunState) -> RoundSummary:
    """Return the row of the round under way."""
    now = state.round or Round(
        iteration=state.iteration, started_at=state.created_at, head="", baseline_score=state.best_score
    )
    return RoundSummary(
        iteration=now.iteration,
        status="in_progress",
        baseline_score=now.baseline_score,
        score=None,
        delta=None,
        candidates=len(now.executions),
        rejected=len(now.rejected),
        force_kills=len(now.kills),
        started_at=now.started_at,
    )


def tags_by_executor(report: MergeReport | None, topic: str) -> dict[str, str]:
    """Return executor → tag of a recorded round's archived candidates."""
    if report is None:
        return {}
    prefix = ids.archive_tag(topic, report.iteration, "")
    return {tag.removeprefix(prefix).split("-", 1)[0]: tag for tag in report.archived}
