"""`step`: the only place that decides. State and event in, state and commands out.

    event → journal (durable) → step(state, event) → commands → actors → events

Pure and total: an event that answers nothing on the book (work that was cancelled, an answer that came twice)
changes nothing. The conductor journals an event before it calls `step`, and dispatches the commands after;
folding the journal through `step` again gives the same state. Models: a worker's state machine with one
mutator, and protocol libraries without I/O.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sid_daemon.core import stopping, stragglers
from sid_daemon.core.adoption import announced
from sid_daemon.core.creation import create, learnt, recreate
from sid_daemon.core.longterm import learning, milestones
from sid_daemon.core.measuring.evidence import median_interval
from sid_daemon.core.measuring.session import AA_KEPT
from sid_daemon.core.rounds import execution, planning, tournament
from sid_daemon.core.rounds import round as rounds
from sid_daemon.core.state import ACTIVE, RunState
from sid_daemon.core.transition import Transition
from sid_protocol.commands import (
    AdvisePlan,
    AgentCommand,
    AnyCommand,
    BuildMerge,
    CloseRound,
    DraftPlan,
    Inspect,
    JudgePlan,
    Kill,
    Measure,
    PrepareRound,
    Research,
    ReturnIdeas,
    RunGuards,
    RunPlan,
    role_of,
)
from sid_protocol.events import (
    ActorCrashed,
    AgentFailed,
    AgentKilled,
    AnyEvent,
    BranchAdvanced,
    BranchMoved,
    BriefDone,
    CandidateCommitted,
    CandidateRefused,
    ConfigChanged,
    DeadlinePassed,
    EvidenceTaken,
    GuardsDone,
    IdeasReturned,
    LessonForgotten,
    MergeBuilt,
    MergeConflicted,
    PlanAdvised,
    PlanDrafted,
    PlanJudged,
    Recalibrated,
    RoundClosed,
    RoundPrepared,
    RoundsAsked,
    RunCreated,
    RunFailed,
    RunMeasured,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    StopRequested,
    TurnPaid,
    TurnsCut,
    WorkFailed,
    WorkHalted,
)
from sid_protocol.records import Cost

Turned = (
    AgentFailed | BriefDone | PlanDrafted | PlanAdvised | PlanJudged | CandidateCommitted | CandidateRefused
)
"""Events that end an agent's turn and say what it cost."""
CRASHES = 3
CRASH_WINDOW_S = 600.0


def step(state: RunState | None, event: AnyEvent) -> tuple[RunState, tuple[AnyCommand, ...]]:
    """Fold one event into a run's state.

    Args:
        state: The state so far; None only for the first event, `RunCreated`.
        event: What happened; its `at` is set.

    Returns:
        The new state, and the commands that follow, in order.

    Raises:
        LookupError: the journal does not begin with `RunCreated`.
    """
    if isinstance(event, RunCreated):
        created = create(event)
        return (created if state is None else recreate(state, created)), ()
    if state is None:
        raise LookupError(f"a journal begins with run_created, not with {event.kind}")
    transition = Transition(state, event.at)
    if event.cause:
        _on_answer(transition, event)
    else:
        _on_request(transition, event)
    if transition.state.status == "running" and not transition.state.held:
        rounds.go_on(transition)
    _count_wall(transition, closed=transition.state.completed > state.completed)
    _stand(transition, state)
    return transition.state, tuple(transition.commands)


def _count_wall(transition: Transition, *, closed: bool) -> None:
    """Keep the time that the run was running; counted when it stops running and after each round."""
    state = transition.state
    running = state.status == "running" and not state.stopping
    if state.running_since is not None and (closed or not running):
        transition.set(wall_s=state.wall_s + rounds.seconds_between(state.running_since, transition.at))
        transition.set(running_since=None)
    if running and transition.state.running_since is None:
        transition.set(running_since=transition.at)


def _stand(transition: Transition, before: RunState) -> None:
    """Keep where the run stands in its goal's milestones and phases."""
    now, seen = transition.state, (before.goal, before.best_score, before.best_interval, before.sub_scores)
    if (now.goal, now.best_score, now.best_interval, now.sub_scores) == seen:
        return
    higher = now.settings.benchmark_direction == "higher_is_better"
    sub_scores = now.sub_scores or now.history.guard_baseline
    shown = stopping.shown_score(now)
    score = now.best_score if shown is None else shown
    transition.set(standing=milestones.standing(now.goal, score, sub_scores, higher=higher))


