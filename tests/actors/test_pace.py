"""One pace for all callers of a service, and events from bytes: without a server, on a clock that jumps."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from sid_actors.backends.model.pace import FIRST_PAUSE_S, Pace
from sid_actors.backends.model.reply import BrokenStreamError
from sid_actors.backends.model.sse import EventReader


async def calls(pace: Pace, number: int) -> list[float]:
    """Return when so many callers, who come at once, may call."""
    times: list[float] = []

    async def one() -> None:
        await pace.turn(lambda _: None)
        times.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(one)
    return times


async def test_nobody_waits_while_all_is_well(autojump_clock: trio.testing.MockClock) -> None:
    begun = trio.current_time()
    assert await calls(Pace(), 32) == [begun] * 32


async def test_a_refusal_holds_everybody_back_and_then_lets_them_go_one_by_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pace, begun = Pace(), trio.current_time()
    assert pace.refused(7.0) == pytest.approx(7.0)
    times = await calls(pace, 32)
    assert min(times) >= begun + 7
    assert all(later - earlier >= 0.09 for earlier, later in pairwise(sorted(times)))


async def test_refusals_of_calls_in_flight_count_as_one(autojump_clock: trio.testing.MockClock) -> None:  # noqa: ASYNC124 - trio's clock is asked
    pace = Pace()
    assert {round(pace.refused(None), 6) for _ in range(32)} == {FIRST_PAUSE_S}


async def test_pauses_double_until_a_call_is_served(autojump_clock: trio.testing.MockClock) -> None:
    pace, pauses = Pace(), []
    for _ in range(4):
        pauses.append(pace.refused(None))
        await trio.sleep(pauses[-1])
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0])
    pace.succeeded()
    assert pace.refused(None) == pytest.approx(FIRST_PAUSE_S)


async def test_the_pace_recovers(autojump_clock: trio.testing.MockClock) -> None:
    pace = Pace()
    pace.refused(1.0)
    await trio.sleep(1.0)
    for _ in range(5):
        pace.succeeded()
    assert len(set(await calls(pace, 32))) == 1


STREAM = 'event: a\ndata: {"type": "ä", "n": 1}\r\n\r\n: ping\n\ndata: {"type": "b"}\n\n'.encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_come_out_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    reader, marks = EventReader(), sorted({0, len(STREAM), *cuts})
    events = [event for a, b in pairwise(marks) for event in reader.feed(STREAM[a:b])]
    assert events == [{"type": "ä", "n": 1}, {"type": "b"}]


@pytest.mark.parametrize("data", ["{", "[1]", "nonsense"])
def test_an_event_that_is_no_object_is_a_broken_stream(data: str) -> None:
    with pytest.raises(BrokenStreamError):
        list(EventReader().feed(f"data: {data}\n\n".encode()))
