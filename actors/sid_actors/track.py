"""What an agent may know of its run: the reading side of a track, as a protocol.

The daemon provides it from the run's state and database; role actors and back ends read it. Nothing
here writes, and nothing here decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sid_protocol.records import IterationHistory, ResearchBrief
from sid_protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Attempt:
    """One candidate of an earlier round.

    Attributes:
        iteration: Its round.
        family: Its plan's approach family.
        score: Its measured score, or None.
        won: Whether it was merged.
        failure: Its failure's category and lesson, or None.
        before: The best score before its round, or None.
        extra: What its plan holds beyond the contract's fields, such as a recipe.
    """

    iteration: int
    family: str
    score: float | None
    won: bool
    failure: str | None = None
    before: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """A lesson as an agent is told of it.

    Attributes:
        rule: What to do, in the daemon's own words.
        evidence: What the fault looked like, newest last: text of agents and programs.
    """

    rule: str
    evidence: tuple[str, ...] = ()


class Track(Protocol):
    """Read access to one run, for agents."""

    @property
    def run_id(self) -> str:
        """The run's id."""

    @property
    def repo(self) -> str:
        """Absolute path of the repository."""

    @property
    def root(self) -> str:
        """Absolute path of the track's root."""

    @property
    def topic(self) -> str:
        """The topic's slug."""

    @property
    def settings(self) -> Settings:
        """The settings of the current round."""

    @property
    def goal(self) -> str:
        """`goal.md` as it was when the round began."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The user's own rules."""

    @property
    def families(self) -> tuple[str, ...]:
        """All approach families, the custom ones last."""

    @property
    def sealed(self) -> tuple[str, ...]:
        """Paths that no candidate may change, relative to the repository."""

    @property
    def ideas(self) -> tuple[str, ...]:
        """The user's ideas taken for this round."""

    @property
    def brief(self) -> ResearchBrief | None:
        """This round's brief, or None where research failed or is under way."""

    @property
    def streak_family(self) -> str | None:
        """The family that won the last two rounds, which H002 bars, or None."""

    @property
    def winner_families(self) -> tuple[str | None, ...]:
        """The winning family of each of the last rounds, oldest first; None is a round without."""

    @property
    def best_score(self) -> float | None:
        """The incumbent's score."""

    def lessons(self, role: str) -> tuple[Told, ...]:
        """Return the lessons that stand in a role's prompts this round."""

    @property
    def ladder(self) -> str | None:
        """What a run that is stuck is to do otherwise in this round, or None."""

    async def memory(self) -> str:
        """Return `state/memory.md`: what the run has learnt, most useful first; empty before its first round."""

    async def history(self, last: int) -> list[IterationHistory]:
        """Return the last `last` recorded rounds, oldest first."""

    async def attempts(self, last: int) -> list[Attempt]:
        """Return every candidate of the last `last` recorded rounds, oldest first."""
