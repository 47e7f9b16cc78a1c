"""Keeps a run's actors alive: starts them, restarts the one that crashed, ends them in reverse order.

Made by the run's composition root, one a run. Restart is not retry: a command that its actor crashed on is
answered with `ActorCrashed`, and the core decides whether it is tried again; mail that waited is kept for
the restarted actor. Too many crashes within a window fail the run as a whole. The strategy is one-for-one,
child specs and reverse shutdown are those of Erlang's supervisors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog
import trio

from sid_actors.actor import ActorFactory, ActorFault, Work, WorkRegistry
from sid_actors.intensity import Intensity
from sid_protocol.commands import Command
from sid_protocol.errors import SidError, WrongMoment
from sid_protocol.events import ActorCrashed

log = structlog.get_logger(__name__)


class RestartIntensityExceeded(SidError):
    """Actors crashed more often than the window allows: the fault is not passing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """How one actor is started and when it is restarted.

    Attributes:
        name: Unique among the supervisor's children.
        factory: Makes the actor, first and after a crash.
        restart: `permanent`: whenever it ends; `transient`: when it crashes; `temporary`: never.
        mailbox: The most commands that can wait for it; one more is a fault of the sender.
    """

    name: str
    factory: ActorFactory
    restart: Literal["permanent", "transient", "temporary"] = "permanent"
    mailbox: int = 16


@dataclass(slots=True, eq=False)
class _Child:
    spec: ChildSpec
    letters: trio.MemorySendChannel[Any]
    inbox: trio.MemoryReceiveChannel[Any]
    scope: trio.CancelScope = field(default_factory=lambda: trio.CancelScope(shield=True))
    ended: trio.Event = field(default_factory=trio.Event)


@dataclass(slots=True, kw_only=True, eq=False)
class Supervisor:
    """Runs actors one-for-one.

    Attributes:
        outbox: The one channel up, with buffer 0; every child gets its own clone.
        specs: The children to begin with, in their order of start.
        intensity: How many crashes are borne in which time.
        works: All work that has not ended.
        started: Set when the children of `specs` are there.
    """

    outbox: trio.MemorySendChannel[Any]
    specs: Iterable[ChildSpec] = ()
    intensity: Intensity = field(default_factory=Intensity)
    works: WorkRegistry = field(default_factory=WorkRegistry)
    started: trio.Event = field(default_factory=trio.Event)
    _children: dict[str, _Child] = field(default_factory=dict)
    _nursery: trio.Nursery | None = None
    _failure: RestartIntensityExceeded | None = None
    _until_stopped: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        """Start the children and keep them until `stop` or cancellation; then end them, last started first.

        When it returns or raises, no child and no process of one is left.

        Raises:
            RestartIntensityExceeded: actors crashed too often.
        """
        try:
            with self._until_stopped:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    try:
                        for spec in self.specs:
                            self.start_child(spec)
                        self.started.set()
                        await trio.sleep_forever()
                    finally:
                        self._nursery = None
                        # Children are shielded, so that they end one after the other and not all at once.
                        with trio.CancelScope(shield=True):
                            for child in reversed(list(self._children.values())):
                                await self._end(child)
        finally:
            self.outbox.close()
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        """Ask `run` to end the children and return."""
        self._until_stopped.cancel()

    def start_child(self, spec: ChildSpec) -> None:
        """Start one more actor.

        Raises:
            WrongMoment: the supervisor is not running, or has a child of that name.
        """
        if self._nursery is None or spec.name in self._children:
            raise WrongMoment(
                f"actor {spec.name} cannot be started: it is there already, or the run is ending"
            )
        letters, inbox = trio.open_memory_channel[Any](spec.mailbox)
        child = self._children[spec.name] = _Child(spec, letters, inbox)
        self._nursery.start_soon(self._keep, child, name=f"actor {spec.name}")

    @property
    def children(self) -> tuple[str, ...]:
        """Names of the actors, in their order of start."""
        return tuple(self._children)

    def tell(self, name: str, command: Command) -> Work:
        """Put a command into an actor's mailbox; never blocks.

        Returns:
            The work, whose `done` is set when it has fully ended.

        Raises:
            WrongMoment: there is no such actor, its mailbox is full, or the command is on its way already.
        """
        child = self._children.get(name)
        if child is None:
            raise WrongMoment(f"command {command.id}: there is no actor {name}")
        if command.id in self.works.works:
            raise WrongMoment(f"command {command.id} is on its way already")
        try:
            child.letters.send_nowait(command)
        except trio.WouldBlock:
            raise WrongMoment(f"command {command.id}: the mailbox of {name} is full") from None
        return self.works.expect(command.id, name)

    def cancel(self, command_id: str) -> Work | None:
        """End one piece of work, waiting or begun; its actor goes on with the next.

        The actor sends no terminal event for it: that is the caller's to do, once `done` is set and only if
        `answered` is still false.

        Returns:
            The work; None when it has ended already, and its answer is out or on its way.
        """
        work = self.works.works.get(command_id)
        if work is not None:
            if work.activity.processes and not work.scope.cancel_called:
                work.activity.processes_killed = len(work.activity.processes().states)
            work.scope.cancel()
            if work.since is None:
                work.done.set()  # it stays known, so that the actor throws the letter away when it comes to it
        return work

    async def _end(self, child: _Child) -> None:
        child.scope.cancel()
        await child.ended.wait()

    async def _keep(self, child: _Child) -> None:
        """Run one actor, and its successors, until it is not to be restarted."""
        try:
            with child.scope, child.letters, child.inbox:
                again = await self._run_once(child)
                while again:
                    await trio.sleep(self.intensity.backoff_s)
                    again = await self._run_once(child)
        except RestartIntensityExceeded as error:
            self._failure = error
            self.stop()
        finally:
            self._children.pop(child.spec.name, None)
            for work in list(self.works.works.values()):
                if work.actor == child.spec.name:
                    self.works.end(work)
            child.ended.set()

    async def _run_once(self, child: _Child) -> bool:
        """Run one actor to its end; return whether it is to be restarted."""
        spec, error = child.spec, None
        try:
            await spec.factory(
                name=spec.name, inbox=child.inbox.clone(), outbox=self.outbox.clone(), works=self.works
            ).run()
        except ActorFault as fault:
            error = fault.error
            log.exception("actor_crashed", actor=spec.name, command=fault.work.command_id)
            await self._answer_for(fault.work, error)
        if spec.restart == "permanent" or (spec.restart == "transient" and error):
            self._count(spec.name, error)
            return True
        if error:
            await self._answer_waiting(child, error)
        return False

    def _count(self, name: str, error: Exception | None) -> None:
        if self.intensity.record(trio.current_time()):
            return
        cause = f": {type(error).__name__}: {error}" if error else ""
        raise RestartIntensityExceeded(
            f"actors ended more than {self.intensity.max_restarts} times within "
            f"{self.intensity.window_s:g} s, {name} last{cause}",
            hint="read the log, then start the run again",
        ) from error

    async def _answer_for(self, work: Work, error: Exception) -> None:
        """Send the terminal event of work whose actor crashed; who cancelled work answers for it."""
        if not work.scope.cancel_called:
            why = f"{type(error).__name__}: {error}"
            await self.outbox.send(ActorCrashed(cause=work.command_id, actor=work.actor, error=why))

    async def _answer_waiting(self, child: _Child, error: Exception) -> None:
        """Answer the mail of an actor that has no successor."""
        child.letters.close()
        while True:
            try:
                command = child.inbox.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                return
            work = self.works.begin(command.id, child.spec.name)
            self.works.end(work)
            await self._answer_for(work, error)
