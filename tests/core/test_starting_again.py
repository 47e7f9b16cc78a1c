"""A run that its user starts again, or sets up again: limits that held already, crashes that are past, looks taken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sid_daemon.core.creation import carried_over, create, recreate
from sid_daemon.core.state import Spent
from sid_protocol.events import ActorCrashed, AgentFailed, CarriedOver, RunStopped, TurnPaid, TurnsCut
from sid_protocol.records import Cost
from tests.core.play import BASE, Play, World, created, played
from tests.core.test_run import second_wins, settings


@pytest.mark.parametrize("limit", [{"target_value": 11.0, "max_iterations": 9}, {"max_iterations": 1}])
def test_rounds_asked_for_go_beyond_a_limit_that_held_already(limit: dict[str, Any]) -> None:
    play = played(settings(**limit), score=second_wins)
    ended = (play.status, play.now.completed)
    play.start(rounds=2)
    play.run()

    assert (play.status, play.now.completed) == ("max_iterations", ended[1] + 2)
    assert play.now.reason == "the rounds asked for are done"
    play.start()
    assert (play.status, play.now.completed) == (ended[0], ended[1] + 2)


def test_crashes_before_a_start_by_the_user_are_forgiven() -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start()
    for _ in range(2):
        play.start(again=True, crashed=True)
    play.start()
    play.start(again=True, crashed=True)

    assert play.status == "running"


@pytest.mark.parametrize(("command", "looks"), [("make held", 3), ("make other", 0)])
def test_another_init_gives_no_new_looks_at_the_same_hold_out(command: str, looks: int) -> None:
    state = create(created(settings(holdout_command="make held")))
    worn = replace(state, history=replace(state.history, holdout_looks=3))

    assert recreate(worn, create(created(settings(holdout_command=command)))).history.holdout_looks == looks


def test_another_init_writes_no_other_commit_beside_the_first_baseline() -> None:
    play = played(settings(max_iterations=1), score=second_wins)
    play.feed(created(settings(max_iterations=2), baseline_commit=play.now.head))

    assert json.loads(play.files["tracking/baseline.json"])["commit"] == BASE


def test_a_replay_of_the_time_since_another_init_audits_as_that_run_does() -> None:
    play = Play(World(settings(max_iterations=3, measurement={"audit_every": 1}), score=second_wins))
    play.start()
    play.run()
    again = recreate(play.now, create(created(settings(), baseline_commit=play.now.head)))
    told = CarriedOver.model_validate_json(carried_over(again).model_dump_json())
    replayed = create(created(settings(), baseline_commit=play.now.head, carried_over=told))

    assert again.audited is not None
    assert again.summed_gain > 0
    kept = (
        "iteration",
        "baseline_score",
        "first_commit",
        "audited",
        "audited_merges",
        "summed_gain",
        "summed_score",
    )
    assert [getattr(replayed, key) for key in kept] == [getattr(again, key) for key in kept]
    assert replayed.history == again.history


def test_what_a_turn_had_cost_when_the_daemon_died_is_spent_once() -> None:
    so_far, whole = Cost(input_tokens=100, usd=1.0, calls=2), Cost(input_tokens=500, usd=5.0, calls=7)
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start()
    while not play.now.outstanding or play.queue[0].kind != "draft_plan":
        assert play.turn()
    cut, ended = play.queue[0].id, play.queue[1]
    for target in cut, ended.id:
        play.feed(TurnPaid(target=target, cost=Cost(input_tokens=9, usd=0.1, calls=1)))
        play.feed(TurnPaid(target=target, cost=so_far))
    before = play.now.spent.get("planner", Spent())
    assert recreate(play.now, create(created(settings()))).spent["planner"].usd == (before.usd or 0.0) + 2.0
    play.feed(AgentFailed(cause=ended.id, why="no", cost=whole, duration_s=1.0))
    play.feed(TurnPaid(target=ended.id, cost=whole))  # its report comes late
    assert play.now.spent["planner"].usd == (before.usd or 0.0) + 5.0
    for _ in range(2):
        play.start(again=True, crashed=True)
        assert play.now.spent["planner"].usd == (before.usd or 0.0) + 6.0
        assert play.now.round is not None
        assert play.now.round.cost.calls == before.calls + 9
    assert play.now.paid == {}


@pytest.mark.parametrize("end", ["stopped", "crashed"])
def test_a_cut_turn_is_told_once_by_a_stop_and_counts_where_its_actor_crashed(end: str) -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start()
    while not play.now.outstanding or play.queue[0].kind != "draft_plan":
        assert play.turn()
    cost, cut = Cost(input_tokens=100, usd=1.0, calls=2), play.queue[0].id
    play.feed(TurnPaid(target=cut, cost=cost))
    if end == "stopped":
        play.feed(TurnsCut(costs={"planner": cost}))
        play.feed(RunStopped())
        play.start()
    else:
        play.feed(ActorCrashed(cause=cut, actor="planner_a", error="boom"))
    assert play.now.spent["planner"].usd == 1.0
