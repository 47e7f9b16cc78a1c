"""What a run remembers of a round's candidates, so that `novelty` can tell a repetition.

Called once a round, when it is recorded; pure. The winner is left out: what it changed is the branch's own now, and a
user who takes it back may want it again.
"""

from __future__ import annotations

from sid_daemon.core import stopping
from sid_daemon.core.rounds import novelty
from sid_daemon.core.rounds.novelty import TRIED_KEPT, Tried
from sid_daemon.core.state import Execution, Round, RunState


def remembered(state: RunState, now: Round) -> tuple[Tried, ...]:
    """Return what was tried so far, with a round's candidates.

    Args:
        state: The run before the round is counted.
        now: The round.
    """
    question = novelty.question_of(state.settings)
    winner = now.verdict.winner if now.verdict and now.winner_commit else None
    fresh = [
        Tried(
            iteration=now.iteration,
            executor=one.executor,
            commit=one.commit or "",
            base=one.base,
            plan=novelty.plan_digest(one.plan),
            patch=one.patch,
            tree=one.tree,
            result=_result(now, one),
            settled=_is_settled(state, now, one),
            question=question,
        )
        for one in now.executions.values()
        if one.executor != winner and _was_tried(one)
    ]
    return (*state.tried, *fresh)[-TRIED_KEPT:]


def _was_tried(one: Execution) -> bool:
    """Say whether there is a result that the candidate itself is to be held responsible for."""
    if one.failure is not None and one.failure.category == "infrastructure":
        return False
    judged = one.smoke is not None or one.guard == "fail" or one.repeats is not None
    return judged or one.kill is not None


def _is_settled(state: RunState, now: Round, one: Execution) -> bool:
    """Say whether trying it again on the same commit can tell nothing new."""
    if one.repeats is not None:
        return True
    if one.kill is not None or one.result == "timeout" or (one.failure and one.failure.category == "oom"):
        return False
    verdict = now.verdict
    if one.result == "success":
        if verdict is None or verdict.incumbent_broken:
            return False
        return not _gained(state, now, one)
    return verdict is None or not verdict.incumbent_broken


def _gained(state: RunState, now: Round, one: Execution) -> bool:
    verdict = now.verdict
    if verdict is None or one.score is None or verdict.score_before is None:
        return False
    tested = verdict.finalist == one.executor and (verdict.gain or 0.0) > 0
    # The incumbent as it was before the round, too: planners know the scores by that.
    known = [before for before in (verdict.score_before, now.baseline_score) if before is not None]
    return tested or any(stopping.gain(before, one.score, state.settings) > 0 for before in known)


def _result(now: Round, one: Execution) -> str:
    if one.repeats is not None:
        return f"a repetition of {one.repeats.name}"
    if one.score is None or one.guard == "fail":
        return one.failure.what[:200] if one.failure else "no score"
    against = "" if now.incumbent_score is None else f" against {now.incumbent_score!r}"
    return f"score {one.score!r}{against}"
