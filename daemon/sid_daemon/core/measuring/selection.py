"""A round's measuring decisions: which single run or merge to ask for next, until a verdict.

Theory of operation
-------------------
The tournament takes one round's candidates, each with its first run, and decides which one, if any, is better
than the incumbent. It never runs anything: `next_ask` names the one run or merge that it needs now, `on_run`
and `on_merge` take the answer, and so on until `next_ask` returns a `Verdict`. There is one outstanding ask at
a time, and the same one until it is answered.

The state is what the round began with and the answers, in order; nothing derived is kept. `next_ask` goes
through the answers from the start (a few milliseconds) with the rule as straight-line code, so the evidence after a kill
is that before it, bit for bit, and a half pair is simply asked for again. The rules are in `deterministic`,
`screen`, `confirm` and `noisy`; the statistics in `evidence`; the words in `words`.

Called by the core's round, by the simulator and by tests. Never sees a process, a path or a clock.
"""

from __future__ import annotations

from dataclasses import replace

from sid_daemon.core.measuring.deterministic import deterministic_round
from sid_daemon.core.measuring.noisy import calibrate, noisy_round
from sid_daemon.core.measuring.session import Session
from sid_daemon.core.measuring.words import (
    INCUMBENT,
    Arm,
    Ask,
    AskHoldout,
    AskMerge,
    AskRun,
    Candidate,
    MergeResult,
    Policy,
    RunResult,
    Selection,
    SelectionHistory,
    Steps,
    Verdict,
)


def begin(
    policy: Policy,
    *,
    incumbent_score: float | None,
    history: SelectionHistory,
    candidates: tuple[Candidate, ...],
    iteration: int,
) -> Selection:
    """Return the state of a round whose candidates all had their first run.

    Args:
        policy: The rule's parameters.
        incumbent_score: `best_score`; None if it was never measured.
        history: Of the last verdict, or of calibration.
        candidates: In order of executor number; may be empty.
        iteration: The round, part of the seed of its coins.
    """
    return Selection(policy, incumbent_score, history, candidates, iteration)


def next_ask(selection: Selection) -> Ask | Verdict:
    """Return what is needed next, or the verdict; the same until an answer is fed.

    Raises:
        TypeError: if a run was answered with a merge, or the reverse.
    """
    flow = decide(selection)
    try:
        ask = next(flow)
        for fed in selection.fed:
            ask = flow.send(fed)
    except StopIteration as end:
        return _verdict(end)
    return ask


def on_run(selection: Selection, result: RunResult) -> Selection:
    """Return the state with a run's result, of the benchmark or of the hold-out command.

    Raises:
        ValueError: if no run of that arm is outstanding.
    """
    ask = next_ask(selection)
    if not isinstance(ask, AskRun | AskHoldout) or ask.arm != result.arm:
        raise ValueError(f"no run of {result.arm} is outstanding: {ask}")
    return replace(selection, fed=(*selection.fed, result))


def on_merge(selection: Selection, arm: Arm, *, conflict: bool) -> Selection:
    """Return the state with what became of a merge.

    Raises:
        ValueError: if no merge of that arm is outstanding.
    """
    ask = next_ask(selection)
    if not isinstance(ask, AskMerge) or ask.arm != arm:
        raise ValueError(f"no merge of {arm} is outstanding: {ask}")
    return replace(selection, fed=(*selection.fed, MergeResult(arm, conflict)))


def decide(selection: Selection) -> Steps[Verdict]:
    """Go through a round: yields what it asks for, is sent the answers, returns the verdict.

    The same code as behind `next_ask`, for a caller that can hold a generator (the simulator). `fed` is
    ignored.
    """
    session = Session(selection)
    if selection.candidates and not any(one.smoke.valid for one in selection.candidates):
        # Nobody is blamed before it is known that the benchmark works at all.
        probe = yield from session.run_retried(INCUMBENT, "check")
        if not probe.valid:
            return session.broken()
    if session.mode == "deterministic":
        verdict = yield from deterministic_round(session)
        if verdict is not None:
            return verdict
        session.turn_noisy()
        if not (yield from calibrate(session)):
            return session.broken()
    return (yield from noisy_round(session))


def _verdict(end: StopIteration) -> Verdict:
    verdict = end.value
    if not isinstance(verdict, Verdict):
        raise TypeError("a round ended without a verdict")
    return verdict
