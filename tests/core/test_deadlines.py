"""Which clock of an agent's turn runs out first."""

from __future__ import annotations

import pytest

from sid_daemon.core.deadlines import Clock, Watched, expired, hard_s, idle_s
from sid_protocol.commands import DraftPlan, Research, RunPlan
from sid_protocol.records import Plan
from sid_protocol.settings import Deadlines, Settings
from tests.core.play import plan

PLAN = Plan.model_validate({**plan().model_dump(), "plan_id": "p", "planner_id": "planner_a", "round": 1})
RUN = RunPlan(id="r1.run.executor_1.0.1", iteration=1, executor="executor_1", plan=PLAN, base="b")


@pytest.mark.parametrize(
    ("last_seen", "idle", "expiry"),
    [
        (None, 300.0, (1900.0, "hard")),  # no sign of life yet: only the hard limit runs
        (100.0, None, (1900.0, "hard")),
        (150.0, 300.0, (450.0, "idle")),
        (1599.0, 300.0, (1899.0, "idle")),
        (1700.0, 300.0, (1900.0, "hard")),
    ],
)
def test_the_earlier_clock_counts(
    last_seen: float | None, idle: float | None, expiry: tuple[float, Clock]
) -> None:
    watched = Watched("c", started=100.0, last_seen=last_seen, hard_s=1800.0, idle_s=idle)

    assert watched.expiry == expiry


def test_each_role_has_its_limits_and_only_executors_an_idle_one() -> None:
    settings = Settings(deadlines=Deadlines(researcher=1, planner=2, executor=3, executor_idle=4))
    research = Research(id="r", iteration=1, head="b")
    draft = DraftPlan(id="p", iteration=1, planner="planner_a", head="b")

    assert [hard_s(one, settings) for one in (research, draft, RUN)] == [1.0, 2.0, 3.0]
    assert [idle_s(one, settings) for one in (research, draft, RUN)] == [None, None, 4.0]


def test_of_several_those_that_ran_out_are_told_and_the_next_is_waited_for() -> None:
    slow = Watched("slow", started=0.0, last_seen=None, hard_s=60.0, idle_s=None)
    quick = Watched("quick", started=30.0, last_seen=31.0, hard_s=60.0, idle_s=5.0)

    assert expired([slow, quick], 31.0, 5) == (32.0, [])
    assert expired([slow, quick], 36.0, 5) == (60.0, [("quick", "idle")])
    assert expired([slow, quick], 90.0, 5) == (float("inf"), [("slow", "hard"), ("quick", "idle")])
    assert expired([], 0.0, 5) == (float("inf"), [])
