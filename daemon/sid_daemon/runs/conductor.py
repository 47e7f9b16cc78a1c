"""Conducts one run: receives events, journals them, steps, dispatches.

    1 receive an event   2 fold it (pure)   3 make it durable   4 adopt the state   5 dispatch what is due

and, beside it, show what is durable (see `announcing`).

The only holder of a run's state and the only writer of its journal. It decides nothing: what is to be done
is `state.outstanding`, and dispatching is sending what of it is neither under way nor held back by a pause, a
stop or a resume's clean-up. Deadlines are watched beside it (see `deadline_watch`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import trio

from sid_actors.actor import Work
from sid_actors.supervisor import ChildSpec, RestartIntensityExceeded, Supervisor
from sid_daemon.clock import now_iso
from sid_daemon.core.run import is_active
from sid_daemon.core.state import RunState
from sid_daemon.core.transition import by_role
from sid_daemon.log.record import Emit
from sid_daemon.runs.announcing import Announcer
from sid_daemon.runs.cost_watch import CostWatch
from sid_daemon.runs.deadline_watch import DeadlineWatch
from sid_daemon.runs.folding import Folded, fold_batch
from sid_daemon.runs.runstore import RunStore
from sid_protocol.commands import (
    AnyCommand,
    CloseRound,
    Halt,
    Inspect,
    Kill,
    PrepareRound,
)
from sid_protocol.errors import NotRunning, SidError, StoreError
from sid_protocol.events import (
    AgentKilled,
    AnyEvent,
    RunFailed,
    RunStopped,
    StopRequested,
    TurnsCut,
    WorkHalted,
)
from sid_protocol.records import Cost

STOP_GRACE_S = 5.0
"""What ends by itself within this time after a stop request is kept."""
KILL_GRACE_S = 1.5
"""What is then ended may take this long of its own grace; a stop takes at most 10 s in all."""
SHOW_LIMIT_S = 30.0
"""Longest wait for the views of a run that is over."""
LEAVE_LIMIT_S = 60.0
"""Longest wait for a busy disk while a run tidies up; the next start removes the rest."""
FOLDED = 3  # events, in a turn of the loop: each takes up to a millisecond, and 32 may come at once


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was left of a killed turn, in git.

    Attributes:
        commit: None where nothing was changed.
        diff_stat: What it changes, in a line.
    """

    commit: str | None = None
    diff_stat: str | None = None


class Hands(Protocol):
    """What a run acts with; made by the composition root."""

    def spec_for(self, command: AnyCommand) -> ChildSpec:
        """Return the child that carries a command out."""

    async def salvage(self, command: AnyCommand) -> Salvaged:
        """Commit what a killed executor left."""

    async def close(self, state: RunState) -> None:
        """Remove what the run made beside its branches: worktrees, pool, processes."""

    def hurry(self) -> None:
        """From now on, end jobs without grace."""


