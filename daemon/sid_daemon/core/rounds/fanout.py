"""Research by several cold researchers at once, each from an angle of its own, and one brief of what they found.

With `research_fanout` above 1. Termination gate: the briefs are merged only when every angle has answered, failed or
been force-killed; one that did not answer stands in the summary with the reason, so that nobody takes its silence for
a finding. Source: the fan-out of the `deeper` system; the angles are its five. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from sid_protocol.records import BriefAnswer, Idea

ANGLES = ("evidence", "counterexample", "boundary", "mechanism", "precedent")
IDEAS = 10
"""A brief holds at most so many."""


@dataclass(frozen=True, slots=True)
class Angle:
    """What one researcher came back with: a brief, or why there is none; neither while it is at work."""

    brief: BriefAnswer | None = None
    failed: str = ""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.brief is not None or bool(self.failed)


def angles(count: int) -> tuple[str, ...]:
    """Return the names of so many angles; from the sixth on they come again, numbered."""
    rounds = range((count - 1) // len(ANGLES) + 1)
    names = (name if again == 0 else f"{name}_{again + 1}" for again in rounds for name in ANGLES)
    return tuple(names)[:count]


def merged(found: Mapping[str, Angle]) -> BriefAnswer | None:
    """Return one brief of all angles', or None where no angle has one.

    The best idea of each angle comes before the second best of any; an idea that two had counts once. At least two
    families stay among them, as in any brief.
    """
    briefs = {name: one.brief for name, one in found.items() if one.brief is not None}
    if not briefs:
        return None
    rows = zip_longest(*(brief.ideas for brief in briefs.values()))
    ideas: dict[str, Idea] = {}
    for idea in (one for row in rows for one in row if one is not None):
        ideas.setdefault(" ".join(idea.title.casefold().split()), idea)
    told = [
        f"[angle: {name}] {briefs[name].repo_analysis_summary}"
        if name in briefs
        else f"[angle: {name} — collection failed: {one.failed}]"
        for name, one in found.items()
    ]
    return BriefAnswer(repo_analysis_summary="\n".join(told), ideas=_kept(list(ideas.values())))


def _kept(ideas: Sequence[Idea]) -> list[Idea]:
    kept = list(ideas[:IDEAS])
    families = {idea.approach_family for idea in kept}
    if len(families) == 1:
        other = next((idea for idea in ideas[IDEAS:] if idea.approach_family not in families), None)
        kept = [*kept[: IDEAS - 1], other] if other else kept
    return kept
