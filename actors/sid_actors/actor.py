"""One actor: a trio task that owns its state and answers each command with exactly one event.

Subclasses write `handle`; the base reads the mail, publishes the work at hand so that the supervisor can
end it, and sends the answer up. "Exactly one answer" is therefore structural: `handle` returns it. The
exceptions are named: work that was cancelled is answered by who cancelled it, and work whose actor crashed
is answered by the supervisor. An actor has no timer, retries nothing and decides nothing about others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import trio

from sid_actors.standstill import AgentClock
from sid_actors.watching.activity import ActivityLog
from sid_protocol.commands import Command
from sid_protocol.events import Event

M = TypeVar("M", bound=Command)
E = TypeVar("E", bound=Event)


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """One command on its way: waiting in a mailbox, or under an actor's hands.

    Attributes:
        command_id: The command.
        actor: Name of the actor that has it.
        scope: Cancelling it ends this work alone; the actor goes on with its next message.
        activity: What the agent was seen doing; starts anew when the work begins.
        since: When the work began, in seconds of the registry's clock; None while it waits in the mailbox.
        answered: Whether its terminal event was delivered; settled once `done` is set.
        done: Set when the work has fully ended, processes included.
    """

    command_id: str
    actor: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    activity: ActivityLog = field(default_factory=ActivityLog)
    since: float | None = None
    answered: bool = False
    done: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True)
class WorkRegistry:
    """All work that has not ended, by command id, and the clock of it; shared by a supervisor and its actors."""

    works: dict[str, Work] = field(default_factory=dict)
    clock: AgentClock = field(default_factory=AgentClock)
    on_cost: Callable[[], None] = lambda: None

    def expect(self, command_id: str, actor: str) -> Work:
        """Enter a command that was put into an actor's mailbox, so that it can be cancelled there, too.

        Raises:
            ValueError: a command of that id is on its way already.
        """
        if command_id in self.works:
            raise ValueError(f"command {command_id} is on its way already")
        work = self.works[command_id] = Work(command_id=command_id, actor=actor)
        return work

    def begin(self, command_id: str, actor: str) -> Work:
        """Return the work of a command that an actor has taken from its mailbox, its clock at zero."""
        work = self.works.get(command_id) or self.expect(command_id, actor)
        # A clock that starts now, not when the letter was posted.
        work.activity = ActivityLog(clock=self.clock, on_cost=self.on_cost)
        work.since = self.clock.now()
        return work

    def end(self, work: Work) -> None:
        """Take work out whose every process is dead."""
        if self.works.get(work.command_id) is work:
            del self.works[work.command_id]
        work.done.set()


class ActorFault(Exception):
    """An actor's `handle` raised: what the supervisor restarts it for.

    Args:
        work: The work that was lost.
        error: What was raised.
    """

    def __init__(self, work: Work, error: Exception) -> None:
        super().__init__(f"{work.actor} at {work.command_id}: {type(error).__name__}: {error}")
        self.work = work
        self.error = error


@dataclass(slots=True, kw_only=True, eq=False)
class Actor(ABC, Generic[M, E]):
    """Base of all actors.

    Attributes:
        name: Unique under its supervisor, for example `planner_a`.
        inbox: Its own clone of its mailbox's end; a successor reads on from another clone.
        outbox: Its own clone of the one channel up.
        works: Where it publishes the work at hand.
    """

    name: str
    inbox: trio.MemoryReceiveChannel[M]
    outbox: trio.MemorySendChannel[E]
    works: WorkRegistry

    @abstractmethod
    async def handle(self, message: M, activity: ActivityLog) -> E:
        """Carry one command out and return its one terminal event.

        Args:
            message: The command.
            activity: Where signs of life are noted.
        """

    async def run(self) -> None:
        """Answer mail until the mailbox is closed.

        Raises:
            ActorFault: `handle` raised, or answered another command than it was given.
        """
        with self.inbox, self.outbox:
            async for message in self.inbox:
                await self._carry_out(message)

    async def _carry_out(self, message: M) -> None:
        work = self.works.begin(message.id, self.name)
        try:
            with work.scope:
                if work.scope.cancel_called:
                    return  # it was withdrawn while it waited
                event = await self.handle(message, work.activity)
                _check_cause(event, message)
                # Inside the scope: until the answer is delivered, cancelling still means "no answer".
                await self.outbox.send(event)
                work.answered = True
        except Exception as error:
            raise ActorFault(work, error) from error
        finally:
            self.works.end(work)


def _check_cause(event: Event, message: Command) -> None:
    if event.cause != message.id:
        raise RuntimeError(f"{type(event).__name__} names {event.cause or 'nothing'} as its cause")


class ActorFactory(Protocol):
    """Makes an actor, first and after every crash; `functools.partial(Planner, backend=...)` is one."""

    def __call__(
        self,
        *,
        name: str,
        inbox: trio.MemoryReceiveChannel[Any],
        outbox: trio.MemorySendChannel[Any],
        works: WorkRegistry,
    ) -> Actor[Any, Any]:
        """Return a fresh actor that owns the two channel ends."""
