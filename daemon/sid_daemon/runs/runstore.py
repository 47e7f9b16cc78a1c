"""The conductor's way to the disk: one run's journal and its files, in worker threads, one at a time.

Keeps the order "durable first, then visible": a batch is recorded, then the views in the root are written from it,
while the run goes on; of batches that come meanwhile, the last one's views are written. How far they are is in the
journal, so that a crash leaves none behind. A view that cannot be written does not undo what is durable; it is
reported, and written at the next start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio

from sid_daemon import track_config
from sid_daemon.core.state import RunState
from sid_daemon.layout import (
    CHART,
    DATABASE,
    EVENTS,
    IMPROVEMENTS,
    LESSONS_JSON,
    RAW_DATA,
)
from sid_daemon.lean import let_memory_go
from sid_daemon.redaction import E
from sid_daemon.replay.recorder import Recorder
from sid_daemon.runs.snapshots import STATE_VERSION, dump_state, fold_and_keep
from sid_daemon.store.documents import LISTS, TELLING, telling
from sid_daemon.store.journal import Batch, Journal
from sid_daemon.store.kill_file import KillFile
from sid_daemon.store.lesson_files import LessonFiles
from sid_daemon.store.view_files import PendingViews, ViewFiles
from sid_daemon.store.views import Projection
from sid_protocol.errors import StoreError
from sid_protocol.events import AnyEvent

T = TypeVar("T")
ALWAYS_THERE = (RAW_DATA, EVENTS)
"""Lists that are there from the start, for whoever reads the folder."""
CLOSE_LIMIT_S = 30.0
"""Longest wait for a disk while something is closed that must be closed."""


class RunStore:
    """One run's durable side.

    Args:
        root: The track's root; `state/run.db` lies in it.
        copy_path: Where the daemon keeps its copy of the database.
        kills: The daemon's file of force-kills across runs, or None.
        common_dir: The repository's git directory: with it gone, nothing is put back into the root.
        recorder: Keeps the run's recording, or None.
        lessons: Where the daemon keeps what runs have learned, or None.
    """

    def __init__(
        self,
        root: Path,
        copy_path: Path,
        kills: KillFile | None = None,
        common_dir: Path | None = None,
        recorder: Recorder | None = None,
        lessons: LessonFiles | None = None,
    ) -> None:
        self.root = root
        self.copy_path = copy_path
        self._kills = kills
        self._recorder = recorder
        self._common_dir = common_dir
        self._lessons = lessons
        self._limiter = trio.CapacityLimiter(1)
        """Holds the journal; views are written under the other one."""
        self._writing = trio.CapacityLimiter(1)
        self._showing = trio.Lock()
        self._files = ViewFiles(root)
        self._pending = PendingViews()
        self._journal: Journal | None = None
        self._readers = 0
        self._close_later = False

    def without_secrets(self, event: E) -> E:
        """Return an event as it may be journalled: what agents and benchmarks say may hold keys."""
        return event if self._recorder is None else self._recorder.without_secrets(event)

    def keep_to_itself(self) -> None:
        """Keep kills and lessons out of the daemon's files: those of a replay are there already."""
        self._kills = self._lessons = None

    @property
    def database(self) -> Path:
        """The run's journal on disk."""
        return self.root / DATABASE

    @property
    def journal(self) -> Journal:
        """The open journal; for calls inside `read`."""
        if self._journal is None:
            raise StoreError(f"the journal of {self.root} is closed", hint="start the run again")
        return self._journal

    @property
    def is_closed(self) -> bool:
        """Whether the journal is not open."""
        return self._journal is None

    async def open(self) -> RunState | None:
        """Open the journal and fold it, from the newest snapshot on.

        Raises:
            StoreError: it is damaged, of a newer schema, or cannot be read.
        """
        return await trio.to_thread.run_sync(self._open, limiter=self._limiter)

    def _open(self) -> RunState | None:
        self._journal = Journal(self.database)
        try:
            return fold_and_keep(self._journal)
        except StoreError:
            self._drop()
            raise
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._drop()
            raise StoreError(
                f"{self.root}/{DATABASE} cannot be understood: {str(error).splitlines()[0]}",
                hint="move it away; 'sictl start' then offers the copy kept by the daemon",
            ) from error

    def _drop(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def record(
        self,
        events: list[AnyEvent],
        projection: Projection,
        snapshot: RunState | None,
        *,
        replayable: bool = False,
    ) -> None:
        """Make a batch durable; `show` writes its views, and the recording if it is to be `replayable`.

        Raises:
            StoreError: nothing of the batch is durable.
        """
        pending = await trio.to_thread.run_sync(
            self._record, events, projection, snapshot, limiter=self._limiter
        )
        pending.replayable = replayable
        self._pending.add(pending)

    def _record(
        self, events: list[AnyEvent], projection: Projection, snapshot: RunState | None
    ) -> PendingViews:
        lost = not self.journal.is_in_place
        if lost:
            self._put_back()
        self.journal.append(
            Batch(
                events=tuple((event.at, event.kind, event.model_dump_json()) for event in events),
                documents=projection.documents,
                entries=projection.entries,
                snapshot=(STATE_VERSION, dump_state(snapshot)) if snapshot is not None else None,
            )
        )
        pending = PendingViews(
            dict(projection.documents), seq=self.journal.seq, everything=lost, recorded=snapshot is not None
        )
        for file, entry in projection.entries:
            pending.entries.setdefault(file, []).append(entry)
        pending.counts = {file: self.journal.count(file) for file in pending.entries}
        return pending

    async def show(self, *, last: bool = False) -> list[str]:
        """Write the views of what was recorded, the latest of each file; returns once they are there.

        Args:
            last: The run is over, or rests: the copy of the database is brought up to it, too. One that tells of more, as
                where a backup was brought back, is for the next recorded round to replace.

        Returns:
            One line for each view that could not be written.
        """
        self._pending.last |= last
        async with self._showing:
            return await self._show(self._limiter)

    async def _show(self, reading: trio.CapacityLimiter) -> list[str]:
        """Write views; `reading` is what keeps others from the journal meanwhile."""
        pending, self._pending = self._pending, PendingViews()
        if not pending.seq and not pending.last:
            return []
        troubles: list[str] = []
        lessons = pending.documents.get(LESSONS_JSON)
        with trio.CancelScope(shield=True):  # else what was taken would be lost
            if pending.everything:
                troubles += await trio.to_thread.run_sync(_hindrance, self._export, limiter=reading)
            troubles += await trio.to_thread.run_sync(self._files.show, pending, limiter=self._writing)
            if pending.counts:
                troubles += await trio.to_thread.run_sync(self._put_lists, pending.counts, limiter=reading)
            troubles += await trio.to_thread.run_sync(self._settle, pending, lessons, limiter=self._writing)
            if troubles:  # tried again with the next batch, or at the next start
                left = PendingViews(pending.documents, counts=pending.counts)
                left.add(self._pending)
                self._pending = left
            else:
                self.journal.shown = max(self.journal.shown, pending.seq)
            if pending.recorded or pending.last or pending.replayable:
                troubles += await trio.to_thread.run_sync(self._copy, pending, limiter=reading)
        return list(dict.fromkeys(troubles))

    async def commit(
        self, events: list[AnyEvent], projection: Projection, snapshot: RunState | None
    ) -> list[str]:
        """Make a batch durable, then write its views; see `record` and `show`."""
        await self.record(events, projection, snapshot)
        return await self.show()

    def _put_lists(self, counts: dict[str, int]) -> list[str]:
        troubles = []
        for file, count in list(counts.items()):
            try:
                self._files.put_list(file, self.journal.entries(file, count))
                del counts[file]
            except StoreError as error:
                troubles.append(str(error))
        return troubles

    def _settle(self, pending: PendingViews, lessons: str | None) -> list[str]:
        troubles = self._files.tell(pending) + _hindrance(self._files.settle)
        if self._kills is not None:
            troubles += _hindrance(self._kills.add, pending.entries.get(IMPROVEMENTS, ()))
        return troubles + _hindrance(self._keep_lessons, lessons)

    def _keep_lessons(self, lessons: str | None) -> None:
        if lessons is not None and self._lessons is not None:
            self._lessons.keep(self.copy_path.stem, lessons)

    def _copy(self, pending: PendingViews) -> list[str]:
        try:
            if pending.replayable and self._recorder is not None:
                self._recorder.update(self.journal)
            if pending.recorded or pending.last:
                self.journal.copy_to(self.copy_path, anew=pending.recorded)
                track_config.keep_copy(self.root, self.copy_path)
        except StoreError as error:
            return [str(error)]
        let_memory_go()  # a round's largest work is done
        return []

    def _put_back(self) -> None:
        """Put the journal back where it was taken away in mid-run, and the user's files with it."""
        if self._common_dir is not None and not self._common_dir.is_dir():
            raise StoreError(
                f"{self.root} is gone", hint="bring the repository back, then start the run again"
            )
        self.journal.put_back()
        track_config.copy_files(track_config.copy_of(self.copy_path), self.root / "config")

    async def catch_up(self) -> None:
        """Write the views that a crash may have kept from being written."""
        async with self._showing:
            await trio.to_thread.run_sync(self._catch_up, limiter=self._limiter)

    def _catch_up(self) -> None:
        track_config.clear_beside(self.root)
        left = dict(self.journal.unshown_documents())
        self._files.clear((CHART, *LISTS, *left))
        for path, text in left.items():
            if path not in LISTS and path not in TELLING:
                self._files.put(path, text)
        self._write_lists()
        self._tell(left)
        if self._kills is not None:
            self._kills.catch_up(self.journal)
        self._keep_lessons(left.get(LESSONS_JSON))

    def _write_lists(self) -> list[str]:
        written = []
        for file in LISTS:
            entries = self.journal.entries(file)
            if entries or file in ALWAYS_THERE:
                self._files.put_list(file, entries)
                written.append(file)
        return written

    async def export(self) -> list[str]:
        """Write every view again; returns their paths in the root."""
        async with self._showing:
            return await trio.to_thread.run_sync(self._export, limiter=self._limiter)

    def _export(self) -> list[str]:
        written = []
        self.journal.mark_shown(0)  # cut short, it is done at the next start
        for path, text in self.journal.each_document():
            if path not in LISTS and path not in TELLING:
                self._files.put(path, text)
                written.append(path)
        written += self._write_lists()
        texts = {path: self.journal.document(path) for path in TELLING}
        written += self._tell({path: text for path, text in texts.items() if text is not None})
        self.journal.mark_shown(self.journal.seq)
        return written

    def _tell(self, documents: dict[str, str]) -> list[str]:
        """Write the views that tell of others, and make all that was put last; returns their paths."""
        last = telling(documents)
        for path, text in last:
            self._files.put(path, text)
        self._files.settle()
        return [path for path, _ in last]

    async def look_over(self, look: Callable[[Journal], T]) -> T:
        """Look at the journal and at the files at a moment at which they agree."""
        async with self._showing, self._limiter:
            await self._show(self._writing)
            return await trio.to_thread.run_sync(lambda: look(self.journal), limiter=self._writing)

    async def read(self, look: Callable[[Journal], T]) -> T:
        """Look at the journal in the worker thread; no commit can come in between."""
        return await trio.to_thread.run_sync(lambda: look(self.journal), limiter=self._limiter)

    async def document(self, path: str) -> str | None:
        """Return one view's text from the database."""
        return await trio.to_thread.run_sync(lambda: self.journal.document(path), limiter=self._limiter)

    async def documents(self, prefix: str) -> list[tuple[str, str]]:
        """Return all views whose path begins with `prefix`."""
        return await trio.to_thread.run_sync(lambda: self.journal.documents(prefix), limiter=self._limiter)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Keep the journal open for a reader, even if its owner closes it meanwhile: the last reader does it then."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            if self._close_later and not self._readers:
                with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                    await self.close()

    async def close(self) -> None:
        """Close the journal; while readers have it, the last of them will."""
        self._close_later = self._readers > 0
        if self._journal is not None and not self._close_later:
            journal, self._journal = self._journal, None
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(journal.close, limiter=self._limiter)


def _hindrance(do: Callable[..., object], *given: object) -> list[str]:
    """Do something, and return the one line of what hindered it, if anything did."""
    try:
        do(*given)
    except StoreError as error:
        return [str(error)]
    return []
