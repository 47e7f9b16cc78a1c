"""Agents that stand still while another run measures, and the clock that stands still with them.

A daemon makes one `Standstill`; each run has one `AgentClock` for all its agents. While one run measures with
`measurement.quiet`, the agents' processes of all other runs are stopped (SIGSTOP) and their clocks do not go, so that
no deadline passes over it. Jobs that begin meanwhile are stopped at once. Only this daemon's agents can be stopped, and
only what they run on this machine: a model's answer may arrive meanwhile. It decides nothing: who wants quiet is the
core's word.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

import trio


class StoppableJob(Protocol):
    """A job as a clock needs it: `job.JobHandle` is one."""

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left to be stopped."""

    def hold(self) -> None:
        """Let its deadline wait; on the event loop."""

    def release(self) -> None:
        """Let its deadline go on; on the event loop."""

    def freeze(self) -> None:
        """Stop its processes; blocks for some milliseconds."""

    def thaw(self) -> None:
        """Let its processes go on; blocks for some milliseconds."""


class AgentClock:
    """The clock of one run's agents, in seconds; trio's, less the time for which it stood still.

    Attributes:
        on_change: Called when it stops and when it goes on.
    """

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._lost = 0.0
        self._stopped_at: float | None = None
        self._jobs: list[StoppableJob] = []

    @property
    def stands(self) -> bool:
        """Whether it stands still."""
        return self._stopped_at is not None

    def now(self) -> float:
        """Return its time."""
        at = trio.current_time() if self._stopped_at is None else self._stopped_at
        return at - self._lost

    def trio_time(self, when: float) -> float:
        """Return when trio's clock will show what this one shows at `when`, if it goes on as it does now."""
        return math.inf if self.stands else when + self._lost

    def enlist(self, job: StoppableJob) -> None:
        """Stop a job with this clock from now on, at once if it stands still."""
        self._jobs = [one for one in self._jobs if not one.ended] + [job]
        if self.stands:
            job.hold()
            job.freeze()

    @property
    def jobs(self) -> list[StoppableJob]:
        """The jobs that stand still with it."""
        return list(self._jobs)

    def stop(self) -> None:
        """Stand still from now on; stopping the jobs' processes is the caller's."""
        self._stopped_at = trio.current_time()
        for job in self._jobs:
            job.hold()
        self.on_change()

    def go(self) -> None:
        """Go on, with every job that came meanwhile."""
        if self._stopped_at is not None:
            self._lost += trio.current_time() - self._stopped_at
        self._stopped_at = None
        for job in self._jobs:
            job.thaw()
            job.release()
        self.on_change()


class Standstill:
    """All runs' clocks; whoever measures holds the machine's lock, so one at a time stops the others."""

    def __init__(self) -> None:
        self._clocks: list[AgentClock] = []
        self._stopped: list[AgentClock] | None = None

    def join(self, clock: AgentClock) -> None:
        """Let a run's agents stand still for others from now on."""
        self._clocks.append(clock)
        if self._stopped is not None:
            clock.stop()
            self._stopped.append(clock)

    def leave(self, clock: AgentClock) -> None:
        """Forget a run that has ended."""
        self._clocks.remove(clock)

    @asynccontextmanager
    async def around(self, own: AgentClock | None) -> AsyncIterator[None]:
        """Let the agents of all other runs stand still.

        Args:
            own: The clock of the run that measures; None for set-up, which has none.
        """
        stopped = self._stopped = [clock for clock in self._clocks if clock is not own]
        try:
            for clock in stopped:
                clock.stop()
            await _each(job.freeze for clock in stopped for job in clock.jobs)
            yield
        finally:
            with trio.CancelScope(shield=True):
                await _each(job.thaw for clock in stopped for job in clock.jobs)
            self._stopped = None
            for clock in stopped:
                clock.go()


async def _each(moves: Iterable[Callable[[], None]]) -> None:
    """Call them all in a thread of its own: the usual ones may all be taken."""
    todo = list(moves)

    def call() -> None:
        for move in todo:
            move()

    if todo:
        await trio.to_thread.run_sync(call, limiter=trio.CapacityLimiter(1))
