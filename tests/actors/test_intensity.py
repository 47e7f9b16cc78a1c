"""Restarts are borne up to a limit within a window, and each waits longer than the one before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sid_actors.intensity import Intensity

gaps = st.lists(st.floats(min_value=0, max_value=100), max_size=40)


@given(gaps, st.integers(0, 6), st.floats(min_value=0.5, max_value=80))
def test_the_verdict_is_that_of_counting_the_window(
    gaps: list[float], max_restarts: int, window_s: float
) -> None:
    intensity = Intensity(max_restarts=max_restarts, window_s=window_s)
    now, seen = 0.0, []
    for gap in gaps:
        now += gap
        seen.append(now)
        within = [time for time in seen if now - time < window_s]
        assert intensity.record(now) == (len(within) <= max_restarts)


@given(gaps)
def test_memory_and_waits_are_bounded(gaps: list[float]) -> None:
    intensity = Intensity(max_restarts=3, window_s=1e9, max_backoff_s=2.0)
    now = 0.0
    for gap in gaps:
        now += gap
        intensity.record(now)
        assert 0 < intensity.backoff_s <= 2.0
        assert len(intensity._times) <= 4


def test_each_restart_waits_twice_as_long_until_the_window_is_over() -> None:
    intensity = Intensity(first_backoff_s=0.1, window_s=60)
    waits = []
    for now in (0, 1, 2):
        intensity.record(now)
        waits.append(intensity.backoff_s)
    intensity.record(100)

    assert waits == [0.1, 0.2, 0.4]
    assert intensity.backoff_s == 0.1
