"""A run that is started again by its user: limits that held already, crashes that are past."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.play import Play, World, played
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
