"""The clock by which deadlines pass: a stop of the daemon is no time."""

from __future__ import annotations

import math
import time

import pytest

from sid_daemon.clock import STOOD_STILL_S, DeadlineClock

BUSY_S = STOOD_STILL_S - 1.0


class Seconds:
    """What the processor's own clock says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    made = Seconds()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


@pytest.mark.parametrize(
    ("asked_s", "slept_s", "counted_s"),
    [
        (30.0, 30.0, 30.0),
        (30.0, 12.0, 12.0),  # woken by something else
        (30.0, 30.0 + BUSY_S, 30.0 + BUSY_S),
        (30.0, 30.0 + STOOD_STILL_S + 1, 0.0),
        (0.0, 3600.0, 0.0),
        (-5.0, BUSY_S, BUSY_S),
        (math.inf, 3600.0, 3600.0),
    ],
)
def test_a_sleep_that_took_too_long_does_not_count(
    seconds: Seconds, asked_s: float, slept_s: float, counted_s: float
) -> None:
    clock = DeadlineClock()
    before = clock.current_time()
    assert clock.deadline_to_sleep_time(before + asked_s) == max(0.0, asked_s)
    seconds.now += slept_s
    after = clock.current_time()
    assert after - before == counted_s
    assert clock.deadline_to_sleep_time(after + 7) == 7, "deadlines move with it"
    seconds.now += 7
    assert clock.current_time() == after + 7


def test_time_that_the_daemon_itself_takes_counts(seconds: Seconds) -> None:
    clock = DeadlineClock()
    before = clock.current_time()
    clock.deadline_to_sleep_time(before + 1)
    seconds.now += 1
    assert clock.current_time() == before + 1
    seconds.now += 100
    assert clock.current_time() == before + 101
