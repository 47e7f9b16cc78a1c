"""The daemon's clocks: the wall's, for events and records, and the one by which deadlines pass."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import trio

STOOD_STILL_S = 5.0
"""Slept so much longer than was asked for: the daemon or the whole machine was stopped, however busy it is."""


def now_iso() -> str:
    """Return the time now, ISO 8601 UTC with microseconds, for example `2026-01-31T12:00:00.000000Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class DeadlineClock(trio.abc.Clock):
    """The event loop's clock, which stands still while the daemon is stopped: a signal, a frozen container, a paused machine.

    A sleep in which that happened does not count at all, since nobody knows when it began. So whoever was at work has as
    long as before, and what has ended meanwhile is seen before any deadline passes.
    """

    def __init__(self) -> None:
        self._lost = 0.0
        self._sleep: tuple[float, float] | None = None

    def start_clock(self) -> None:
        """See `trio.abc.Clock`."""

    def current_time(self) -> float:
        """See `trio.abc.Clock`."""
        now = time.perf_counter()
        if self._sleep is not None:
            (began, until), self._sleep = self._sleep, None
            if now > until + STOOD_STILL_S:
                self._lost += now - began
        return now - self._lost

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """See `trio.abc.Clock`; called before each sleep of the loop."""
        now = time.perf_counter()
        until = max(now, deadline + self._lost)
        self._sleep = now, until
        return until - now
