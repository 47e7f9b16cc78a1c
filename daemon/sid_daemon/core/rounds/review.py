"""The rules on plans, as code: H001, H002, H003, paths and families.

They bind whatever a critic says: a critic may reject more, never approve what they reject. Called by
the round machine when a plan comes up at the critic. Pure. The rules are those of the harness file:
one hypothesis a plan, no family that won the last two rounds, no two plans of a round in one family.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sid_daemon.core.rounds.novelty import Tried, plan_digest, plan_tried
from sid_protocol.paths import covered, path_fault
from sid_protocol.records import FAMILIES, ArchitectReview, CriticReview, Plan
from sid_protocol.settings import Scope

_ITEM = re.compile(r"(?m)^\s*(?:[-*\u2022]|\(?\d{1,2}[.)]|\(?[a-hA-H]\))\s+\S")
_LABEL = re.compile(r"\b(?:(?:hypothesis|idea|change)\s*#?\s*(?:\d+|[ABC])|H\d{1,2})\s*[:.)]", re.IGNORECASE)
_INLINE = (
    re.compile(r"(?:^|[:;.]\s+)1\.\s.*?[:;.,]\s+2\.\s", re.DOTALL),
    re.compile(r"(?:^|\s)\(?1\)\s.*?\s\(?2\)\s", re.DOTALL),
    re.compile(r"(?:^|\s)\(?a\)\s.*?\s\(?b\)\s", re.DOTALL | re.IGNORECASE),
    re.compile(r"(?:^|[.;:]\s+)first(?:ly)?,\s.*?[.;]\s+second(?:ly)?,\s", re.DOTALL | re.IGNORECASE),
)
"""A list within a line: `1. … 2. …`, `(a) … (b) …`, `First, … Second, …`."""
_JOINED = re.compile(
    r"(?:;|\.|,)?\s+(?:and also|as a second (?:change|hypothesis)|secondly|in addition,? also)\b",
    re.IGNORECASE,
)

POINTS = (
    "h001_hypothesis_count",
    "h002_family_streak",
    "h003_intra_round_diversity",
    "schema_valid",
    "history_aware",
)
"""What a critic's review says pass or fail of."""


@dataclass(frozen=True, slots=True)
class RuleContext:
    """What the rules look at beside the plan.

    Attributes:
        families: Custom families.
        streak_family: The family that won the last two rounds, or None.
        approved_families: Families of this round's approved plans so far.
        sealed: Sealed paths and patterns.
        scope: What candidates may change.
        tried: What was tried before, oldest first.
        head: The commit that the plan is for.
        refused: Paths that candidates were refused for again and again → the lesson that bars them from plans.
    """

    families: tuple[str, ...]
    streak_family: str | None
    approved_families: tuple[str, ...]
    sealed: tuple[str, ...]
    scope: Scope
    tried: tuple[Tried, ...] = ()
    head: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)


def hypothesis_count(text: str) -> int:
    """Count the hypotheses in a text that should hold one.

    Numbered or bulleted items, also within a line, numbered labels, and joining words ("and also") count; a
    sentence with several effects of one change does not.
    """
    if not text.strip():
        return 0
    inline = 2 if any(pattern.search(text) for pattern in _INLINE) else 1
    return max(inline, len(_ITEM.findall(text)), len(_LABEL.findall(text)), 1 + len(_JOINED.findall(text)))


def path_faults(plan: Plan, context: RuleContext) -> list[str]:
    """Return one line for each path of a plan that no candidate may touch."""
    faults = []
    for path in dict.fromkeys([*plan.target_files, *(step.file for step in plan.steps)]):
        plain = path.removeprefix("./")
        if fault := path_fault(path):
            faults.append(f"path {path[:80]!r} {fault}")
        elif pattern := covered(plain, context.sealed):
            faults.append(f"path {path[:80]!r} is sealed ({pattern})")
        elif context.scope.on_violation == "reject" and (
            not covered(plain, context.scope.include) or covered(plain, context.scope.exclude)
        ):
            faults.append(f"path {path[:80]!r} is out of scope")
        elif lesson := context.refused.get(plain):
            faults.append(f"path {path[:80]!r} was refused before (lesson {lesson})")
    return faults


def apply_rules(plan: Plan, context: RuleContext) -> CriticReview:
    """Judge a plan by the rules alone.

    Args:
        plan: A plan that met the schema.
        context: The round so far.

    Returns:
        A review whose verdict is `approved` exactly when every rule passes.
    """
    reasons: dict[str, list[str]] = {"h001": [], "h002": [], "h003": [], "schema": [], "history": []}
    count = hypothesis_count(plan.hypothesis)
    if count != 1:
        reasons["h001"].append(f"H001: {count} hypotheses, exactly one is needed")
    family = plan.approach_family
    if family == context.streak_family:
        reasons["h002"].append(f"H002: {family} won the last two rounds")
    if family in context.approved_families:
        reasons["h003"].append(f"H003: another plan of this round is {family}, too")
    if family not in FAMILIES and family not in context.families:
        reasons["schema"].append(f"unknown approach family {family[:40]!r}")
    if family == "other" and not plan.expected_outcome.rationale.strip():
        reasons["schema"].append("family 'other' needs a rationale that says why no other fits")
    reasons["schema"].extend(path_faults(plan, context))
    if earlier := plan_tried(context.tried, plan_digest(plan), context.head):
        told = f"tried before: the same plan as {earlier.name} ({earlier.result})"
        reasons["history"].append(told)
    lines = [line for group in reasons.values() for line in group]
    return CriticReview(
        h001_hypothesis_count="fail" if reasons["h001"] else "pass",
        h002_family_streak="fail" if reasons["h002"] else "pass",
        h003_intra_round_diversity="fail" if reasons["h003"] else "pass",
        schema_valid="fail" if reasons["schema"] else "pass",
        history_aware="fail" if reasons["history"] else "pass",
        verdict="rejected" if lines else "approved",
        rejection_reason="; ".join(lines)[:2000] or None,
    )


def bind(by_rules: CriticReview, by_critic: CriticReview | None) -> CriticReview:
    """Join the rules' review with the critic's: each point fails if either says so.

    Args:
        by_rules: What `apply_rules` says.
        by_critic: The critic's answer, or None where it gave none.
    """
    if by_critic is None:
        return by_rules

    def worse(rules: str, critic: str) -> str:
        return "fail" if "fail" in (rules, critic) else "pass"

    points = {name: worse(getattr(by_rules, name), getattr(by_critic, name)) for name in POINTS}
    failed = [name for name, verdict in points.items() if verdict == "fail"]
    if by_rules.verdict == "rejected":
        reason = by_rules.rejection_reason
    elif by_critic.verdict == "rejected" or failed:
        # A review that fails a point and approves all the same contradicts itself: the point counts.
        why = (
            f"the critic failed {', '.join(failed)}" if failed else "rejected by the critic without a reason"
        )
        reason = by_critic.rejection_reason or why
    else:
        reason = None
    return by_critic.model_copy(
        update={
            **points,
            "verdict": "rejected" if reason is not None else "approved",
            "rejection_reason": reason,
        }
    )


def absent_advice(why: str) -> ArchitectReview:
    """Return the review that stands where the architect gave none."""
    return ArchitectReview(verdict="approve", feedback=f"no review: {why}"[:2000])
