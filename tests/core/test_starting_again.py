"""A run that its user starts again, or sets up again: limits that held already, crashes that are past, looks taken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sid_daemon.core.creation import create, recreate
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
