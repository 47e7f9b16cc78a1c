"""The tournament: from measured candidates to a confirmed winner, or none.

Part of the round machine; pure. `selection` decides what to measure next and who wins; this module turns its
asks into commands and its verdict into the moves that follow. The improvement branch moves only after the
merged tree was measured and accepted, so a rejected merge leaves nothing to undo.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from sid_daemon.core.conditions import result_of, run_of
from sid_daemon.core.describe import describe
from sid_daemon.core.measuring import selection
from sid_daemon.core.measuring.words import (
    AskHoldout,
    AskMerge,
    AskRun,
    Candidate,
    GuardRule,
    Policy,
    Verdict,
)
from sid_daemon.core.rounds.execution import analysis, settle_blocked
from sid_daemon.core.state import RunState
from sid_daemon.core.transition import Transition
from sid_protocol import ids
from sid_protocol.commands import AdvanceBranch, BuildMerge, CloseRound, Measure, ReturnIdeas
from sid_protocol.events import BranchAdvanced, MergeBuilt, RunMeasured
from sid_protocol.records import Category
from sid_protocol.settings import Settings

HYPOTHESIS_LIMIT = 200
QUICK_RATIO = 30
"""A candidate that cost less agent time than so many benchmark runs is screened once (`quick`)."""
SLOW_RUN_S = 60.0
"""From this length of one benchmark run on, pairs are dear and the fast lane is on."""


def tolerance(threshold: float | str) -> tuple[float, bool]:
    """Return a threshold as `(value, absolute)`; a percentage is relative, as a share."""
    if isinstance(threshold, str):
        return float(threshold.removesuffix("%")) / 100, False
    return threshold, True


def policy_of(state: RunState) -> Policy:
    """Resolve the measuring core's parameters from settings and calibration."""
    settings, rule = state.settings, state.settings.measurement
    worst, absolute = tolerance(settings.regression_threshold)
    quick = _is_quick(state)
    blocks = rule.screen_blocks if isinstance(rule.screen_blocks, int) else (1 if quick else 4)
    slow = max((e.benchmark_s or 0.0) for e in state.now_round.executions.values()) > SLOW_RUN_S
    return Policy(
        direction=settings.benchmark_direction,
        mode="noisy" if state.is_noisy else "deterministic",
        alpha=rule.alpha,
        beta=rule.beta,
        min_effect=rule.min_effect,
        screen_blocks=blocks,
        min_pairs=min(rule.min_pairs, rule.max_pairs),
        max_pairs=rule.max_pairs,
        max_minutes=rule.max_minutes,
        futility_sd=1.0 if blocks == 1 and quick else rule.futility_sd,
        warmup_runs=rule.warmup_runs,
        fast_lane=rule.fast_lane == "on" or (rule.fast_lane == "auto" and slow),
        pairing=rule.pairing,
        accept=rule.accept,
        tolerance=worst,
        tolerance_absolute=absolute,
        guards=_guards(settings),
        seed=state.seed ^ state.iteration,
        pass_fail=settings.benchmark_format == "pass_fail",
        holdout=settings.holdout_command is not None,
        holdout_looks=rule.holdout_looks,
        calibration_runs=rule.calibration_runs,
    )


def _is_quick(state: RunState) -> bool:
    costs = [
        execution.agent_s / execution.benchmark_s
        for execution in state.now_round.executions.values()
        if execution.agent_s is not None and execution.benchmark_s
    ]
    return bool(costs) and max(costs) < QUICK_RATIO


def _guards(settings: Settings) -> tuple[GuardRule, ...]:
    rules = []
    for name, guard in settings.measurement.guards.items():
        allowed, absolute = tolerance(
            settings.regression_threshold if guard.tolerance is None else guard.tolerance
        )
        rules.append(
            GuardRule(name=name, direction=guard.direction, tolerance=allowed, tolerance_absolute=absolute)
        )
    return tuple(rules)


def start_tournament(transition: Transition) -> None:
    """Begin the tournament, or close the round where nobody can compete."""
    transition.set_round(execution_done_at=transition.at)
    if transition.round.blocked:
        settle_blocked(transition)
        close(transition)
        return
    entrants = [
        Candidate(arm=execution.executor, smoke=execution.smoke, diff_lines=execution.net_lines)
        for execution in sorted(
            transition.round.executions.values(), key=lambda one: ids.executor_number(one.executor)
        )
        if execution.smoke is not None
    ]
    if any(one.smoke.valid for one in entrants):
        entrants = [one for one in entrants if transition.round.executions[one.arm].result == "success"]
    if not entrants:
        close(transition)
        return
    state = transition.state
    transition.set_round(
        selection=selection.begin(
            policy_of(state),
            incumbent_score=state.best_score,
            history=state.history,
            candidates=tuple(entrants),
            iteration=state.iteration,
        )
    )
    _go_on(transition)


def _go_on(transition: Transition) -> None:
    now = transition.round
    if now.selection is None:
        return
    ask = selection.next_ask(now.selection)
    serial = len(now.selection.fed)
    prefix = f"r{now.iteration}.t{serial}"
    match ask:
        case Verdict():
            _on_verdict(transition, ask)
        case AskMerge():
            execution = now.executions[ask.arm]
            transition.issue(
                BuildMerge(
                    id=f"{prefix}.merge.{ask.arm}",
                    iteration=now.iteration,
                    executor=ask.arm,
                    commit=execution.commit or "",
                    onto=transition.state.head,
                )
            )
        case AskRun() | AskHoldout():
            stage = ask.stage if isinstance(ask, AskRun) else "holdout"
            beside = ask.beside if isinstance(ask, AskRun) else None
            transition.issue(
                run_of(
                    transition.state,
                    id=f"{prefix}.{stage}.{ask.arm}",
                    arm=ask.arm,
                    tree=_tree(transition, ask.arm),
                    stage=stage,
                    block=ask.block if isinstance(ask, AskRun) else 0,
                    beside=beside,
                    beside_tree=_tree(transition, beside) if beside else "",
                )
            )


