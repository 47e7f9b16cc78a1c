"""One candidate, from an approved plan to its first score.

Part of the round machine; pure. States of an execution:

    waiting → running → guarding → measuring → done
                 ^          |
                 +--rework--+   (a red guard, at most twice, with its output)

A failed agent's turn is repeated once; a force-killed one is not. `done` holds a score or a failure.
"""

from __future__ import annotations

import re

from sid_daemon.core.conditions import result_of, run_of
from sid_daemon.core.rounds import novelty
from sid_daemon.core.state import Execution
from sid_daemon.core.transition import Transition
from sid_protocol import ids
from sid_protocol.commands import Halt, Inspect, Kill, RunGuards, RunPlan
from sid_protocol.events import (
    AgentKilled,
    CandidateCommitted,
    CandidateRefused,
    GuardsDone,
    RunMeasured,
)
from sid_protocol.paths import covered
from sid_protocol.records import Category, Cost, FailureAnalysis, ForceKill, Plan, ResultStatus

ATTEMPTS = 2
"""A failed agent's turn is repeated once, then the round goes on without it."""
REWORKS = 2
RAW_LIMIT = 16_384
"""Characters of a benchmark's output that are kept with its result."""
AGENT_TWICE = "the agent failed twice"
_NO_WRITE = re.compile(r"read-only file system|device or resource busy", re.IGNORECASE)
"""What writing to, or renaming over, a path that is mounted read-only gives."""
_IN_WORKTREE = re.compile(r"^(?:\./|.*/round_\d+_executor_\d+/)")
_WORDS = re.compile(r"[^\s'\"`:,;()\[\]]+")
OTHERWISE = "these files may be changed, but not like this"
REFUSED_KEPT = 20
"""Paths of a refused change that are kept."""
LESSONS: dict[Category, str] = {
    "oom": "Try a smaller variant: the change needs more memory than there is.",
    "timeout": "Avoid this, or bound it: it did not end within its deadline.",
    "regression": "Do not repeat this change: it made the measured result worse.",
    "logic_error": "Check that the change runs and does what the plan says.",
    "scope_error": "Change only files that are in scope.",
    "infrastructure": "Not the plan's fault: it may be tried again.",
    "benchmark_parse_error": "Keep the program's output as the benchmark expects it.",
    "sealed_file_violation": "Never touch a sealed file: improve the program, not its judge.",
}


def start_execution(transition: Transition, plan: Plan) -> None:
    """Put an approved plan on the book, and begin it if an executor is free."""
    executor = ids.executor_id(ids.planner_number(plan.planner_id))
    execution = Execution(executor=executor, plan=plan, base=transition.round.head)
    transition.set_round(executions={**transition.round.executions, executor: execution})
    fill_executors(transition)


def fill_executors(transition: Transition) -> None:
    """Begin waiting executions, as many at once as the settings allow."""
    cap = transition.state.settings.max_parallel_executors
    if transition.round.blocked:
        return
    for execution in list(transition.round.executions.values()):
        running = sum(1 for other in transition.round.executions.values() if other.status == "running")
        if cap is not None and running >= cap:
            return
        if execution.status == "waiting":
            _run(transition, execution, 1)


def _run(transition: Transition, execution: Execution, attempt: int) -> None:
    iteration = transition.round.iteration
    transition.set_execution(execution.executor, status="running")
    transition.issue(
        RunPlan(
            id=f"r{iteration}.run.{execution.executor}.{execution.reworks}.{attempt}",
            iteration=iteration,
            executor=execution.executor,
            plan=execution.plan,
            base=execution.base,
            attempt=attempt,
            rework_of=execution.commit if execution.reworks else None,
            guard_output=execution.guard_output,
        )
    )


def analysis(category: Category, what: str, why: str) -> FailureAnalysis:
    """Return the failure analysis of a candidate."""
    return FailureAnalysis(what=what[:500], why=why[:2000], category=category, lesson=LESSONS[category])


