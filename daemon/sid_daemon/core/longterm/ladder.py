"""The escalation ladder: what a run that finds nothing more is to do otherwise.

Pure. After `STUCK_AFTER` rounds in a row without a winner each further round takes one rung; researcher and planners
are told it, `status` shows it. At the top stands a report to the user; from there on the last ways to look are taken
in turn, for as long as the user lets the run go on. A winner ends it.
"""

from __future__ import annotations

from dataclasses import dataclass

STUCK_AFTER = 5
"""Rounds in a row without a winner before the first rung."""
_RUNGS = {
    "reread_files": (
        "Read the files in scope again, from the first line, as if you saw them for the first time. What was "
        "taken for granted about them may be wrong."
    ),
    "reread_goal": (
        "Read the goal again, word for word. What does it allow that nobody has tried? What was tried that it "
        "does not ask for?"
    ),
    "reread_record": (
        "Read the record again. What do the failures have in common, which assumption do they share, and "
        "which of them came closest?"
    ),
    "combine": (
        "Combine two or three past wins, or near misses, into one change that none of them was alone."
    ),
    "opposite": (
        "Try the opposite of what was tried: where things were added, remove; where they were cached, "
        "recompute; where they were split, join."
    ),
    "radical": (
        "Propose a radical change: another algorithm, another data structure, another division of the work. "
        "Small steps have found nothing."
    ),
}
REPORT = "report"
_AGAIN = 3
"""So many of the last rungs are taken in turn after the report."""


@dataclass(frozen=True, slots=True)
class Rung:
    """The step of the ladder that a round is on.

    Attributes:
        step: From 1.
        of: How many steps there are.
        name: One word of it.
        told: What researcher and planners are told.
        dry: Rounds in a row without a winner so far.
    """

    step: int
    of: int
    name: str
    told: str
    dry: int

    @property
    def is_report(self) -> bool:
        """Whether every step was taken, and the user should look."""
        return self.name == REPORT


def rung_of(dry: int) -> Rung | None:
    """Return the rung of a round; None while the run is not stuck.

    Args:
        dry: Rounds in a row without a winner before it.
    """
    index = dry - STUCK_AFTER
    if index < 0:
        return None
    of = len(_RUNGS) + 1
    if index < len(_RUNGS):
        name, told = list(_RUNGS.items())[index]
        return Rung(step=index + 1, of=of, name=name, told=told, dry=dry)
    told = list(_RUNGS.values())[-_AGAIN:][(index - len(_RUNGS)) % _AGAIN]
    return Rung(step=of, of=of, name=REPORT, told=told, dry=dry)


def rung_line(rung: Rung) -> str:
    """Return what the user is told of a rung, one line."""
    if rung.is_report:
        return (
            f"stuck: {rung.dry} rounds in a row without a winner, and every step of the ladder was taken; state/memory.md "
            "says what was tried. Question goal, scope and benchmark, or give an idea: sictl idea TEXT"
        )
    return f"stuck for {rung.dry} rounds: step {rung.step} of {rung.of} of the ladder, {rung.name.replace('_', ' ')}"
