"""What a track has learned, as its files and the RPC tell it.

`state/lessons.json` in a root and its copy among the daemon's state are one `TrackLessons`; clients get the same
records. Written by the daemon from the run's journal; never read back for that run.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sid_protocol.records import Record


class LessonRecord(Record):
    """One lesson, in force or ended, and what it rests on."""

    key: str = Field(description="Category, reason and rule of the fault, `-` where there is none.")
    rule: str = Field(description="What agents are told.")
    status: Literal["in_force", "retired", "dropped", "forgotten"]
    roles: list[str] = Field(default_factory=list, description="Whose prompts it stands in.")
    since: int = Field(description="The round from which on it is in force.")
    runs: list[str] = Field(default_factory=list, description="Other runs that it rests on.")
    seen: int = Field(
        default=0, description="Rounds in which the fault was seen, since a lesson on it ended."
    )
    rounds: list[int] = Field(default_factory=list, description="The newest of them.")
    snippets: list[str] = Field(default_factory=list, description="What it looked like; text of agents.")
    promotions: int = Field(default=1, description="How often it was promoted.")
    told: int = Field(
        default=0, description="Rounds with an occasion for the fault in which agents were told."
    )
    told_again: int = Field(default=0, description="Of them, those in which it came back.")
    held: int = Field(default=0, description="Rounds with an occasion in which it was held out.")
    held_again: int = Field(default=0, description="Of them, those in which it came back.")
    ended: int | None = Field(default=None, description="The round after which it was no longer in force.")
    why: str = Field(default="", description="What ended it.")


class TrackLessons(Record):
    """What one run has learned."""

    run_id: str
    repo: str
    topic: str
    at: str = ""
    seen: list[str] = Field(default_factory=list, description="Keys of all faults seen, in lessons or not.")
    standing: list[str] = Field(
        default_factory=list, description="Keys of lessons in force on the evidence of several runs."
    )
    lessons: list[LessonRecord] = Field(default_factory=list)
    replays: str | None = Field(
        default=None, description="The run that it replays: what it has seen was seen there, and counts once."
    )