def end(
    transition: Transition, executor: str, result: ResultStatus, category: Category, what: str, why: str
) -> None:
    """Settle a candidate as no success."""
    _settle(transition, executor, result, analysis(category, what, why))


def _settle(transition: Transition, executor: str, result: ResultStatus, failure: FailureAnalysis) -> None:
    transition.set_execution(
        executor, status="done", result=result, failure=failure, measured_at=transition.at
    )
    fill_executors(transition)


def on_committed(transition: Transition, command: RunPlan, event: CandidateCommitted) -> None:
    """Guard the commit, or measure it at once where there is no guard; not at all what was tried before."""
    old = transition.round.executions[command.executor]
    tried = novelty.asked(transition.state.tried, transition.state.settings)
    repeats = novelty.patch_tried(tried, patch=event.patch, tree=event.tree, base=old.base)
    transition.set_execution(
        command.executor,
        commit=event.commit,
        diff_stat=event.diff_stat,
        net_lines=event.net_lines,
        summary=event.summary,
        findings=event.findings,
        patch=event.patch,
        tree=event.tree,
        repeats=repeats,
        cost=old.cost + event.cost,
        agent_s=(old.agent_s or 0.0) + event.duration_s,
        status="guarding" if transition.state.settings.guard_command else "measuring",
    )
    if repeats is not None:
        _settle(transition, command.executor, "error", novelty.refusal(repeats))
        return
    if transition.state.settings.guard_command:
        transition.issue(
            RunGuards(
                id=f"r{command.iteration}.guard.{command.executor}.{old.reworks}",
                iteration=command.iteration,
                executor=command.executor,
                commit=event.commit,
            )
        )
    else:
        _measure(transition, command.executor, event.commit)
    fill_executors(transition)


def _measure(transition: Transition, executor: str, commit: str) -> None:
    iteration = transition.round.iteration
    transition.set_execution(executor, status="measuring")
    name = f"r{iteration}.smoke.{executor}"
    transition.issue(run_of(transition.state, id=name, arm=executor, tree=commit, stage="smoke"))


def on_refused(transition: Transition, command: RunPlan, event: CandidateRefused) -> None:
    """Record why the edits cannot be measured."""
    old = transition.round.executions[command.executor]
    transition.set_execution(
        command.executor,
        commit=event.commit,
        diff_stat=event.diff_stat,
        cost=old.cost + event.cost,
        agent_s=(old.agent_s or 0.0) + event.duration_s,
        no_op=event.category == "logic_error",
        refused=event.paths[:REFUSED_KEPT],
        findings=event.findings,
    )
    why = ", ".join(event.paths[:20])
    if not why:
        why = OTHERWISE if event.category == "sealed_file_violation" else event.what
    end(transition, command.executor, "error", event.category, event.what, why)


def on_guards(transition: Transition, command: RunGuards, event: GuardsDone) -> None:
    """Measure where all guards hold; else let the executor mend it, at most twice."""
    execution = transition.round.executions[command.executor]
    red = [
        result for result in event.results if not result.passed and result.command not in event.baseline_red
    ]
    if not red:
        transition.set_execution(command.executor, guard="pass")
        _measure(transition, command.executor, command.commit)
    elif execution.reworks < REWORKS:
        transition.set_execution(
            command.executor,
            status="waiting",
            guard="fail",
            guard_output=red[0].output,
            reworks=execution.reworks + 1,
        )
        fill_executors(transition)
    else:
        transition.set_execution(command.executor, guard="fail")
        what = f"guard failed: {red[0].command}"
        end(transition, command.executor, "regression", "regression", what, red[0].output[-1500:] or what)


