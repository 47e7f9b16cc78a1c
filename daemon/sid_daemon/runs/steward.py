"""The steward: the actor that begins every round with a clean-up and a fresh look at the user's files.

Carries out `PrepareRound` and `ReturnIdeas`. It is the daemon's own actor, since settings, trust and the run's
records are the daemon's. It never runs a command of the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import trio

from sid_actors.actor import Actor
from sid_actors.git.master import Head
from sid_actors.watching.activity import ActivityLog
from sid_actors.work_failed import work_failed
from sid_daemon import track_config
from sid_protocol.commands import PrepareRound, ReturnIdeas
from sid_protocol.errors import GitError, SidError
from sid_protocol.events import IdeasReturned, RoundPrepared, RunLessons, WorkFailed
from sid_protocol.settings import Settings

Answer = RoundPrepared | IdeasReturned | WorkFailed


class Ground(Protocol):
    """What the steward needs of the repository and of the daemon."""

    async def clean(self, keep: tuple[str, ...], iteration: int) -> list[str]:
        """Remove the worktrees of ours that a round does not need; returns what was left alone."""

    async def check_free(self, iteration: int, agents: int) -> None:
        """Refuse a new round whose worktrees or branches would meet something of the user's."""

    async def head(self) -> Head:
        """Return the improvement branch's head, and whether wins wait on a ref of ours."""

    async def sealed(self, settings: Settings) -> tuple[str, ...]:
        """Return the sealed paths."""

    async def check(self, settings: Settings) -> None:
        """Refuse settings that are not trusted, or whose jobs cannot be contained."""

    async def other_runs(self, window: int) -> tuple[RunLessons, ...]:
        """Return what other runs have seen, the newest first, as far as it may change this one's lessons."""

    def tell(self, event: str, why: str) -> None:
        """Log something for the user to know."""


@dataclass(slots=True, kw_only=True, eq=False)
class Steward(Actor[PrepareRound | ReturnIdeas, Answer]):
    """Prepares rounds.

    Attributes:
        root: The track's root.
        ground: The repository and the daemon's rules.
    """

    root: Path
    ground: Ground

    async def handle(self, message: PrepareRound | ReturnIdeas, activity: ActivityLog) -> Answer:
        """Carry one command out."""
        try:
            if isinstance(message, ReturnIdeas):
                await trio.to_thread.run_sync(
                    track_config.return_ideas, self.root, message.iteration, message.ideas
                )
                return IdeasReturned(cause=message.id)
            activity.touch("cleaning up")
            return await self._prepare(message, activity)
        except (SidError, OSError) as error:
            return work_failed(message.id, error)

    async def _prepare(self, message: PrepareRound, activity: ActivityLog) -> RoundPrepared:
        for left in await self.ground.clean(message.keep, message.iteration):
            self.ground.tell("left_alone", why=left)
        activity.touch("reading the settings")
        if not await trio.Path(self.root).is_dir():
            raise GitError(f"{self.root} is gone", hint="bring the repository back, then start the run again")
        read = await trio.to_thread.run_sync(track_config.read_config, self.root)
        await self.ground.check(read.settings)
        if message.take_ideas:
            await self.ground.check_free(message.iteration, read.settings.number_of_agents)
        ideas: tuple[str, ...] = ()
        if message.take_ideas:
            ideas = await trio.to_thread.run_sync(track_config.take_ideas, self.root, message.iteration)
        head = await self.ground.head()
        return RoundPrepared(
            cause=message.id,
            settings=read.settings,
            goal=read.goal,
            rules=read.rules,
            families=read.families,
            ideas=ideas,
            head=head.commit,
            sealed=await self.ground.sealed(read.settings),
            on_side_ref=head.on_side_ref,
            others=await self.ground.other_runs(read.settings.lessons_window),
        )
