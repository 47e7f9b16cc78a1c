"""One round: which event goes to which part, what comes after, and how it ends.

Part of `step`; pure. The steps of a round overlap: plans are executed while others are still under review.
So nothing here waits for a step; after each event `go_on` asks whether all plans and all candidates have
ended, and only then begins the tournament.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from sid_daemon.core import stopping
from sid_daemon.core.conditions import run_of
from sid_daemon.core.longterm import auditing, learning
from sid_daemon.core.rounds import execution, planning, tournament
from sid_daemon.core.rounds.remembering import remembered
from sid_daemon.core.state import Round
from sid_daemon.core.transition import Transition
from sid_protocol.commands import (
    AgentCommand,
    AnyCommand,
    Measure,
    PrepareRound,
    ReturnIdeas,
    RunPlan,
    agent_of,
    role_of,
)
from sid_protocol.events import (
    ActorCrashed,
    AgentFailed,
    BranchMoved,
    RoundPrepared,
    RunMeasured,
)
from sid_protocol.records import Cost, RunStatus


def begin_or_end(transition: Transition) -> None:
    """Begin the next round, unless the user or a stop condition says otherwise; an audit comes first."""
    if transition.state.stopping:
        return
    ended = stopping.stop_status(transition.state)
    # What a budget stopped is not to cost more.
    may_audit = ended is None or ended[0] != "budget"
    if may_audit and auditing.go_on(transition, ending=ended is not None):
        return
    if ended is not None:
        end_run(transition, *ended)
    else:
        begin(transition)


def begin(transition: Transition) -> None:
    """Begin the next round with its clean-up and refresh."""
    state = transition.state
    iteration = state.iteration + 1
    transition.set(
        iteration=iteration,
        round=Round(
            iteration=iteration,
            started_at=transition.at,
            head=state.head,
            baseline_score=state.best_score,
            ideas=state.ideas_left,
        ),
        ideas_left=(),
    )
    prepare(transition)


def prepare(transition: Transition) -> None:
    """Clean up and read the settings again, keeping the worktrees that the round still needs."""
    now = transition.round
    keep = tuple(name for name, one in now.executions.items() if one.status == "running")
    transition.issue(
        PrepareRound(
            id=f"r{now.iteration}.prepare.{transition.state.starts}",
            iteration=now.iteration,
            keep=keep,
            take_ideas=not now.prepared,
        )
    )


def on_prepared(transition: Transition, event: RoundPrepared) -> None:
    """Take what was read; begin research, or go on where a resumed round was left."""
    state = transition.state
    transition.set(
        settings=event.settings,
        announced={},
        goal=event.goal,
        rules=event.rules,
        families=event.families,
        sealed=event.sealed,
        on_side_ref=event.on_side_ref,
        held=False,
    )
    if transition.round.prepared:
        transition.commands.extend(state.outstanding.values())
        return
    learning.on_prepared(transition, state, event)
    # An attempt that failed, or a round that another `init` took back, has taken ideas before.
    earlier = transition.round.ideas
    transition.set_round(ideas=(*earlier, *(idea for idea in event.ideas if idea not in earlier)))
    if stopping.stop_status(transition.state) is not None:
        _end_unbegun(transition)
    elif event.head == state.head:
        transition.set_round(prepared=True)
        planning.start_research(transition)
    elif event.settings.on_branch_moved == "rebase":
        transition.issue(
            run_of(
                state,
                id=f"r{state.iteration}.rebase.{state.starts}",
                arm="A",
                tree=event.head,
                stage="calibrate",
            )
        )
    else:
        branch_moved(transition, state.head, event.head)


def _end_unbegun(transition: Transition) -> None:
    """End the run before its round has begun; the ideas that it took go back first."""
    now = transition.round
    if now.ideas:
        transition.issue(ReturnIdeas(id=f"r{now.iteration}.ideas", iteration=now.iteration, ideas=now.ideas))
    else:
        on_ideas_returned(transition)


def on_ideas_returned(transition: Transition) -> None:
    """Close the round, or take it back where it never began."""
    if transition.round.prepared:
        tournament.close_round(transition)
        return
    transition.set(round=None, iteration=transition.state.iteration - 1)
    begin_or_end(transition)


def branch_moved(transition: Transition, expected: str, actual: str | None) -> None:
    """End the run: somebody else moved the improvement branch."""
    accept = f"sictl config set {transition.state.run_id} on_branch_moved rebase"
    transition.set(hint=f"move it back, or accept it with '{accept}' and start again")
    end_run(
        transition,
        "failed",
        f"the improvement branch was moved from {expected[:12]} to {(actual or 'nothing')[:12]}",
    )


def on_branch_moved(transition: Transition, command: AnyCommand, event: BranchMoved) -> None:
    """The merge found the branch elsewhere: stop, or go on from there without a winner."""
    if transition.state.settings.on_branch_moved == "rebase":
        tournament.close(transition)
    else:
        # The next start tries again: the user may have moved the branch back by then.
        transition.set(outstanding={**transition.state.outstanding, command.id: command})
        branch_moved(transition, event.expected, event.actual)


def on_measured(transition: Transition, command: Measure, event: RunMeasured) -> None:
    """Give a run to whoever asked for it."""
    if command.stage == "audit":
        if not auditing.on_measured(transition, command, event):
            begin_or_end(transition)
    elif command.stage == "smoke":
        execution.on_smoke(transition, command.arm, event)
    elif transition.round.prepared:
        tournament.on_measured(transition, command, event)
    elif event.score is None:
        end_run(transition, "failed", f"the benchmark fails on the moved branch: {event.why}")
    else:
        # What the old incumbent scored says nothing of this one.
        history = replace(transition.state.history, sessions=())
        transition.set(head=command.tree, best_score=event.score, best_interval=None, history=history)
        transition.set_round(prepared=True, head=command.tree, baseline_score=event.score)
        planning.start_research(transition)


def on_agent_failed(transition: Transition, command: AgentCommand, event: AgentFailed | ActorCrashed) -> None:
    """Put a failed turn on record, and repeat it once or go on without it."""
    why = event.why if isinstance(event, AgentFailed) else f"{event.actor} crashed: {event.error}"
    cost = event.cost if isinstance(event, AgentFailed) else Cost()
    duration_s = event.duration_s if isinstance(event, AgentFailed) else 0.0
    attempt, unpaid = command.attempt, event.budget if isinstance(event, AgentFailed) else None
    final = isinstance(event, AgentFailed) and event.final
    transition.note_failure(agent_of(command), role_of(command), attempt, why, budget=unpaid, final=final)
    if final or unpaid is not None:
        attempt = execution.ATTEMPTS
    if unpaid is not None and unpaid != "usd_per_round":
        transition.set(unpaid=why)
    if isinstance(command, RunPlan):
        execution.on_run_failed(
            transition, command, why, cost, duration_s, unpaid=unpaid is not None, final=final
        )
    else:
        planning.on_failed(transition, command, attempt, why)


def go_on(transition: Transition) -> None:
    """Begin the tournament once every plan and every candidate has ended."""
    now = transition.state.round
    if now is None or now.execution_done_at is not None or not now.prepared:
        return
    if now.blocked and not transition.state.outstanding:
        tournament.start_tournament(transition)
        return
    if not planning.planning_is_over(transition):
        return
    if now.planning_done_at is None:
        transition.set_round(planning_done_at=transition.at)
    if execution.execution_is_over(transition):
        tournament.start_tournament(transition)


def record(transition: Transition) -> None:
    """Count the round and drop it from memory; its documents are the views' to write."""
    state, now = transition.state, transition.round
    won = now.verdict if now.winner_commit else None
    gained: Decimal | None = None
    before: float | None = None
    if won is not None and won.score_before is not None and won.score_after is not None:
        before = won.score_before
        gained = stopping.gain(won.score_before, won.score_after, state.settings)
    tournament.settle_scores(transition)
    learning.on_recorded(transition)
    plateau, breaker, blocked = stopping.counters_after(
        state, gained=gained, before=before, blocked=now.blocked
    )
    family = now.executions[won.winner].plan.approach_family if won and won.winner else None
    outcome = won.outcomes.get(won.winner) if won and won.winner else None
    transition.set(
        sub_scores=dict(outcome.sub_scores) if outcome else state.sub_scores,
        tried=remembered(state, now),
        dry_rounds=0 if won is not None else state.dry_rounds + 1,
        summed_gain=state.summed_gain + ((won.gain or 0.0) if won else 0.0),
        summed_score=state.summed_score + float(gained or 0),
        completed=state.completed + 1,
        plateau_count=plateau,
        breaker_count=breaker,
        blocked_count=blocked,
        winner_families=(*state.winner_families, family)[-3:],
        round=None,
    )


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one ISO time to another; 0 where the clock went back."""
    delta = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return max(0.0, delta.total_seconds())


def end_run(transition: Transition, status: RunStatus, reason: str) -> None:
    """End the run with a status and the reason for the user."""
    transition.set(status=status, reason=reason)