class Conductor:
    """One active run.

    Args:
        state: As folded from the journal.
        store: The run's durable side.
        hands: What it acts with.
        emit: Takes log records: `emit(level, event, **fields)`.

    Attributes:
        started: Set when the first event is on disk.
        over: Set when the run's last event is on disk and nothing of it is at work.
        ended: Set when everything that the run made beside its branches is removed, too.
        announcer: Shows what is durable.
        clock: Of its agents; stands still while another run wants quiet.
        failure: What kept the run's events from the disk, or None.
    """

    def __init__(self, state: RunState, store: RunStore, hands: Hands, emit: Emit) -> None:
        self.state = state
        self.store = store
        self.hands = hands
        self.started = trio.Event()
        self.over = trio.Event()
        self.ended = trio.Event()
        self.announcer = Announcer(state.run_id, store, emit)
        self._up, self._mail = trio.open_memory_channel[AnyEvent](0)
        self._supervisor = Supervisor(outbox=self._up.clone())
        self.clock = self._supervisor.works.clock
        self._under_way: dict[str, AnyCommand] = {}
        self._deadlines = DeadlineWatch(
            self._supervisor.works, lambda: self._under_way, lambda: self.state.settings, self._up.send
        )
        self._costs = CostWatch(self._supervisor.works, self._up.send)
        self._cut: dict[str, Work] = {}
        self._suspending = False
        self._stop_grace_s = STOP_GRACE_S
        self._nursery: trio.Nursery | None = None
        self.failure: SidError | None = None

    # What the daemon's methods use

    async def submit(self, event: AnyEvent) -> None:
        """Hand in an event from outside; returns once it is taken up.

        Raises:
            NotRunning: the run has ended meanwhile.
        """
        try:
            await self._up.send(event)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise NotRunning(f"run {self.state.run_id} has ended") from None

    async def stop(self, *, now: bool) -> None:
        """End the run at the user's wish.

        Returns when everything has ended and is tidied up; with `now`, when all work has ended and the state is
        on disk, while worktrees may still be being removed.
        """
        if now:
            self._stop_grace_s = 0.0
            self.hands.hurry()
        if not self.ended.is_set():
            with suppress(NotRunning):
                await self.submit(StopRequested(now=now, suspend=self._suspending))
        if now:
            self._cancel_all()
        await (self.over if now else self.ended).wait()

    async def suspend(self, *, now: bool) -> None:
        """End all work so that the next daemon goes on with it; the run stays recorded as running."""
        self._suspending = True
        await self.stop(now=now)

    @property
    def works(self) -> dict[str, Work]:
        """What is under way, by command id; read only."""
        return self._supervisor.works.works

    @property
    def under_way(self) -> dict[str, AnyCommand]:
        """The commands under way, by id; read only."""
        return self._under_way

    # The loop

    async def run(self, first: AnyEvent) -> None:
        """Conduct until the run ends; `first` is what starts it."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._supervise)
                nursery.start_soon(self._deadlines.run)
                nursery.start_soon(self._costs.run)
                nursery.start_soon(self.announcer.run)
                await self._supervisor.started.wait()
                try:
                    await self._take([first])
                    await self.announcer.show()
                    self.started.set()
                    await self._loop()
                except StoreError as error:
                    self.failure = error
                self._cancel_all()
                self._supervisor.stop()
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(LEAVE_LIMIT_S, shield=True):
                await self._leave()

    async def _loop(self) -> None:
        while is_active(self.state):
            if self.state.stopping:
                await self._wind_down()
                return
            await self._take(await self._receive())

    async def _receive(self) -> list[AnyEvent]:
        """Wait for an event, and take along what else is ready: one transaction for all of it."""
        events = [self.store.without_secrets(await self._mail.receive())]
        while True:
            try:
                events.append(self.store.without_secrets(self._mail.receive_nowait()))
            except trio.WouldBlock:
                return events

    async def _wind_down(self) -> None:
        with trio.move_on_after(self._stop_grace_s):
            while self._under_way:
                await self._take(await self._receive())
        self._cancel_all()
        async with trio.open_nursery() as taking:
            taking.start_soon(self._take_all)
            # An agent's own grace may be longer than a stop may take.
            taking.start_soon(self._lose_patience)
            for work in list(self.works.values()):
                await work.done.wait()
            taking.cancel_scope.cancel()
        if costs := by_role(
            (self._under_way.get(key), work.activity.cost) for key, work in self._cut.items()
        ):
            await self._take([TurnsCut(costs=costs)])
        if is_active(self.state) and not self._suspending:
            await self._take([RunStopped()])

    async def _lose_patience(self) -> None:
        await trio.sleep(KILL_GRACE_S)
        self.hands.hurry()

    async def _take_all(self) -> None:
        while True:
            await self._take(await self._receive())

    async def _take(self, events: list[AnyEvent]) -> None:
        """Fold events, make them durable, adopt the new state, dispatch, have it shown."""
        with trio.CancelScope(shield=True):
            folded = await self._fold(events)
            await self.store.record(
                folded.events,
                folded.projection,
                folded.snapshot,
                replayable=folded.state.settings.record,
            )
        self.state = state = folded.state
        # By what is still on the book, since the end of an inspection or a kill names its target, not itself.
        self._under_way = {key: one for key, one in self._under_way.items() if key in state.outstanding}
        self._dispatch()
        await self.announcer.take(folded.records, recorded=folded.snapshot is not None)

    async def _fold(self, events: list[AnyEvent]) -> Folded:
        """Fold events, a few in a turn of the loop."""
        at = self._now()
        folded = fold_batch(self.state, events[:FOLDED], at)
        for first in range(FOLDED, len(events), FOLDED):
            await trio.lowlevel.checkpoint()
            folded += fold_batch(folded.state, events[first : first + FOLDED], at)
        return folded

    def _now(self) -> str:
        """Return the time that events get; a replay has the recorded one."""
        return now_iso()

    def _dispatch(self) -> None:
        for command in self.state.outstanding.values():
            if command.id not in self._under_way and self._may(command):
                self._under_way[command.id] = command
                self._send(command)
        self._deadlines.look_again()

    def _may(self, command: AnyCommand) -> bool:
        if self.state.status != "running" or self.state.stopping:
            return isinstance(command, Inspect | Kill | Halt) and is_active(self.state)
        return not self.state.held or isinstance(command, PrepareRound)

    def _send(self, command: AnyCommand) -> None:
        if self._nursery is None:
            return
        match command:
            case Inspect():
                self._nursery.start_soon(self._deadlines.inspect, command)
            case Kill():
                self._nursery.start_soon(self._kill, command)
            case Halt():
                self._nursery.start_soon(self._halt, command)
            case _:
                spec = self.hands.spec_for(command)
                if spec.name not in self._supervisor.children:
                    self._supervisor.start_child(spec)
                self._supervisor.tell(spec.name, command)

    async def _supervise(self) -> None:
        try:
            await self._supervisor.run()
        except RestartIntensityExceeded as error:
            await self._up.send(RunFailed(reason=error.message, hint=error.hint))

    async def _kill(self, command: Kill) -> None:
        target = self._under_way.get(command.target)
        work = self._supervisor.cancel(command.target)
        if work is None or target is None:
            return
        await work.done.wait()
        if work.answered:
            return
        left = await self.hands.salvage(target)
        await self._up.send(
            AgentKilled(
                cause=target.id,
                reason=command.reason,
                processes_killed=work.activity.processes_killed,
                commit=left.commit,
                diff_stat=left.diff_stat,
                cost=work.activity.cost,
            )
        )

    async def _halt(self, command: Halt) -> None:
        work = self._supervisor.cancel(command.target)
        if work is not None:
            await work.done.wait()
            if work.answered:
                return
        await self._up.send(WorkHalted(cause=command.target, cost=work.activity.cost if work else Cost()))

    # The end

    def _cancel_all(self) -> None:
        for command_id, command in list(self._under_way.items()):
            if not isinstance(command, CloseRound) and (work := self._supervisor.cancel(command_id)):
                self._cut[command_id] = work

    async def _leave(self) -> None:
        with trio.move_on_after(SHOW_LIMIT_S):
            await self.announcer.show()
        if self.failure is not None:
            failed = RunFailed(reason=self.failure.message, hint=self.failure.hint)
            folded = fold_batch(self.state, [failed], self._now())
            self.state = folded.state
            self.announcer.tell(folded.records)
        self.over.set()
        self.started.set()
        self._mail.close()
        self._up.close()
        try:
            await self.hands.close(self.state)
            await self.announcer.show(last=True)
            await self.store.close()
        finally:
            await self.announcer.say_last_words()  # noqa: ASYNC102 - it shields itself, for a moment
            self.ended.set()
