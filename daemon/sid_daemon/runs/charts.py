"""Keeps `tracking/progress.png` of each run up to date: after each round and at the end.

Drawing takes a process about two seconds of CPU, so it happens beside the run, one at a time, at low priority or, where scores
are noisy, never while a benchmark runs; then a run waits for it, so it goes before others. Where rounds are quicker than that, some are left out, so that charts never take more than
a fiftieth of the time; the last one is drawn at once. A chart that cannot be drawn is told once.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import trio

from sid_actors.workbench.machine import MachineLock
from sid_daemon.drawing import draw
from sid_daemon.layout import CHART
from sid_daemon.runs.host import Host
from sid_daemon.store.files import write_whole
from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import SidError

REST = 49.0
"""So many times as long as a chart took nothing is drawn after it, while its run goes on."""


class Charts:
    """Draws charts for a host.

    Args:
        lock: The machine's benchmark lock.
    """

    def __init__(self, lock: MachineLock) -> None:
        self._lock = lock
        self._wanted: dict[str, KnownRun] = {}
        self._drawing = False
        self._told: set[str] = set()
        self._over = trio.Event()

    def want(self, run: KnownRun, host: Host) -> None:
        """Ask for a run's chart; several wishes for one run are one."""
        self._wanted[run.run_id] = run
        if run.run_id not in host.active:
            self._over.set()
        if not self._drawing:
            self._drawing = True
            host.nursery.start_soon(self._draw_all, host)

    async def _draw_all(self, host: Host) -> None:
        try:
            while self._wanted:
                self._over = trio.Event()
                _, run = self._wanted.popitem()
                begun = trio.current_time()
                await self._draw(run, host)
                if run.run_id in host.active:
                    with trio.move_on_after(REST * (trio.current_time() - begun)):
                        await self._over.wait()
        finally:
            self._drawing = False

    async def _draw(self, run: KnownRun, host: Host) -> None:
        try:
            async with AsyncExitStack() as stack:
                state, store = await stack.enter_async_context(host.opened(run))
                if not state.completed:
                    return
                if state.noisy:
                    await stack.enter_async_context(self._lock.held())
                data = await draw(state, store, "png", patient=not state.noisy)
                target = store.root / CHART
                if await trio.Path(store.root).is_dir():  # a repository that went away is not made again
                    await trio.to_thread.run_sync(write_whole, target, data)
        except (SidError, OSError) as error:
            if run.run_id not in self._told:
                self._told.add(run.run_id)
                host.emit("warning", "chart_not_drawn", run_id=run.run_id, why=str(error))
