"""The conductor's way to the disk: one run's journal and its files, in worker threads, one at a time.

Keeps the order "durable first, then visible": a batch is committed, then the views in the root are written
from it. A view that cannot be written does not undo what is durable; it is reported, and `export` writes it
again.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio
from pydantic import TypeAdapter

from sid_daemon import config
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.replay.recorder import Recorder
from sid_daemon.store.documents import EVENTS, IMPROVEMENTS, RAW_DATA
from sid_daemon.store.files import write_whole
from sid_daemon.store.journal import Batch, Journal
from sid_daemon.store.lesson_files import LessonFiles
from sid_daemon.store.views import Projection, render_list
from sid_daemon.store.views_lessons import LESSONS_JSON
from sid_protocol.errors import StoreError
from sid_protocol.events import AnyEvent, RunMeasured, parse_event

T = TypeVar("T")
CLOSE_LIMIT_S = 30.0
"""Longest wait for a disk while something is closed that must be closed."""
STATE_VERSION = 2
"""Grows when `RunState` changes shape: older snapshots are then passed over and the journal is folded."""

_state_adapter: TypeAdapter[RunState] | None = None


def _states() -> TypeAdapter[RunState]:
    global _state_adapter  # noqa: PLW0603 - built at first use, since it costs 100 ms
    if _state_adapter is None:
        _state_adapter = TypeAdapter(RunState)
    return _state_adapter


def dump_state(state: RunState) -> str:
    """Return a state as JSON."""
    return _states().dump_json(state).decode()


def load_state(text: str) -> RunState:
    """Return the state that `dump_state` wrote."""
    return _states().validate_json(text)


class RunStore:
    """One run's durable side.

    Args:
        root: The track's root; `state/run.db` lies in it.
        copy_path: Where the daemon keeps its copy of the database.
        kills_path: The daemon's file of force-kills across runs, or None.
        common_dir: The repository's git directory: with it gone, nothing is put back into the root.
        recorder: Keeps the run's recording, or None.
        lessons: Where the daemon keeps what runs have learned, or None.
    """

    def __init__(
        self,
        root: Path,
        copy_path: Path,
        kills_path: Path | None = None,
        common_dir: Path | None = None,
        recorder: Recorder | None = None,
        lessons: LessonFiles | None = None,
    ) -> None:
        self.root = root
        self.copy_path = copy_path
        self._kills_path = kills_path
        self._recorder = recorder
        self._common_dir = common_dir
        self._lessons = lessons
        self._limiter = trio.CapacityLimiter(1)
        self._journal: Journal | None = None
        self._readers = 0
        self._close_later = False

    def tell_no_kills(self) -> None:
        """Keep force-kills out of the daemon's file: a replay's are told there already."""
        self._kills_path = None

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
        self._journal = Journal(self.root / "state" / "run.db")
        try:
            return fold(self._journal)
        except StoreError:
            self._drop()
            raise
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._drop()
            raise StoreError(
                f"{self.root}/state/run.db cannot be understood: {str(error).splitlines()[0]}",
                hint="move it away; 'sictl start' then offers the copy kept by the daemon",
            ) from error

    def _drop(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    async def commit(
        self,
        events: list[AnyEvent],
        projection: Projection,
        snapshot: RunState | None,
        *,
        record: bool = False,
    ) -> list[str]:
        """Make a batch durable, then write its views, and the recording if `record` is on.

        Returns:
            One line for each view that could not be written.

        Raises:
            StoreError: nothing of the batch is durable.
        """
        return await trio.to_thread.run_sync(
            self._commit, events, projection, snapshot, record, limiter=self._limiter
        )

    def _commit(
        self,
        events: list[AnyEvent],
        projection: Projection,
        snapshot: RunState | None,
        record: bool,  # noqa: FBT001 - passed by run_sync
    ) -> list[str]:
        journal = self._in_place()
        journal.append(
            Batch(
                events=tuple((event.at, event.kind, event.model_dump_json()) for event in events),
                documents=projection.documents,
                entries=projection.entries,
                snapshot=(STATE_VERSION, dump_state(snapshot)) if snapshot is not None else None,
            )
        )
        troubles = []
        for path, text in self._files(projection).items():
            try:
                write_whole(self.root / path, text.encode())
            except StoreError as error:
                troubles.append(str(error))
        kills = [text for file, text in projection.entries if file == IMPROVEMENTS]
        if kills and self._kills_path is not None:
            try:
                with self._kills_path.open("a", encoding="utf-8") as file:
                    file.write(render_list(IMPROVEMENTS, kills))
            except OSError as error:
                troubles.append(f"cannot write {self._kills_path}: {error.strerror}")
        if record and self._recorder is not None:
            try:
                self._recorder.update(journal)
            except StoreError as error:
                troubles.append(str(error))
        if LESSONS_JSON in projection.documents and self._lessons is not None:
            try:
                self._lessons.keep(self.copy_path.stem, projection.documents[LESSONS_JSON])
            except StoreError as error:
                troubles.append(str(error))
        if snapshot is not None:
            try:
                journal.copy_to(self.copy_path)
                keep_config(self.root, self.copy_path)
            except StoreError as error:
                troubles.append(str(error))
        return troubles

    def _in_place(self) -> Journal:
        """Return the journal; where it was taken away in mid-run, it and all that belongs to it is put back first."""
        journal = self.journal
        if journal.is_in_place:
            return journal
        if self._common_dir is not None and not self._common_dir.is_dir():
            raise StoreError(
                f"{self.root} is gone", hint="bring the repository back, then start the run again"
            )
        journal.put_back()
        config.copy_files(config_copy(self.copy_path), self.root / "config")
        self._export()
        return journal

    async def catch_up(self) -> None:
        """Write the views of the last batch, which a crash may have kept from being written."""
        await trio.to_thread.run_sync(self._catch_up, limiter=self._limiter)

    def _catch_up(self) -> None:
        for path, text in self.journal.last_documents():
            write_whole(self.root / path, text.encode())
        for file in self.journal.entry_files():
            write_whole(self.root / file, render_list(file, self.journal.entries(file)).encode())

    def _files(self, projection: Projection) -> dict[str, str]:
        lists = {file for file, _ in projection.entries}
        if self.journal.seq == 1:
            lists |= {RAW_DATA, EVENTS}  # there from the start, for whoever reads the folder
        rendered = {file: render_list(file, self.journal.entries(file)) for file in sorted(lists)}
        return {**projection.documents, **rendered}

    async def export(self) -> list[str]:
        """Write every view again; returns their paths in the root."""
        return await trio.to_thread.run_sync(self._export, limiter=self._limiter)

    def _export(self) -> list[str]:
        written = []
        for path, text in self.journal.documents():
            write_whole(self.root / path, text.encode())
            written.append(path)
        for file in self.journal.entry_files():
            write_whole(self.root / file, render_list(file, self.journal.entries(file)).encode())
            written.append(file)
        return written

    async def read(self, look: Callable[[Journal], T]) -> T:
        """Look at the journal in the worker thread; no commit can come in between."""
        return await trio.to_thread.run_sync(lambda: look(self.journal), limiter=self._limiter)

    async def document(self, path: str) -> str | None:
        """Return one view's text from the database."""
        return await trio.to_thread.run_sync(lambda: self.journal.document(path), limiter=self._limiter)

    async def documents(self, prefix: str) -> list[tuple[str, str]]:
        """Return all views whose path begins with `prefix`."""
        return await trio.to_thread.run_sync(lambda: self.journal.documents(prefix), limiter=self._limiter)

    async def measured(self, iteration: int) -> list[RunMeasured]:
        """Return every benchmark run of a round, in the order in which they became durable."""
        texts = await trio.to_thread.run_sync(
            lambda: self.journal.events_of_kind("run_measured", f'%"cause":"r{iteration}.%'),
            limiter=self._limiter,
        )
        found = [parse_event(text) for text in texts]
        runs = [one for one in found if isinstance(one, RunMeasured)]
        return [run for one in runs for run in (one, one.beside) if run is not None]

    async def entries(self, file: str) -> list[str]:
        """Return the entries of a list-like view."""
        return await trio.to_thread.run_sync(lambda: self.journal.entries(file), limiter=self._limiter)

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


def config_copy(copy: Path) -> Path:
    """Return where the user's files lie beside the copy of a database."""
    return copy.with_suffix(".config")


def keep_config(root: Path, copy: Path) -> None:
    """Keep the user's files as they are now beside the copy of the database.

    Raises:
        StoreError: they could not be written.
    """
    kept, beside = config_copy(copy), copy.with_suffix(".config.new")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        config.copy_files(root / "config", beside)
        shutil.rmtree(kept, ignore_errors=True)
        if beside.exists():
            beside.rename(kept)
    except OSError as error:
        raise StoreError(
            f"{kept}: {error.strerror}", hint="free some space or mend the permissions"
        ) from error


def fold(journal: Journal) -> RunState | None:
    """Fold a journal into the state it tells of; None while it is empty."""
    state: RunState | None = None
    seq = 0
    newest = journal.newest_snapshot(STATE_VERSION)
    if newest is not None:
        seq, text = newest
        state = load_state(text)
    for _, body in journal.events_after(seq):
        state, _ = step(state, parse_event(body))
    return state


def documents_as(model: type[Any], documents: list[tuple[str, str]]) -> list[Any]:
    """Read documents as records of one class."""
    return [model.model_validate_json(text) for _, text in documents]
