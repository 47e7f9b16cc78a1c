"""Shows what a run has made durable: first its views, then its log records, in order, beside the run.

Held by the conductor, which goes on meanwhile: nobody at work waits for a file that is a view. What comes in faster
than it can be written is written together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from sid_daemon.log.record import Emit, LogRecord
from sid_daemon.runs.runstore import RunStore

WAITING = 64
"""Batches that may wait; a run whose disk is slower than that waits for it."""
LOG_LIMIT_S = 5.0
"""Longest wait for the log's disk at a run's end."""


class Announcer:
    """Shows one run.

    Args:
        run_id: The run.
        store: Its durable side.
        emit: Takes log records: `emit(level, event, **fields)`.

    Attributes:
        on_round: Called after each recorded round.
        written: Returns once all that was logged is on the disk.
    """

    def __init__(self, run_id: str, store: RunStore, emit: Emit) -> None:
        self.on_round: Callable[[], None] = lambda: None
        self.written: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self._run_id = run_id
        self._store = store
        self._emit = emit
        self._waiting: list[tuple[Sequence[LogRecord], bool]] = []
        self._news = trio.Event()
        self._room = trio.Event()
        self._last_words: list[LogRecord] = []
        self._told: list[str] = []
        self._one = trio.Lock()

    async def take(self, records: Sequence[LogRecord], *, recorded: bool) -> None:
        """Take in what a batch that is in the store has to tell.

        Args:
            records: For the log.
            recorded: A round is recorded with it.
        """
        while len(self._waiting) >= WAITING:
            self._room = trio.Event()
            await self._room.wait()
        self._waiting.append((records, recorded))
        self._news.set()

    async def run(self) -> None:
        """Show what comes in until cancelled; `show` shows what is left then."""
        while True:
            await self._news.wait()
            self._news = trio.Event()
            await self.show()

    async def show(self, *, last: bool = False) -> None:
        """Show all that was taken in, for the `last` time or not; returns once it can be read and is told."""
        async with self._one:
            waiting, self._waiting = self._waiting, []
            self._room.set()
            with trio.CancelScope(shield=True):
                troubles = await self._store.show(last=last)
            for trouble in troubles:
                if trouble not in self._told:
                    self._emit("warning", "view_not_written", run_id=self._run_id, why=trouble)
            self._told = troubles
            for records, recorded in waiting:
                self.tell(records)
                if recorded:
                    self.on_round()

    def tell(self, records: Sequence[LogRecord]) -> None:
        """Log records now, but for the run's end: that is told by `say_last_words`, when nothing of it is left."""
        for record in records:
            if record.event == "run_ended":
                self._last_words.append(record)
            else:
                self._emit(record.level, record.event, run_id=self._run_id, **record.fields)

    async def say_last_words(self) -> None:
        """Log that the run has ended, and wait for that: of a run that is marked as ended nobody tells any more."""
        for level, name, fields in self._last_words:
            self._emit(level, name, run_id=self._run_id, **fields)
        if self._last_words:
            with trio.move_on_after(LOG_LIMIT_S, shield=True):
                await self.written()
