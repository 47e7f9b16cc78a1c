"""All runs of this daemon: which are known, which are active, and which one a user means.

Holds the registry and one conductor a run under way. Starting, stopping and resuming go through here;
the rules on what may run are `intake`'s, what happens in a run is its conductor's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import trio

from sid_actors.git.repository import RepoInfo
from sid_actors.git.trees import has_commit
from sid_daemon import track_config
from sid_daemon.clock import now_iso
from sid_daemon.core.run import is_active
from sid_daemon.core.state import RunState
from sid_daemon.layout import DATABASE
from sid_daemon.log.logs import Logs
from sid_daemon.log.record import Emit
from sid_daemon.replay.recorder import Recorder, recording_path
from sid_daemon.runs import choosing
from sid_daemon.runs.conductor import Conductor
from sid_daemon.runs.folding import fold_batch
from sid_daemon.runs.runstore import CLOSE_LIMIT_S, RunStore
from sid_daemon.store.databases import copy_database, first_commit
from sid_daemon.store.kill_file import KillFile
from sid_daemon.store.lesson_files import LessonFiles
from sid_daemon.store.registry import KnownRun, Registry
from sid_protocol.errors import AlreadyRunning, NotRunning, ShuttingDown, SidError, StoreError
from sid_protocol.events import AnyEvent, RunStarted
from sid_protocol.settings import Settings

_UNWRITTEN = StoreError("the run ended, but its end could not be written", hint="start it again")

MakeConductor = Callable[[KnownRun, RunState, RunStore, "Host", RepoInfo | None], Awaitable[Conductor]]
"""Makes the conductor of a run that is about to start, with what it acts with; its repository, if that is known."""
WantChart = Callable[[KnownRun, "Host"], None]
"""Asks for the chart of a run of which there is news."""


class Host:
    """The daemon's runs.

    Args:
        registry: The open registry.
        state_dir: The daemon's state directory.
        make_conductor: Makes the conductors of runs.
        want_chart: Has a run's chart drawn.
        emit: Takes log records.
        nursery: Where conductors live.
        logs: The daemon's log.
    """

    def __init__(
        self,
        registry: Registry,
        state_dir: Path,
        make_conductor: MakeConductor,
        want_chart: WantChart,
        emit: Emit,
        nursery: trio.Nursery,
        logs: Logs,
    ) -> None:
        self.registry = registry
        self.state_dir = state_dir
        self.lessons = LessonFiles(state_dir)
        self._kills = KillFile(state_dir / "IMPROVEMENTS.md")
        self.emit = emit
        self.nursery = nursery
        self.active: dict[str, Conductor] = {}
        self.changed = trio.Event()
        self.leaving = False
        self.recovered = trio.Event()
        self._make_conductor = make_conductor
        self.logs = logs
        self._want_chart = want_chart
        self._limiter = trio.CapacityLimiter(1)
        self._starting = trio.Lock()
        self._resumed: set[str] = set()
        self._unwritten: dict[str, SidError] = {}

    async def runs(self) -> list[KnownRun]:
        """Return all known runs, oldest first."""
        return self.registry.known or await trio.to_thread.run_sync(self.registry.runs, limiter=self._limiter)

    async def remember(self, run: KnownRun) -> None:
        """Enter a run in the registry."""
        await trio.to_thread.run_sync(self.registry.add_run, run, limiter=self._limiter)

    async def trust(self, repo: str, digest: str, at: str) -> None:
        """Note the user's confirmation."""
        await trio.to_thread.run_sync(self.registry.trust, repo, digest, at, limiter=self._limiter)

    async def is_trusted(self, repo: str, digest: str) -> bool:
        """Say whether the user confirmed exactly this."""
        return await trio.to_thread.run_sync(self.registry.is_trusted, repo, digest, limiter=self._limiter)

    async def find(self, ref: str, topic: str | None = None) -> KnownRun:
        """Return the run that a user means: an id, a prefix of one, or a path of its repository.

        Raises:
            NoSuchRun: there is none, or more than one.
        """
        runs = await self.runs()
        if not ref.startswith("/"):
            return choosing.run_of_id(runs, ref)
        return choosing.run_of_path(runs, str(await trio.Path(ref).resolve()), topic, self.active)

    def live(self, run_id: str) -> Conductor | None:
        """Return the conductor of a run that is active now, or None."""
        conductor = self.active.get(run_id)
        return None if conductor is None or conductor.over.is_set() else conductor

    async def conductor(self, run: KnownRun) -> Conductor:
        """Return the conductor of an active run; waits until what was running before has been resumed.

        Raises:
            NotRunning: the run is not active.
        """
        await self.recovered.wait()
        conductor = self.live(run.run_id)
        if conductor is None:
            raise NotRunning(f"run {run.run_id} is not running", hint=f"start it: {run.command('start')}")
        return conductor

    @asynccontextmanager
    async def opened(self, run: KnownRun) -> AsyncIterator[tuple[RunState, RunStore]]:
        """Give a run's state and store: the conductor's while it is active, else opened for this use.

        Raises:
            StoreError: the run's database is missing or damaged.
        """
        conductor = self.live(run.run_id)
        if conductor is not None:
            async with conductor.store.lent():
                yield conductor.state, conductor.store
            return
        store = self.store_of(run)
        state = await self._open(store, run)
        if is_active(state) and not run.active:
            error = self._unwritten.get(run.run_id, _UNWRITTEN)
            state = replace(state, status="failed", reason=error.message, hint=error.hint)
        try:
            yield state, store
        finally:
            with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                await store.close()

    async def take_in(self, run: KnownRun, event: AnyEvent) -> Conductor | None:
        """Let a run take in what a user wants: by its conductor while it is active, else in its journal alone.

        Returns:
            The conductor of a run that is active.

        Raises:
            NotRunning: it has ended meanwhile.
            StoreError: its database is missing or damaged.
        """
        while (conductor := self.live(run.run_id)) is None:
            with suppress(AlreadyRunning):  # it was started meanwhile
                await self.journal(run, event)
                return None
        await conductor.submit(event)
        return conductor

    async def journal(self, run: KnownRun, event: AnyEvent) -> tuple[RunState, RunState]:
        """Fold an event into a run that is not active and does not become so meanwhile; tell the log of it.

        Returns:
            The run before and after it.

        Raises:
            AlreadyRunning: it is active.
            StoreError: its database is missing or damaged.
        """
        async with self._starting:
            if self.live(run.run_id) is not None:
                raise AlreadyRunning(f"run {run.run_id} is active", hint=f"stop it: sictl stop {run.run_id}")
            async with self.opened(run) as (before, store):
                folded = fold_batch(before, [event], now_iso())
                await store.commit(folded.events, folded.projection, None)
        for level, name, fields in folded.records:
            self.emit(level, name, run_id=run.run_id, **fields)
        return before, folded.state

    def store_of(self, run: KnownRun) -> RunStore:
        """Return the store of a run, not yet open."""
        return RunStore(
            Path(run.root),
            self.copy_path(run.run_id),
            self._kills,
            Path(run.common_dir),
            Recorder(recording_path(self.state_dir, run.run_id), Path(run.common_dir), self.logs.redactor),
            self.lessons,
        )

    def copy_path(self, run_id: str) -> Path:
        """Return where the daemon keeps its copy of a run's database."""
        return self.state_dir / "copies" / f"{run_id}.db"

    async def _open(self, store: RunStore, run: KnownRun) -> RunState:
        if not await trio.Path(store.root, DATABASE).exists():
            kept = await trio.Path(self.copy_path(run.run_id)).exists()
            raise StoreError(
                f"{run.root}/{DATABASE} is missing{'' if kept else ', and so is its copy'}",
                hint=f"bring back the copy of the last recorded round: {run.command('start')}"
                if kept
                else f"set it up again: {run.command('init')}",
            )
        state = await store.open()
        if state is None:
            await store.close()
            raise StoreError(
                f"{run.root}/{DATABASE} is empty", hint=f"set it up again: {run.command('init')}"
            )
        return state

    def busy_with(self, common_dir: str, runs: list[KnownRun], but: str | None) -> KnownRun | None:
        """Return another run of the same repository that is active, or None."""
        others = (run for run in runs if run.common_dir == common_dir and run.run_id != but)
        return next((run for run in others if self.live(run.run_id)), None)

    async def refuse_while_busy(self, common_dir: str) -> None:
        """Raise `AlreadyRunning` while any run of a repository is active."""
        other = self.busy_with(common_dir, await self.runs(), None)
        if other is not None:
            raise AlreadyRunning(
                f"run {other.run_id} ({other.topic}) is active in {other.repo}",
                hint=f"follow it: sictl attach {other.run_id}; stop it: sictl stop {other.run_id}",
            )

    async def start(
        self,
        run: KnownRun,
        settings: Settings,
        *,
        rounds: int | None,
        again: bool = False,
        info: RepoInfo | None = None,
    ) -> RunState:
        """Start or resume a run; returns its state right after.

        Args:
            run: Which.
            settings: Checked and trusted.
            rounds: At most so many more rounds, or None.
            again: The daemon goes on by itself with what the one before had active.
            info: Its repository, where somebody has just looked at it.

        Raises:
            AlreadyRunning: it, or another run of its repository, is active.
            StoreError: its database cannot be opened.
        """
        async with self._starting:
            if self.leaving:
                raise ShuttingDown("the daemon is shutting down", hint="try again in a moment")
            await self.refuse_while_busy(run.common_dir)
            for leaving in list(self.active.values()):
                if leaving.state.repo == run.repo:
                    await leaving.ended.wait()
            store = self.store_of(run)
            state = await self._open(store, run)
            try:
                await store.catch_up()
                conductor = await self._make_conductor(run, state, store, self, info)
                await trio.to_thread.run_sync(
                    lambda: self.registry.set_active(run.run_id, active=True), limiter=self._limiter
                )
            except BaseException:
                with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                    await store.close()
                raise
            conductor.announcer.on_round = lambda: self._want_chart(run, self)
            conductor.announcer.written = self.logs.written
            self.active[run.run_id] = conductor
            if again:
                self._resumed.add(run.run_id)
            first = RunStarted(
                settings=settings,
                rounds=rounds,
                resumed=state.starts > 0,
                again=again,
                crashed=again and not state.suspended,
            )
            self.nursery.start_soon(self._conduct, run, conductor, first)
            await conductor.started.wait()
            if conductor.failure is not None and conductor.state.starts == state.starts:
                raise conductor.failure
            return conductor.state

    def take_resumed(self, run_id: str) -> Conductor | None:
        """Return the conductor of a run that this daemon resumed by itself and nobody has asked for since.

        A user who types `start` after a crash means just that, and is not to be refused.
        """
        if run_id not in self._resumed:
            return None
        self._resumed.discard(run_id)
        return self.live(run_id)

    async def _conduct(self, run: KnownRun, conductor: Conductor, first: RunStarted) -> None:
        try:
            await conductor.run(first)
        finally:
            with trio.CancelScope(shield=True):
                self.active.pop(run.run_id, None)
                if conductor.failure is not None:
                    self._unwritten[run.run_id] = conductor.failure
                if not is_active(conductor.state):
                    await self._note_end(run)
                self.changed.set()
                self.changed = trio.Event()
                self._want_chart(run, self)

    async def _note_end(self, run: KnownRun) -> None:
        try:
            await trio.to_thread.run_sync(
                lambda: self.registry.set_active(run.run_id, active=False), limiter=self._limiter
            )
        except StoreError as error:  # the next daemon starts it and finds that it has ended
            self.emit("warning", "end_not_noted", run_id=run.run_id, why=str(error))

    async def restore(self, run: KnownRun) -> bool:
        """Bring back the daemon's copy of a run where its root has no database; says whether it did.

        A repository made anew at an old path is another one: a copy whose commits it does not have stays.
        """
        copy = self.copy_path(run.run_id)
        if await trio.Path(run.root, DATABASE).exists() or not await trio.Path(copy).exists():
            return False
        if not await trio.to_thread.run_sync(_bring_back, copy, Path(run.root), run.common_dir):
            return False
        store = self.store_of(run)
        await self._open(store, run)
        try:
            await store.export()
        finally:
            with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                await store.close()
        return True

    async def suspend_all(self, *, now: bool) -> None:
        """End all work of all runs so that the next daemon goes on with them."""
        self.leaving = True
        async with trio.open_nursery() as nursery:
            for conductor in list(self.active.values()):
                nursery.start_soon(_suspend, conductor, now)

    async def crashed_runs(self) -> list[KnownRun]:
        """Return the runs that were active when the last daemon ended."""
        return [run for run in await self.runs() if run.active]


async def _suspend(conductor: Conductor, now: bool) -> None:  # noqa: FBT001 - passed by start_soon
    await conductor.suspend(now=now)


def _fits(copy: Path, common_dir: str) -> bool:
    """Say whether a repository has the commit that a kept run began with."""
    commit = first_commit(copy)
    return commit is not None and has_commit(common_dir, commit)


def _bring_back(copy: Path, root: Path, common_dir: str) -> bool:
    target = root / DATABASE
    if target.exists() or not copy.exists() or not _fits(copy, common_dir):
        return False
    track_config.copy_files(track_config.copy_of(copy), root / "config")
    copy_database(copy, target, unshown=True)
    return True
