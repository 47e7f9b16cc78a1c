"""Watches the clocks of a run's agents: reports each that runs out, and gathers what a straggler was doing.

Held by the conductor, which gives what is reported to the core: that decides whether to look, and whether to kill.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from sid_actors.actor import WorkRegistry
from sid_daemon.core import deadlines
from sid_protocol.commands import AgentCommand, AnyCommand, Inspect, RunPlan
from sid_protocol.events import DeadlinePassed, EvidenceTaken
from sid_protocol.settings import Settings

LOOKS = 4
"""So often, within an executor's idle limit, somebody looks for signs of life that nobody reports."""


class DeadlineWatch:
    """The clocks of one run's agents.

    Args:
        works: What is at work, and the clock that agents go by.
        under_way: Returns the commands under way, by id.
        settings: Returns the settings of the current round.
        report: Takes an event for the core.
    """

    def __init__(
        self,
        works: WorkRegistry,
        under_way: Callable[[], Mapping[str, AnyCommand]],
        settings: Callable[[], Settings],
        report: Callable[[DeadlinePassed | EvidenceTaken], Awaitable[None]],
    ) -> None:
        self._works = works
        self._under_way = under_way
        self._settings = settings
        self._report = report
        self._reported: set[str] = set()
        self._changed = trio.Event()
        works.clock.on_change = self.look_again

    def look_again(self) -> None:
        """Look now, since other commands are under way, or the clock has stopped or goes on."""
        self._changed.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._changed = trio.Event()
            self._reported &= self._under_way().keys()
            wake, due = deadlines.expired(self._watched(), self._works.clock.now(), LOOKS)
            for target, clock in due:
                self._reported.add(target)
                await self._report(DeadlinePassed(target=target, clock=clock))
            if not due:
                with trio.move_on_at(self._works.clock.trio_time(wake)):
                    await self._changed.wait()
                await self._look_for_signs()

    async def inspect(self, command: Inspect) -> None:
        """Report what a straggler was doing; nothing where it has ended meanwhile."""
        target = self._under_way().get(command.target)
        work = self._works.works.get(command.target)
        if work is None or not isinstance(target, AgentCommand):
            return
        limit_s = deadlines.hard_s(target, self._settings())
        if command.clock == "idle":
            limit_s = deadlines.idle_s(target, self._settings()) or limit_s
        activity = await work.activity.gather(limit_s)
        await self._report(
            EvidenceTaken(cause=command.id, target=target.id, clock=command.clock, activity=activity)
        )

    def _watched(self) -> list[deadlines.Watched]:
        now, settings, found = self._works.clock.now(), self._settings(), []
        for command_id, command in self._under_way().items():
            work = self._works.works.get(command_id)
            if work is not None and isinstance(command, AgentCommand) and command_id not in self._reported:
                started = now if work.since is None else work.since
                found.append(
                    deadlines.Watched.of(
                        command, settings, started=started, last_seen=work.activity.last_seen
                    )
                )
        return found

    async def _look_for_signs(self) -> None:
        """Look whether an executor of whom nothing was heard for a while is at work all the same."""
        for command_id, command in list(self._under_way().items()):
            work = self._works.works.get(command_id)
            if work is not None and work.since is not None and isinstance(command, RunPlan):
                await work.activity.look_for_signs(self._settings().deadlines.executor_idle / LOOKS)
