"""What was tried before: no program is measured twice for the same question.

Part of the round machine; pure. A candidate is what it is measured as: the tree, or its normalised patch on the
commit that it is a change of (the workbench computes both before anything is measured). The same patch on another
commit is another program and a new question, and so is the same plan. A plan is its hypothesis and steps; it is
looked at before it costs an executor's turn.

Settled is what was judged: measured and not better, broken, or stopped by a guard. What ran out of time or memory, what
gained and was not merged, and what was inconclusive is open and may stand again, in `MOST_TRIES` rounds in all. Nothing
was tried where nobody is to blame: an agent's own failure, the infrastructure, a budget, a round that was blocked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sid_protocol.records import FailureAnalysis, PlanAnswer
from sid_protocol.settings import Settings

MOST_TRIES = 3
"""In so many rounds something that stays open is tried on one and the same commit."""
TRIED_KEPT = 500
"""So many candidates are remembered; older ones were changes of commits long gone."""
_SETTINGS = (
    *("benchmark_command", "benchmark_format", "benchmark_direction", "primary_metric", "setup_command"),
    *("guard_command", "holdout_command", "regression_threshold"),
)
_RULE = {"mode", "alpha", "min_effect", "accept", "guards"}
_QUESTION: dict[str, Any] = {**dict.fromkeys(_SETTINGS, True), "measurement": _RULE}


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that was tried.

    Attributes:
        iteration: Its round.
        executor: Whose it was.
        commit: It itself; empty where it never came to one.
        base: The commit it was a change of.
        plan: Digest of its plan.
        patch: Digest of its normalised patch; empty where it is not known.
        tree: Its git tree; empty where it is not known.
        result: What came of it, a few words.
        settled: It is not worth repeating.
        question: Digest of the settings that judged it.
    """

    iteration: int
    executor: str
    commit: str
    base: str
    plan: str
    patch: str
    tree: str
    result: str
    settled: bool
    question: str

    @property
    def name(self) -> str:
        """The words by which people know it."""
        return f"{self.executor} of round {self.iteration}"


def question_of(settings: Settings) -> str:
    """Return the digest of the settings that judge a candidate: under others, an old result says nothing."""
    return _digest(settings.model_dump_json(include=_QUESTION))


def asked(tried: Iterable[Tried], settings: Settings) -> tuple[Tried, ...]:
    """Return what was tried under settings that judge alike."""
    question = question_of(settings)
    return tuple(one for one in tried if one.question == question)


def plan_digest(plan: PlanAnswer) -> str:
    """Return what tells a plan from others: its words, whatever their case and spacing.

    The family is left out, so that a plan does not pass under another name; what a back end of ours adds to say
    exactly what is to be done (a recipe) counts as it is.
    """
    words = [plan.hypothesis, *(part for step in plan.steps for part in (step.file, step.change))]
    exact = json.dumps(plan.model_extra or {}, sort_keys=True, default=str)
    return _digest("\0".join([*(" ".join(text.casefold().split()) for text in words), exact]))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def plan_tried(tried: Iterable[Tried], plan: str, base: str) -> Tried | None:
    """Return the attempt that a plan would only repeat, or None.

    Args:
        tried: Oldest first.
        plan: The plan's digest.
        base: The commit it would be carried out on.
    """
    return _spent([one for one in tried if (one.plan, one.base) == (plan, base)])


def patch_tried(tried: Iterable[Tried], *, patch: str, tree: str, base: str) -> Tried | None:
    """Return the attempt that measuring a candidate would only repeat, or None.

    Args:
        tried: Oldest first.
        patch: Digest of its normalised patch; empty where it is not known.
        tree: Its git tree; empty where it is not known.
        base: The commit it is a change of.
    """
    return _spent(
        [
            one
            for one in tried
            if (tree and one.tree == tree) or (patch and (one.patch, one.base) == (patch, base))
        ]
    )


def _spent(alike: list[Tried]) -> Tried | None:
    """Return the attempt that settles it: a judged one, or the last of too many."""
    settled = [one for one in alike if one.settled]
    if settled:
        return settled[-1]
    rounds = {one.iteration for one in alike}
    return alike[-1] if len(rounds) >= MOST_TRIES else None


def refusal(earlier: Tried) -> FailureAnalysis:
    """Return the failure analysis of a candidate that repeats an earlier one."""
    return FailureAnalysis(
        what=f"tried before: the same change as {earlier.name} ({earlier.result})"[:500],
        why="not measured again: white space and comments do not make a change new",
        category="logic_error",
        lesson="Do something else: this was tried, and its result is known.",
    )