def on_smoke(transition: Transition, executor: str, event: RunMeasured) -> None:
    """Keep the candidate's first run; without a score it is out."""
    transition.set_execution(
        executor,
        smoke=result_of(executor, event),
        score=event.score,
        raw=event.raw[:RAW_LIMIT],
        benchmark_s=event.wall_s,
        measured_at=transition.at,
        status="done",
        result="success" if event.status == "success" else event.status,
    )
    if event.status != "success":
        category = event.category or ("timeout" if event.status == "timeout" else "logic_error")
        end(transition, executor, event.status, category, f"benchmark: {event.status}", event.why)
    fill_executors(transition)


def on_run_failed(
    transition: Transition,
    command: RunPlan,
    why: str,
    cost: Cost,
    duration_s: float,
    *,
    unpaid: bool,
    final: bool,
) -> None:
    """Repeat a failed agent's turn once, then go on without it; at once where asking again is no use."""
    old = transition.round.executions[command.executor]
    execution = transition.set_execution(
        command.executor,
        cost=old.cost + cost,
        agent_s=(old.agent_s or 0.0) + duration_s,
    )
    if unpaid:
        end(transition, command.executor, "error", "infrastructure", "the budget is used up", why)
    elif final and execution.reworks:
        what = "a guard failed, and this agent mends none"
        end(transition, command.executor, "regression", "regression", what, old.guard_output[-1500:] or why)
    elif final:
        end(transition, command.executor, "error", "logic_error", "the agent cannot do it", why)
    elif command.attempt < ATTEMPTS:
        _run(transition, execution, command.attempt + 1)
    elif path := _held_off(why, (*transition.state.sealed, *transition.state.settings.sealed_files)):
        what = f"{AGENT_TWICE}: it tried to change the sealed {path}"
        end(transition, command.executor, "error", "sealed_file_violation", what, why)
    else:
        end(transition, command.executor, "error", "logic_error", AGENT_TWICE, why)


def _held_off(why: str, sealed: tuple[str, ...]) -> str | None:
    """Return the sealed path that an agent failed at, for a sandbox lets none be written; None where it was another reason."""
    if not _NO_WRITE.search(why):
        return None
    words = (_IN_WORKTREE.sub("", word) for word in _WORDS.findall(why))
    return next((word for word in words if covered(word, sealed) or covered(f"{word}/.", sealed)), None)


def on_executor_killed(
    transition: Transition, command: RunPlan, event: AgentKilled, record: ForceKill
) -> None:
    """Record a force-kill; at the threshold the whole round is blocked."""
    old = transition.round.executions[command.executor]
    transition.set_execution(
        command.executor,
        kill=record,
        commit=event.commit or old.commit,
        diff_stat=event.diff_stat or old.diff_stat,
        cost=old.cost + event.cost,
        agent_s=(old.agent_s or 0.0) + record.elapsed_s,
    )
    what = f"force-killed: {record.reason}"
    end(transition, command.executor, "timeout", "timeout", what, record.snippet or what)
    killed = sum(1 for execution in transition.round.executions.values() if execution.kill is not None)
    if killed >= transition.state.settings.kill_threshold and not transition.round.blocked:
        block(transition)


def block(transition: Transition) -> None:
    """Stop what still runs of a round: too many of its executors had to be killed."""
    transition.set_round(blocked=True)
    for command in list(transition.state.outstanding.values()):
        # A straggler that is being killed ends by that, so that its kill is on record.
        if not isinstance(command, Halt | Inspect | Kill) and command.id not in transition.round.killing:
            transition.issue(Halt(id=f"{command.id}.halt", iteration=command.iteration, target=command.id))


def settle_blocked(transition: Transition) -> None:
    """Say of what a blocked round left unfinished that nobody is to blame for it."""
    what = "ended unfinished: the round was blocked by force-kills"
    for execution in transition.round.executions.values():
        if execution.status != "done":
            end(transition, execution.executor, "error", "infrastructure", what, what)
    for slot in transition.round.slots.values():
        if slot.status not in ("approved", "rejected"):
            transition.set_slot(slot.planner, status="failed")


def execution_is_over(transition: Transition) -> bool:
    """Say whether every execution has ended."""
    return all(execution.status == "done" for execution in transition.round.executions.values())
