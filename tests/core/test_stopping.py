"""When a run ends, in which order, and what its counters do: tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sid_daemon.core import stopping
from sid_daemon.core.measuring.words import SelectionHistory
from sid_daemon.core.state import RunState, Spent
from sid_protocol.settings import Budget, Measurement, Settings
from tests.core.play import Play, World

NOISY = Measurement(mode="noisy")


def state(settings: dict[str, Any] | None = None, **changes: Any) -> RunState:
    made = Play(World(Settings(**{"benchmark_command": "b", **(settings or {})}))).now
    return replace(made, **changes)


LOWER = {"benchmark_direction": "lower_is_better"}


@pytest.mark.parametrize(
    ("settings", "changes", "ends"),
    [
        ({}, {}, None),
        ({"target_value": 10.0}, {}, "target_reached"),
        ({"target_value": 10.5}, {}, None),
        ({"target_value": 9.0, **LOWER}, {}, None),
        ({"target_value": 10.0, **LOWER}, {}, "target_reached"),
        ({"target_value": 10.0, "measurement": NOISY}, {}, None),
        ({"target_value": 10.0, "measurement": NOISY}, {"best_interval": (9.9, 12.0)}, None),
        ({"target_value": 10.0, "measurement": NOISY}, {"best_interval": (10.0, 12.0)}, "target_reached"),
        ({"target_value": 10.0, "measurement": NOISY}, {"best_interval": (None, 12.0)}, None),
        ({"target_value": 10.0, "measurement": NOISY, **LOWER}, {"best_interval": (8.0, 10.1)}, None),
        (
            {"target_value": 10.0, "measurement": NOISY, **LOWER},
            {"best_interval": (8.0, 10.0)},
            "target_reached",
        ),
        ({"plateau_window": 2}, {"plateau_count": 1}, None),
        ({"plateau_window": 2}, {"plateau_count": 2}, "plateau"),
        ({"max_iterations": 4}, {"completed": 3}, None),
        ({"max_iterations": 4}, {"completed": 4}, "max_iterations"),
        ({"max_iterations": 0}, {}, "max_iterations"),
        ({}, {"completed": 4, "rounds_until": 4}, "max_iterations"),
        ({"circuit_breaker_threshold": 2}, {"breaker_count": 2}, "circuit_breaker"),
        ({"circuit_breaker_threshold": 9}, {"history": SelectionHistory(broken_rounds=3)}, "circuit_breaker"),
        ({"blocked_limit": 2}, {"blocked_count": 2}, "blocked"),
        ({"budget": Budget(usd=1.0)}, {"spent": {"planner": Spent(usd=1.0)}}, "budget"),
        ({"budget": Budget(usd=1.0)}, {"spent": {"planner": Spent(usd=0.9)}}, None),
        ({"budget": Budget(tokens=10)}, {"spent": {"c": Spent(input_tokens=9, output_tokens=1)}}, "budget"),
        ({"budget": Budget(calls=3)}, {"spent": {"a": Spent(calls=2), "b": Spent(calls=1)}}, "budget"),
        ({"budget": Budget(wall_s=60)}, {"wall_s": 61.0}, "budget"),
    ],
)
def test_a_run_ends_when(settings: dict[str, Any], changes: dict[str, Any], ends: str | None) -> None:
    found = stopping.stop_status(state(settings, **changes))

    assert (found[0] if found else None) == ends
    assert found is None or found[1]


def test_the_reasons_to_end_have_an_order() -> None:
    settings: dict[str, Any] = {
        "target_value": 10.0,
        "plateau_window": 1,
        "max_iterations": 1,
        "circuit_breaker_threshold": 1,
        "blocked_limit": 1,
        "budget": Budget(calls=1),
    }
    changes: dict[str, Any] = {
        "plateau_count": 1,
        "completed": 1,
        "breaker_count": 1,
        "blocked_count": 1,
        "spent": {"planner": Spent(calls=1)},
    }
    order = []
    for undo in (
        {"target_value": None},
        {"plateau_window": 9},
        {"max_iterations": 9},
        {"circuit_breaker_threshold": 9},
        {"blocked_limit": 9},
        {"budget": Budget()},
    ):
        found = stopping.stop_status(state(settings, **changes))
        assert found is not None
        order.append(found[0])
        settings |= undo
    assert order == ["target_reached", "plateau", "max_iterations", "circuit_breaker", "blocked", "budget"]
    assert stopping.stop_status(state(settings, **changes)) is None


@pytest.mark.parametrize(
    ("threshold", "before", "after", "resets"),
    [
        (0.01, 10.0, 10.01, True),
        (0.01, 0.34, 0.35, True),  # 0.35 - 0.34 is a little less than 0.01 in binary
        (0.01, 10.0, 10.009, False),
        (0.0, 10.0, 10.0, True),
        ("1%", 10.0, 10.1, True),
        ("1%", 35.0, 35.35, True),
        ("1%", 10.0, 10.09, False),
        ("1%", -10.0, -9.9, True),
        ("1%", 0.0, 0.001, True),
        ("1%", 0.0, 0.0, False),
    ],
)
def test_a_large_gain_resets_the_plateau(threshold: Any, before: float, after: float, resets: bool) -> None:
    start = state({"plateau_threshold": threshold}, plateau_count=2, breaker_count=2, blocked_count=1)
    gained = stopping.gain(before, after, start.settings)

    counters = stopping.counters_after(start, gained=gained, before=before, blocked=False)

    assert counters == (0 if resets else 3, 0, 0)


def test_a_gain_is_measured_in_the_direction_of_the_metric() -> None:
    assert stopping.gain(10.0, 9.5, Settings(benchmark_direction="lower_is_better")) > 0
    assert stopping.gain(10.0, 9.5, Settings()) < 0


@pytest.mark.parametrize(("blocked", "counters"), [(False, (2, 3, 0)), (True, (2, 3, 2))])
def test_a_round_without_a_winner_raises_the_circuit_breaker(
    blocked: bool, counters: tuple[int, int, int]
) -> None:
    start = state(plateau_count=2, breaker_count=2, blocked_count=1)

    assert stopping.counters_after(start, gained=None, before=None, blocked=blocked) == counters
