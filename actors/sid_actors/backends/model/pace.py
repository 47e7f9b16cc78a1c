"""How fast a service may be called: one pace for all callers of a daemon, so that a rate limit slows all of them.

A refusal for load (429, 529) stops everybody until the time that the service named, or for a while that
doubles; after that callers go on one by one, at an interval that halves with every success. So nobody knocks in
vain, and no herd comes when the pause is over. It never retries: its callers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
FIRST_INTERVAL_S = 0.1
LONGEST_INTERVAL_S = 5.0
SHORTEST_INTERVAL_S = 0.02


@dataclass(slots=True)
class Pace:
    """The pace of calls to one service; times are of trio's clock, in seconds.

    Attributes:
        until: Nobody calls before.
        interval_s: Between two calls, while the service recovers.
    """

    until: float = 0.0
    interval_s: float = 0.0
    _next: float = 0.0
    _pause_s: float = FIRST_PAUSE_S

    def wait_s(self) -> float:
        """Return how long a caller would wait now."""
        return max(0.0, max(self.until, self._next if self.interval_s else 0.0) - trio.current_time())

    async def turn(self, on_wait: Callable[[float], None]) -> None:
        """Wait until it is the caller's turn.

        Args:
            on_wait: Called with the seconds to wait, before each wait.
        """
        while (pause := self.until - trio.current_time()) > 0:
            on_wait(pause)
            await trio.sleep_until(self.until)
        if not self.interval_s:
            return
        mine = max(trio.current_time(), self._next)
        self._next = mine + self.interval_s
        if mine > trio.current_time():
            on_wait(mine - trio.current_time())
            await trio.sleep_until(mine)
        if self.until > trio.current_time():  # somebody was refused meanwhile
            await self.turn(on_wait)

    def refused(self, retry_after_s: float | None) -> float:
        """Note a refusal for load; returns the seconds until the next call.

        Args:
            retry_after_s: What the service asked for, or None.
        """
        now = trio.current_time()
        if now >= self.until:  # a refusal of a call from before the pause says nothing new
            self._pause_s = min(LONGEST_PAUSE_S, 2 * self._pause_s)
            self.interval_s = min(LONGEST_INTERVAL_S, max(FIRST_INTERVAL_S, 2 * self.interval_s))
        pause = retry_after_s if retry_after_s is not None else self._pause_s / 2
        self.until = max(self.until, now + pause)
        return self.until - now

    def succeeded(self) -> None:
        """Note a call that was served."""
        self._pause_s = FIRST_PAUSE_S
        self.interval_s = self.interval_s / 2 if self.interval_s > SHORTEST_INTERVAL_S else 0.0