def _on_request(transition: Transition, event: AnyEvent) -> None:
    match event:
        case RunStarted():
            _on_started(transition, event)
        case Recalibrated():
            _on_recalibrated(transition, event)
        case ConfigChanged():
            transition.set(announced=announced(transition.state.announced, event.field, event.new_value))
        case LessonForgotten():
            learning.on_forgotten(transition, event.lesson)
        case _ if not is_active(transition.state):
            return  # it ended before the request was taken up
        case StopRequested():
            transition.set(stopping=True, suspended=event.suspend)
        case RunStopped():
            transition.set(status="user_stopped", stopping=False, reason="stopped by the user")
        case TurnsCut():
            for role, cost in event.costs.items():
                transition.spend(role, cost, 0.0)
            transition.set(paid={})
        case TurnPaid():
            if event.target in transition.state.outstanding:
                transition.set(paid={**transition.state.paid, event.target: event.cost})
        case RunPaused():
            transition.set(status="paused")
        case RunResumed():
            transition.set(status="running")
        case RoundsAsked():
            waived = stopping.waived_by_rounds(transition.state)
            transition.set(rounds_until=transition.state.completed + event.rounds, waived=waived)
        case RunFailed():
            transition.set(status="failed", reason=event.reason, hint=event.hint)
        case DeadlinePassed():
            stragglers.on_deadline(transition, event)
        case _:
            return


def _count_cut(transition: Transition) -> None:
    """Spend what turns had cost that a daemon's death has cut; they are done again."""
    for key, cost in transition.state.paid.items():
        if isinstance(command := transition.state.outstanding.get(key), AgentCommand):
            transition.spend(role_of(command), cost, 0.0)
    transition.set(paid={})


def _on_started(transition: Transition, event: RunStarted) -> None:
    _count_cut(transition)
    state = transition.state
    if event.again and state.stopping and not state.suspended:
        transition.set(status="user_stopped", stopping=False, reason="stopped by the user")
        return
    if event.crashed:
        transition.set(running_since=None)  # until when it ran is not known
        now = datetime.fromisoformat(event.at)
        # Either way round: after the clock was put back, an old crash lies ahead for as long.
        recent = [
            at
            for at in state.crashes
            if abs((now - datetime.fromisoformat(at)).total_seconds()) <= CRASH_WINDOW_S
        ]
        transition.set(crashes=(*recent, event.at)[-CRASHES:])
        if len(transition.state.crashes) >= CRASHES:
            transition.set(hint="'sictl attach --no-follow' shows what came before; then start it again")
            rounds.end_run(
                transition, "failed", f"the daemon died {CRASHES} times within 10 minutes in this run"
            )
            return
    transition.set(
        settings=event.settings,
        announced={},
        status="paused" if event.again and state.status == "paused" else "running",
        reason=None,
        hint="",
        stopping=False,
        suspended=False,
        starts=state.starts + 1,
        unpaid="" if stopping.raised(state.settings.budget, event.settings.budget) else state.unpaid,
        rounds_until=_rounds_until(state, event),
        waived=state.waived if event.again else (),
        crashes=transition.state.crashes if event.again else (),
        **({} if event.again else _counters_cleared(state)),
        history=replace(state.history, broken_rounds=0),
        held=False,
    )
    if event.rounds is not None:
        transition.set(waived=stopping.waived_by_rounds(transition.state))
    if state.round is not None:
        _hold(transition)
    else:
        transition.set(outstanding={})
        rounds.begin_or_end(transition)


def _on_recalibrated(transition: Transition, event: Recalibrated) -> None:
    """Take what the benchmark says of the incumbent now; what one tree's two scores have shown stays shown."""
    old, new = transition.state.history, learnt(event.calibration)
    noisy = not event.deterministic
    transition.set(
        noisy=noisy,
        best_score=event.score,
        best_interval=median_interval(event.samples) if noisy else None,
        run_timeout_s=event.calibration.get("run_timeout_s", transition.state.run_timeout_s),
        history=replace(
            old,
            aa_gaps=(*old.aa_gaps, *new.aa_gaps)[-AA_KEPT:],
            sessions=new.sessions,
            rounds_since_check=0,
            all_positive=old.all_positive and new.all_positive,
            all_whole=old.all_whole and new.all_whole,
        ),
    )


def _hold(transition: Transition) -> None:
    """Clean up before a round goes on; what was being ended when the daemon died has ended with it."""
    state = transition.state
    for command in list(state.outstanding.values()) if transition.round.blocked else ():
        if not isinstance(command, CloseRound | ReturnIdeas) and transition.settle(command.id) is not None:
            stragglers.on_halted(transition, command)
    begun = transition.round.prepared
    kept = {
        key: command
        for key, command in transition.state.outstanding.items()
        if begun and not isinstance(command, Inspect | Kill | PrepareRound)
    }
    transition.set(outstanding=kept, held=True)
    transition.set_round(killing={})
    rounds.prepare(transition)


