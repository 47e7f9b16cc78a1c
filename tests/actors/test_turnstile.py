"""The turnstile: so many at a time, the nearest to a result first, and no place is ever lost."""

from __future__ import annotations

import math

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from sid_actors.backends.command.turnstile import Turnstile


class Inside:
    """Those who have a place."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[int] = []

    async def come(self, turnstile: Turnstile, rank: int) -> None:
        """Take a place for a second."""
        with await turnstile.enter(rank):
            self.order.append(rank)
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await trio.sleep(1)
            finally:
                self.now -= 1


async def test_ranks_go_first_and_equals_in_their_order(autojump_clock: MockClock) -> None:
    turnstile, inside = Turnstile(1), Inside()
    async with trio.open_nursery() as nursery:
        for rank in (9, 3, 1, 3, 0):
            nursery.start_soon(inside.come, turnstile, rank)
            await trio.testing.wait_all_tasks_blocked()
    assert inside.order == [9, 0, 1, 3, 3]
    assert inside.most == 1


async def test_a_place_that_is_left_early_is_the_next_ones_and_left_once(autojump_clock: MockClock) -> None:
    turnstile, inside = Turnstile(1), Inside()
    with await turnstile.enter(0) as place:
        async with trio.open_nursery() as nursery:
            for rank in (1, 2):
                nursery.start_soon(inside.come, turnstile, rank)
            await trio.testing.wait_all_tasks_blocked()
            place.leave()
            place.leave()
            await trio.sleep(0.5)
            assert inside.order == [1]
    assert (inside.order, inside.most) == ([1, 2], 1)


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.none() | st.integers(0, 8)), max_size=12),
)
def test_no_place_is_lost_whoever_gives_up(places: int, comers: list[tuple[int, int, int | None]]) -> None:
    async def play() -> None:
        turnstile, inside = Turnstile(places), Inside()

        async def come(rank: int, at: int, gives_up: int | None) -> None:
            await trio.sleep(at)
            with trio.move_on_after(math.inf if gives_up is None else gives_up):
                await inside.come(turnstile, rank)

        async with trio.open_nursery() as nursery:
            for comer in comers:
                nursery.start_soon(come, *comer)
        assert inside.most <= places
        # All places are there again.
        for _ in range(places):
            with trio.fail_after(1):
                await turnstile.enter(0)
        with trio.move_on_after(1) as scope:
            await turnstile.enter(0)
        assert scope.cancelled_caught, "and no more than there were"

    trio.run(play, clock=MockClock(autojump_threshold=0))
