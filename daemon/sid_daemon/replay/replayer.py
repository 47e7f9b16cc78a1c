"""Conducts a replay: the same loop as any run, with the recording where actors and clocks would be.

Made by the composition root for a run that `replay_of` names a recording for. Each answer is made again in git, gets
the time that it had, and is folded, journaled and told as in any run. Nothing is dispatched and no deadline runs.
"""

from __future__ import annotations

from collections.abc import Collection

import trio

from sid_actors.git.repository import RepoInfo
from sid_daemon.core.run import is_active, step
from sid_daemon.core.state import RunState
from sid_daemon.log.record import Emit
from sid_daemon.redaction import Redactor
from sid_daemon.replay.questions import answers_of, check_question, next_answer
from sid_daemon.replay.recorder import recording_path, redacted
from sid_daemon.replay.recording import Entry, Recording, read_recording
from sid_daemon.replay.redo import Redo
from sid_daemon.runs.conductor import Conductor
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import RunStore
from sid_protocol.commands import AnyCommand
from sid_protocol.errors import NoSuchRun, SidError
from sid_protocol.events import AnyEvent, RunFailed, RunStarted, StopRequested


class Replayer(Conductor):
    """One active replay.

    Args:
        state: As folded from the replay's journal.
        store: The replay's durable side.
        hands: Its git side.
        emit: Takes log records.
        recording: What is replayed.
        redactor: Takes secrets out of questions, as when they were recorded.
        end: The recorded run at the end of its recording.
        done: Time and kind of the events that are in the replay's journal already.
    """

    def __init__(
        self,
        state: RunState,
        store: RunStore,
        hands: Redo,
        emit: Emit,
        recording: Recording,
        redactor: Redactor,
        end: RunState,
        done: Collection[tuple[str, str]],
    ) -> None:
        super().__init__(state, store, hands, emit)
        self._redo = hands
        self._recording = recording
        self._redact = redacted(redactor)
        self._end = end
        # Where neither the user nor a failure ended it, what lacks an answer lacks it in error.
        cut_off = end.outstanding.values() if end.status in ("user_stopped", "failed") else ()
        self._answers = answers_of(recording.run_id, recording.entries, cut_off)
        self._position, self._clock = 0, self._at(recording.entries[0])
        for entry in recording.entries:
            if (self._at(entry), entry.kind) in done:
                self._position, self._clock = entry.seq, self._at(entry)

    def _at(self, entry: Entry) -> str:
        return str(self._recording.value(entry.answer)["at"])

    async def run(self, first: AnyEvent) -> None:
        """Conduct until the replay ends: as the recorded run did, or where that one was cut off."""
        if isinstance(first, RunStarted):
            first = self._as_started(first)
        await super().run(first)

    def _as_started(self, first: RunStarted) -> RunStarted:
        """Return the start as the recorded run had it; in mid-round, as if nothing had come in between."""
        if self.state.round is not None:
            return first.model_copy(update={"again": True})
        aside = next((one for one in self._answers.asides if one.seq > self._position), None)
        if aside is None or aside.kind != "run_started":
            return first
        self._position, self._clock = aside.seq, self._at(aside)
        then = self._recording.event(aside)
        rounds = then.rounds if isinstance(then, RunStarted) and first.rounds is None else first.rounds
        return first.model_copy(update={"rounds": rounds})

    def _now(self) -> str:
        return self._clock

    def _dispatch(self) -> None:
        """Dispatch nothing: the recording answers, and of what is not under way no deadline passes."""

    async def _loop(self) -> None:
        while is_active(self.state) or self._goes_on():
            if self.state.stopping:
                await self._wind_down()
                return
            if asked := self._asked():
                await self._take(asked)
            elif self.state.status == "paused":
                await self._take(await self._receive())
            else:
                await self._take([await self._next()])

    def _goes_on(self) -> bool:
        """Say whether the recorded run was started again after it had ended here."""
        stopped = self.state.status in ("user_stopped", "failed")
        return not stopped and any(
            one.kind == "run_started" and one.seq > self._position for one in self._answers.asides
        )

    def _asked(self) -> list[AnyEvent]:
        try:
            return [self._mail.receive_nowait()]
        except trio.WouldBlock:
            return []

    async def _next(self) -> AnyEvent:
        """Return what happened next; where the recording does not tell, why the replay ends."""
        try:
            found = next_answer(self.state, self._answers, self._position, self._redact)
            if found is None:
                return self._cut_off()
            command, entry = found
            event = await self._again(command, entry)
        except SidError as error:
            return RunFailed(reason=error.message, hint=error.hint)
        self._position, self._clock = max(self._position, entry.seq), event.at
        return event

    def _cut_off(self) -> AnyEvent:
        """Return how the recorded run ended in the middle of its work."""
        if self._end.status == "failed":
            return RunFailed(reason=self._end.reason or "the recorded run failed here", hint=self._end.hint)
        return StopRequested()

    async def _again(self, command: AnyCommand | None, entry: Entry) -> AnyEvent:
        event = self._recording.event(entry)
        if isinstance(event, RunStarted):
            return event.model_copy(update={"settings": self._redo.own(event.settings)})
        if command is None:
            return event
        check_question(command, entry, self._recording.run_id, self._redact)
        event = await self._redo.redo(self.state, command, event, entry)
        return event.model_copy(update={"cause": command.id})


def end_of(recording: Recording) -> RunState:
    """Return the recorded run as it was at the end of its recording, which is not empty; blocks."""
    state: RunState | None = None
    for entry in recording.entries:
        state, _ = step(state, recording.event(entry))
    if state is None:
        raise LookupError(f"{recording.path} is empty")
    return state


async def make_replayer(state: RunState, store: RunStore, info: RepoInfo, host: Host) -> Replayer:
    """Return the conductor of a replay that is about to start.

    Raises:
        NoSuchRun: the recording is gone.
        StoreError: it cannot be read, or was changed.
    """
    recording = await recording_of(host, state.replay_of or "")
    store.keep_to_itself()
    redo = Redo(info, recording, lambda: state.settings)
    end = await trio.to_thread.run_sync(end_of, recording)
    done = await store.read(lambda journal: journal.times())
    return Replayer(state, store, redo, host.emit, recording, host.logs.redactor, end, done)


async def recording_of(host: Host, run_id: str) -> Recording:
    """Read the recording of a run.

    Raises:
        NoSuchRun: there is none.
        StoreError: it cannot be read, or was changed.
    """
    path = recording_path(host.state_dir, run_id)
    none = NoSuchRun(
        f"run {run_id} has no recording",
        hint=f"record it: sictl config set --run {run_id} record true, then start it",
    )
    try:
        found = await trio.to_thread.run_sync(read_recording, path)
    except FileNotFoundError:
        raise none from None
    if not found.entries:
        raise none
    return found
