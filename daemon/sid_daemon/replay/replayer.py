"""Conducts a replay: the same loop as any run, with the recording where actors and clocks would be.

Made by the composition root for a run that `replay_of` names a recording for. Each answer is made again in git, gets
the time that it had, and is folded, journaled and told as in any run. Nothing is dispatched and no deadline runs.
"""

from __future__ import annotations

import trio

from sid_actors.repository import RepoInfo
from sid_daemon.announcing import Emit
from sid_daemon.conductor import Conductor
from sid_daemon.core.run import is_active, step
from sid_daemon.core.state import ENDED, RunState
from sid_daemon.host import Host
from sid_daemon.redaction import Redactor
from sid_daemon.replay.questions import answers_of, check_question, next_answer
from sid_daemon.replay.recorder import recording_path, redacted
from sid_daemon.replay.recording import Entry, Recording, read_recording
from sid_daemon.replay.redo import Redo
from sid_daemon.runstore import RunStore
from sid_protocol.commands import AnyCommand
from sid_protocol.errors import NoSuchRun, SidError
from sid_protocol.events import AnyEvent, RunFailed, RunStarted


class Replayer(Conductor):
    """One active replay.

    Args:
        state: As folded from the replay's journal.
        store: The replay's durable side.
        hands: Its git side.
        emit: Takes log records.
        recording: What is replayed.
        redactor: Takes secrets out of questions, as when they were recorded.
        last: The round that it may not go beyond, or None.
    """

    def __init__(
        self,
        state: RunState,
        store: RunStore,
        hands: Redo,
        emit: Emit,
        recording: Recording,
        redactor: Redactor,
        last: int | None,
    ) -> None:
        super().__init__(state, store, hands, emit)
        self._redo = hands
        self._recording = recording
        self._redact = redacted(redactor)
        self._answers = answers_of(recording.run_id, recording.entries)
        self._position, self._clock = self._place(state)
        self._last = last

    def _place(self, state: RunState) -> tuple[int, str]:
        """Return after which entry a start goes on, and the time that it has."""
        closed = self._answers.by_key.get(f"r{state.completed}.close")
        after = closed.seq if closed else 0
        starts = [one for one in self._answers.starts if one.seq > after] if state.round is None else []
        entry = next(iter(starts), closed) or self._recording.entries[0]
        return after, self._recording.event(entry).at

    async def run(self, first: AnyEvent) -> None:
        """Conduct until the replay ends: with the recorded run, or where that one was cut off."""
        if isinstance(first, RunStarted) and first.rounds is None and not first.again:
            left = (self._last or 0) - self.state.completed
            first = first.model_copy(update={"rounds": left}) if left > 0 else first
        await super().run(first)

    def _now(self) -> str:
        return self._clock

    def _dispatch(self) -> None:
        self._changed.set()

    async def _watch_deadlines(self) -> None:
        await trio.sleep_forever()

    async def _loop(self) -> None:
        while is_active(self.state):
            if self.state.stopping:
                await self._wind_down()
                return
            if asked := self._asked():
                await self._take(asked)
            elif self.state.status != "running":
                await self._take(await self._receive())
            else:
                await self._take([await self._next()])

    def _asked(self) -> list[AnyEvent]:
        try:
            return [self._mail.receive_nowait()]
        except trio.WouldBlock:
            return []

    async def _next(self) -> AnyEvent:
        """Return what happened next; where the recording does not tell, why the replay ends."""
        try:
            command, entry = next_answer(self.state, self._answers, self._redact)
            aside = [one for one in self._answers.asides if self._position < one.seq < entry.seq]
            command, entry = (None, aside[0]) if aside else (command, entry)
            event = await self._again(command, entry)
        except SidError as error:
            return RunFailed(reason=error.message, hint=error.hint)
        self._position, self._clock = max(self._position, entry.seq), event.at
        return event

    async def _again(self, command: AnyCommand | None, entry: Entry) -> AnyEvent:
        event = self._recording.event(entry)
        if command is None:
            return event
        check_question(command, entry, self._recording.run_id, self._redact)
        event = await self._redo.redo(self.state, command, event, entry)
        return event.model_copy(update={"cause": command.id})


def last_round(recording: Recording) -> int | None:
    """Return the round that a replay may not go beyond; None where the recorded run ended by itself. Blocks.

    A run that was stopped, or that failed between two answers, is replayed up to its last whole round; one that was
    started for so many rounds, as far as those go.
    """
    state: RunState | None = None
    for entry in recording.entries:
        state, _ = step(state, recording.event(entry))
    if state is None:
        return None
    if state.rounds_until is not None:
        return state.rounds_until
    by_itself = state.status in ENDED and recording.entries[-1].kind != "run_failed"
    return None if by_itself else max(1, state.completed)


async def make_replayer(state: RunState, store: RunStore, info: RepoInfo, host: Host) -> Replayer:
    """Return the conductor of a replay that is about to start.

    Raises:
        NoSuchRun: the recording is gone.
        StoreError: it cannot be read, or was changed.
    """
    recording = await recording_of(host, state.replay_of or "")
    store.tell_no_kills()
    redo = Redo(info, recording, lambda: state.settings)
    last = await trio.to_thread.run_sync(last_round, recording)
    return Replayer(state, store, redo, host.emit, recording, host.redactor, last)


async def recording_of(host: Host, run_id: str) -> Recording:
    """Read the recording of a run.

    Raises:
        NoSuchRun: there is none.
        StoreError: it cannot be read, or was changed.
    """
    path = recording_path(host.state_dir, run_id)
    try:
        return await trio.to_thread.run_sync(read_recording, path)
    except FileNotFoundError:
        raise NoSuchRun(
            f"run {run_id} has no recording",
            hint=f"record it: sictl config set --run {run_id} record true, then start it",
        ) from None
