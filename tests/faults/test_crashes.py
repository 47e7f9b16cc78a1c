"""SIGKILL at each crash point of a run: it goes on by itself, every round exactly once, and all records agree."""

from __future__ import annotations

import pytest

from tests.faults.harness import Stage

# Where it hurts most: a ref has moved, or is locked, or a batch is durable, and nothing else knows of it yet.
CHOSEN = ("ref:2:after", "ref:2:locked", "view:40:before")


def crash_and_go_on(stage: Stage, point: str, **env: str) -> None:
    assert stage.crash_at(point, **env), f"the run never came to {point}"
    measured = stage.bodies("run_measured")
    stage.check(stage.go_on(), measured)


@pytest.mark.parametrize("point", CHOSEN)
def test_a_killed_daemon_loses_nothing(stage: Stage, point: str) -> None:
    crash_and_go_on(stage, point)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["branch:1:locked", "ref:1:locked", "delete:1:locked", "branch:3:locked"])
def test_a_lock_that_a_killed_daemon_leaves_stops_nobody(stage: Stage, point: str) -> None:
    crash_and_go_on(stage, point)


@pytest.mark.slow
def test_a_killed_process_group_loses_nothing(stage: Stage) -> None:
    crash_and_go_on(stage, "journal:20:after", SID_FAULT_GROUP="1")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_crash_point(stage: Stage) -> None:
    failures = []
    for point in stage.points():
        stage.reset()
        try:
            crash_and_go_on(stage, point)
        except AssertionError as error:
            failures.append(f"{point}: {error}")
            stage.world.end()
    assert failures == []
