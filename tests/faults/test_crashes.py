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
@pytest.mark.timeout(7200)
def test_every_crash_point(stage: Stage) -> None:
    failures, missed, points = [], [], stage.points()
    for point in points:
        stage.reset()
        try:
            # How many views are written together is a matter of time, so not every run comes to the last numbers.
            if not stage.crash_at(point):
                missed.append(point)
                continue
            measured = stage.bodies("run_measured")
            stage.check(stage.go_on(), measured)
        except AssertionError as error:
            failures.append(f"{point}: {error}")
            stage.world.end()
    print(f"{len(points)} crash points, not come to: {' '.join(missed) or 'none'}")
    assert failures == []
    assert len(missed) < len(points) // 10
