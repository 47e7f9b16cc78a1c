"""Rows of runs that rest: read from a run's database once, and again when that was written.

Used by the methods that tell of runs: a daemon that knows many runs is not to open them all whenever somebody looks.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import trio

from sid_daemon.core.run import is_active
from sid_daemon.core.state import RunState
from sid_daemon.layout import DATABASE
from sid_daemon.rpc import live_rows, rows
from sid_daemon.runs.host import Host
from sid_daemon.store.registry import KnownRun
from sid_protocol.status import ForecastRow, RunRow

_Written = tuple[tuple[int, int, int], ...]
"""Number, size and time, in nanoseconds, of the files of a database."""
_SETTLED_NS = 1_000_000_000


class RowFacts(Protocol):
    """What a row tells beside the state; the composition root provides it."""

    def sandbox(self, state: RunState) -> str:
        """Return how the run's jobs are contained, one line."""

    def forecast(self, state: RunState) -> ForecastRow | None:
        """Return what a round will cost."""


class RowCache:
    """The rows of runs that are not active.

    Args:
        host: The daemon's runs.
        facts: What a row tells beside the state.
    """

    def __init__(self, host: Host, facts: RowFacts) -> None:
        self._host = host
        self._facts = facts
        self._known: dict[str, tuple[KnownRun, _Written, RunRow]] = {}

    async def row(self, run: KnownRun) -> RunRow:
        """Return a run's row.

        Raises:
            StoreError: its database is damaged.
        """
        written = await trio.to_thread.run_sync(_written, run)
        if not written:
            return live_rows.lost_row(run)
        known = self._known.get(run.run_id)
        if known is not None and known[:2] == (run, written):
            return known[2]
        async with self._host.opened(run) as (state, _):
            row = rows.run_row(
                state, sandbox=self._facts.sandbox(state), forecast=self._facts.forecast(state)
            )
        # Two writes within a tick of the file system's clock look like one; what was written just now is read again.
        is_settled = time.time_ns() - max(at for _, _, at in written) > _SETTLED_NS
        # Until then nobody knows whether there is a sandbox.
        is_settled &= self._host.recovered.is_set()
        if is_settled and not is_active(state) and written == await trio.to_thread.run_sync(_written, run):
            self._known[run.run_id] = run, written, row
        return row


def _written(run: KnownRun) -> _Written:
    """Return what changes when a run's database is written; nothing where there is none."""
    found = []
    for name in (DATABASE, f"{DATABASE}-wal"):
        try:
            told = Path(run.root, name).stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        found.append((told.st_ino, told.st_size, told.st_mtime_ns))
    return tuple(found)
