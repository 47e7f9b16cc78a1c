"""Benchmark runs: under which conditions one is made (how long, and who may run beside it), and what came of it.

Every run that the core asks for is put together here, so that no stage forgets one of them. Only runs that are
compared by value, not by evidence, may have others beside them: what disturbs a benchmark without noise changes
its time and not its score. Only runs that are evidence are worth the quiet that other runs' agents pay for
(`measurement.slots` and `measurement.quiet`; the page on measuring, sections 1 and 5).

Part of `step`; pure. Called by whoever asks for a run: `execution`, `tournament`, `round` and `auditing`.
"""

from __future__ import annotations

from sid_daemon.core.measuring.words import RunResult
from sid_daemon.core.state import RunState
from sid_protocol.commands import Measure
from sid_protocol.events import RunMeasured

# Calibration, the hold-out and every stage of the noisy rule have the machine alone.
BY_VALUE = frozenset({"smoke", "merge", "check", "audit"})


def run_of(
    state: RunState,
    *,
    id: str,  # noqa: A002 -- the command's own word
    arm: str,
    tree: str,
    stage: str,
    iteration: int | None = None,
    block: int = 0,
    beside: str | None = None,
    beside_tree: str = "",
) -> Measure:
    """Return the command for one run under the conditions that hold now.

    Args:
        state: The run.
        id: Of the command.
        arm: Which tree that is.
        tree: Commit or tree id.
        stage: What for.
        iteration: The round, if it is not the one under way.
        block: Block or pair.
        beside: Duet: the arm to be run at the same time.
        beside_tree: Its tree.
    """
    by_value = stage in BY_VALUE and not state.is_noisy
    rule = state.settings.measurement
    slots = rule.slots if by_value else 1
    return Measure(
        id=id,
        iteration=state.iteration if iteration is None else iteration,
        arm=arm,
        tree=tree,
        stage=stage,
        block=block,
        limit_s=_limit_s(state, slots),
        beside=beside,
        beside_tree=beside_tree,
        slots=slots,
        # A candidate's first run is used in no decision where scores are noisy.
        quiet=rule.quiet and not by_value and stage != "smoke",
    )


def _limit_s(state: RunState, slots: int) -> float | None:
    """Return how long a run may take, beside its deadline: the user's limit or set-up's.

    Set-up measured it alone on the machine; among so many it may take as many times as long.
    """
    own, usual = state.settings.measurement.run_timeout, state.run_timeout_s
    return own if own is not None or usual is None else usual * slots


def result_of(arm: str, event: RunMeasured) -> RunResult:
    """Return a run as the measuring core reads it.

    Args:
        arm: Which tree it ran in.
        event: What the bench said of it.
    """
    return RunResult(
        arm=arm,
        score=event.score,
        sub_scores=dict(event.sub_scores),
        status=event.status,
        cpu_s=event.cpu_s,
        wall_s=event.wall_s,
        category=event.category,
        why=event.why or None,
    )
