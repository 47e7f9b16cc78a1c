"""Lets few at a time do what keeps a processor busy, and whoever is nearest to a result first.

Back ends that start a program a turn go through it until the program runs. Sixty programs that are started at once
take as long as one after the other, but then the last of them is ready when the first is, and so is all that waits for
them: executors would sleep until each plan of the round had been written and reviewed.
"""

from __future__ import annotations

import heapq
import itertools
import os
from types import TracebackType
from typing import Self

import trio


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


class Turnstile:
    """So many places, given to those who wait by rank, and among equals in the order in which they came.

    Args:
        places: How many there are, at least 1.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, trio.Event]] = []
        self._numbers = itertools.count()

    async def enter(self, rank: int) -> Place:
        """Wait for a place, and take it; leave it by `Place.leave` or by leaving its block.

        Args:
            rank: The lower, the sooner.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._free:
            self._free -= 1
            await trio.lowlevel.cancel_shielded_checkpoint()
            return Place(self)
        one = (rank, next(self._numbers), trio.Event())
        heapq.heappush(self._waiting, one)
        has_waited = False
        try:
            await one[2].wait()
            has_waited = True
        finally:
            if not has_waited:
                self._give_up(one)
        return Place(self)

    def _give_up(self, one: tuple[int, int, trio.Event]) -> None:
        if one[2].is_set():  # it was cancelled in the moment in which it got its place
            self.pass_on()
            return
        self._waiting.remove(one)
        heapq.heapify(self._waiting)

    def pass_on(self) -> None:
        """Give a place that is free again to whoever is next; `Place` alone calls this."""
        if self._waiting:
            heapq.heappop(self._waiting)[2].set()
        else:
            self._free += 1


class Place:
    """A place in a turnstile, which is left once, early or at the end of its block."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile: Turnstile | None = turnstile

    def leave(self) -> None:
        """Let the next one in; more than once is the same as once."""
        turnstile, self._turnstile = self._turnstile, None
        if turnstile is not None:
            turnstile.pass_on()

    def __enter__(self) -> Self:
        """Return the place itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave."""
        self.leave()