def _tree(transition: Transition, arm: str) -> str:
    if arm == "A":
        return transition.state.head
    if arm == "merged":
        return transition.round.merge_tree or ""
    return transition.round.executions[arm].commit or ""


def on_measured(transition: Transition, command: Measure, event: RunMeasured) -> None:
    """Feed one run to the selection, or both runs of a pair that were made at once."""
    now = transition.round
    if now.selection is None:
        return
    chosen, runs = selection.on_run(now.selection, result_of(command.arm, event)), now.runs + 1
    if command.beside is not None and event.beside is not None:
        ask = selection.next_ask(chosen)
        runs += 1
        # If the first one failed the pair is void, and this half of it is thrown away.
        if isinstance(ask, AskRun) and (ask.arm, ask.beside) == (command.beside, None):
            chosen = selection.on_run(chosen, result_of(command.beside, event.beside))
    transition.set_round(selection=chosen, runs=runs)
    _go_on(transition)


def on_merge(transition: Transition, command: BuildMerge, event: MergeBuilt | None) -> None:
    """Feed a merge to the selection; `None` is a conflict."""
    now = transition.round
    if now.selection is None:
        return
    chosen = selection.on_merge(now.selection, command.executor, conflict=event is None)
    transition.set_round(selection=chosen, merge_tree=event.tree if event else None)
    _go_on(transition)


def _on_verdict(transition: Transition, verdict: Verdict) -> None:
    transition.set_round(verdict=verdict, verdict_at=transition.at)
    transition.set(history=verdict.history)
    for arm, outcome in verdict.outcomes.items():
        execution = transition.round.executions[arm]
        failure = execution.failure
        if outcome.status != "success" and (failure is None or verdict.incumbent_broken):
            category = cast("Category", outcome.category or "regression")
            why = outcome.why or category
            failure = analysis(category, f"measured: {outcome.status}", why)
        transition.set_execution(arm, result=outcome.status, score=outcome.benchmark_score, failure=failure)
    if verdict.winner is None:
        close(transition)
        return
    now = transition.round
    execution = now.executions[verdict.winner]
    transition.issue(
        AdvanceBranch(
            id=f"r{now.iteration}.advance",
            iteration=now.iteration,
            executor=verdict.winner,
            commit=execution.commit or "",
            onto=transition.state.head,
            tree=now.merge_tree or "",
            message=merge_message(now.iteration, execution.plan.hypothesis, verdict),
            at=transition.at,
        )
    )


def first_line(text: str) -> str:
    """Return a text's first line without control characters, at most 200 characters."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    return "".join(character for character in line if character.isprintable())[:HYPOTHESIS_LIMIT].strip()


def merge_message(iteration: int, hypothesis: str, verdict: Verdict) -> str:
    """Return the merge commit's message, with the evidence where scores are noisy."""
    before, after = verdict.score_before, verdict.score_after
    head = f"Iteration {iteration}: {first_line(hypothesis)} (score: {before!r} → {after!r})"
    if verdict.mode == "deterministic":
        return head
    return f"{head}\n\n{describe(verdict)}"


def on_advanced(transition: Transition, event: BranchAdvanced) -> None:
    """The branch, or our ref while the user has it checked out, holds the merge: the winner is the new incumbent."""
    transition.set_round(winner_commit=event.commit)
    transition.set(head=event.commit, on_side_ref=event.ref == ids.side_ref(transition.state.goal_slug))
    close(transition)


def close(transition: Transition) -> None:
    """Archive the losers and remove what the round made."""
    now = transition.round
    transition.set_round(verdict_at=now.verdict_at or transition.at)
    if now.ideas and not any(slot.plan for slot in now.slots.values()):
        # First, so that the next round finds them.
        transition.issue(ReturnIdeas(id=f"r{now.iteration}.ideas", iteration=now.iteration, ideas=now.ideas))
    else:
        close_round(transition)


def close_round(transition: Transition) -> None:
    """Ask for the clean-up that ends the round."""
    now = transition.round
    winner = now.verdict.winner if now.verdict and now.winner_commit else None
    losers = tuple(
        (execution.executor, execution.commit or execution.base)
        for execution in now.executions.values()
        if execution.executor != winner
    )
    transition.issue(
        CloseRound(
            id=f"r{now.iteration}.close",
            iteration=now.iteration,
            losers=losers,
            winner=winner,
            head=transition.state.head,
            merged=winner is not None,
        )
    )


def settle_scores(transition: Transition) -> None:
    """Take the incumbent's new estimate from the verdict, unless its winner could not be merged."""
    verdict, state = transition.round.verdict, transition.state
    if verdict is None:
        return
    if verdict.winner is not None and transition.round.winner_commit is None:
        transition.set(noisy=state.noisy or verdict.became_noisy, history=replace(state.history, sessions=()))
        return
    best = state.best_score if verdict.best_score is None else verdict.best_score
    interval = verdict.best_interval if verdict.best_score is not None else state.best_interval
    transition.set(best_score=best, best_interval=interval, noisy=state.noisy or verdict.became_noisy)