def _counters_cleared(state: RunState) -> dict[str, int]:
    """Return the counters that ended, or would end at once, a run that the user starts again: at 0."""
    limits = {
        "plateau_count": state.settings.plateau_window,
        "breaker_count": state.settings.circuit_breaker_threshold,
        "blocked_count": state.settings.blocked_limit,
    }
    return {name: 0 for name, limit in limits.items() if getattr(state, name) >= limit}


def _rounds_until(state: RunState, event: RunStarted) -> int | None:
    if event.rounds is not None:
        return state.completed + event.rounds
    return state.rounds_until if event.again else None


def _on_answer(transition: Transition, event: AnyEvent) -> None:
    if isinstance(event, WorkFailed):
        _on_work_failed(transition, event)
        return
    paid = transition.state.paid.get(event.cause)
    command = transition.settle(event.cause)
    if command is None:
        return
    if isinstance(command, AgentCommand) and not isinstance(event, AgentKilled):
        stragglers.forget_kill(transition, command)
    if isinstance(event, Turned) and isinstance(command, AgentCommand):
        transition.spend(role_of(command), event.cost, event.duration_s)
    if isinstance(event, ActorCrashed) and isinstance(command, AgentCommand) and paid is not None:
        transition.spend(role_of(command), paid, 0.0)
    if isinstance(event, WorkHalted) and isinstance(command, AgentCommand) and event.cost != Cost():
        transition.spend(role_of(command), event.cost, 0.0)
    _route(transition, event, command)


def _route(transition: Transition, event: AnyEvent, command: AnyCommand) -> None:
    """Hand an answer to the machine that asked for it."""
    match event, command:
        case RoundPrepared(), PrepareRound():
            rounds.on_prepared(transition, event)
        case ((AgentFailed() | ActorCrashed()), _) if isinstance(command, AgentCommand):
            rounds.on_agent_failed(transition, command, event)
        case ActorCrashed(), _:
            _on_infrastructure_crash(transition, command, event)
        case BriefDone(), Research():
            planning.on_brief(transition, command, event)
        case PlanDrafted(), DraftPlan():
            planning.on_plan(transition, command.planner, event)
        case PlanAdvised(), AdvisePlan():
            planning.on_advice(transition, command.plan.planner_id, event)
        case PlanJudged(), JudgePlan():
            planning.on_judgement(transition, command.plan.planner_id, event)
        case CandidateCommitted(), RunPlan():
            execution.on_committed(transition, command, event)
        case CandidateRefused(), RunPlan():
            execution.on_refused(transition, command, event)
        case GuardsDone(), RunGuards():
            execution.on_guards(transition, command, event)
        case RunMeasured(), Measure():
            rounds.on_measured(transition, command, event)
        case MergeBuilt(), BuildMerge():
            tournament.on_merge(transition, command, event)
        case MergeConflicted(), BuildMerge():
            tournament.on_merge(transition, command, None)
        case BranchAdvanced(), _:
            tournament.on_advanced(transition, event)
        case BranchMoved(), _:
            rounds.on_branch_moved(transition, command, event)
        case IdeasReturned(), _:
            rounds.on_ideas_returned(transition)
        case RoundClosed(), CloseRound():
            rounds.record(transition)
            rounds.begin_or_end(transition)
        case EvidenceTaken(), _:
            stragglers.on_evidence(transition, event)
        case AgentKilled(), _ if isinstance(command, AgentCommand):
            stragglers.on_killed(transition, command, event)
        case WorkHalted(), _:
            stragglers.on_halted(transition, command)
        case _:
            return


def _on_work_failed(transition: Transition, event: WorkFailed) -> None:
    """End the run, but leave the command on the book: a new start does it again."""
    if event.cause in transition.state.outstanding:
        transition.set(hint=event.hint)
        rounds.end_run(transition, "failed", event.why)


def _on_infrastructure_crash(transition: Transition, command: AnyCommand, event: ActorCrashed) -> None:
    transition.set(outstanding={**transition.state.outstanding, command.id: command})
    transition.set(hint="'sictl attach --no-follow --level error' shows the fault; start it again to go on")
    rounds.end_run(transition, "failed", f"{event.actor} crashed: {event.error}")


def is_active(state: RunState) -> bool:
    """Say whether a run is under way (running or paused)."""
    return state.status in ACTIVE
