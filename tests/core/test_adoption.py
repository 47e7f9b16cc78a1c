"""What a run takes from its user's files: settings edited by hand, a goal's phases, ideas of a round taken back."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from sid_daemon.core.adoption import Change, announced, by_hand
from sid_daemon.core.longterm.milestones import Standing, standing, table
from sid_protocol.commands import AnyCommand, PrepareRound
from sid_protocol.events import AnyEvent, ConfigChanged, RoundPrepared, RunStopped, StopRequested
from sid_protocol.settings import Measurement, Settings
from tests.core.play import Play, World, created
from tests.core.test_run import second_wins, settings

GOAL = """# Goal

## Objective

Find more.

## Milestones

| Milestone | Value | Status |
|---|---|---|
| First light | 10.5 | |
| `Half way` | 11.5 | |
| All of it | 20 | |

## Phases

| Phase | Focus | Sub-score targets | Status |
|:---|---|---|---|
| Clean | tests | | done |
| Recall | find more | recall >= 0.8, seconds <= 2 | |
| Speed | be quick | seconds <= 1 | |

## Experiment Ideas
"""


def told(play: Play) -> list[tuple[str, dict[str, Any]]]:
    return [
        (one["event_type"], one["details"]) for one in map(json.loads, play.entries["tracking/events.json"])
    ]


def test_an_edit_by_hand_is_found_key_by_key() -> None:
    old = Settings(max_iterations=3)
    new = Settings.model_validate(
        {"max_iterations": 5, "budget": {"usd": 2}, "guard_command": ["make check"]}
    )

    assert by_hand(old, new, {}) == (
        Change("max_iterations", 3, 5),
        Change("guard_command", [], ["make check"]),
        Change("budget.usd", None, 2.0),
    )
    assert by_hand(old, old, {"max_iterations": 5}) == ()


def test_what_was_announced_is_no_edit_by_hand() -> None:
    new = Settings.model_validate({"budget": {"usd": 2, "calls": 7}})
    expected = announced({"budget.usd": 1.0}, "budget", {"usd": 2.0, "tokens": None})

    assert by_hand(Settings(), new, expected) == (Change("budget.calls", None, 7),)


def test_settings_edited_by_hand_are_events_once_and_others_are_not_repeated() -> None:
    play = Play(World(settings(max_iterations=2), score=second_wins))
    play.start()
    play.run(until=lambda p: p.now.round is not None and p.now.now_round.prepared)
    play.feed(ConfigChanged(field="plateau_window", old_value=3, new_value=9))
    play.world.settings = settings(max_iterations=2, plateau_window=9, number_of_agents=1)
    play.run()

    assert [one for one in told(play) if one[0] == "config_change"] == [
        ("config_change", {"field": "plateau_window", "old_value": 3, "new_value": 9, "source": "user"}),
        (
            "config_change",
            {"field": "number_of_agents", "old_value": 2, "new_value": 1, "source": "settings.json"},
        ),
    ]


def test_milestones_and_phases_stand_at_the_first_that_is_open() -> None:
    assert standing(GOAL, 11.0, {"recall": 0.9, "seconds": 1.5}, higher=True) == Standing("Half way", "Speed")
    assert standing(GOAL, 9.0, {}, higher=True) == Standing("First light", "Recall")
    assert standing(GOAL, 99.0, {"recall": 0.9, "seconds": 0.5}, higher=True) == Standing(None, None)
    assert standing(GOAL, 11.0, {}, higher=False).milestone == "First light"
    strict = GOAL.replace("seconds <= 2", "seconds < 2")
    assert standing(strict, 11.0, {"recall": 0.9, "seconds": 2.0}, higher=True).phase == "Recall"
    picked = GOAL.replace("| seconds <= 1 | |", "| seconds <= 1 | active |")
    assert standing(picked, 11.0, {}, higher=True).phase == "Speed"
    assert standing(picked, 11.0, {"seconds": 0.5}, higher=True).phase == "Recall"
    assert standing("# Goal\n\n## Objective\n\nx\n", 1.0, {}, higher=True) == Standing()


@pytest.mark.parametrize(
    "text", ["", "## Phases\n", "## Phases\n| a |\n", "## Phases\n| a |\n|---|\n", "## Phases\n||||\n"]
)
def test_a_table_that_says_nothing_has_no_rows(text: str) -> None:
    assert table(text, "phases") == []


def test_a_phase_left_behind_is_an_event_and_the_present_one_is_in_the_agent_settings() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        if isinstance(command, PrepareRound):
            return RoundPrepared(settings=play.world.settings, goal=GOAL, head=play.world.head)
        return None

    play = Play(World(settings(max_iterations=2), score=second_wins, answer=answer))
    play.start()
    play.run()

    moves = [details for kind, details in told(play) if kind == "phase_transition"]
    assert [(one["field"], one["old_value"], one["new_value"]) for one in moves] == [
        ("current_milestone", "First light", "Half way"),
        ("current_milestone", "Half way", "All of it"),
    ]
    shown = json.loads(play.files["state/agent-settings.json"])
    assert (shown["current_milestone"], shown["current_phase"]) == ("All of it", "Recall")


def test_a_milestone_that_noise_alone_has_touched_is_not_reached() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        if isinstance(command, PrepareRound):
            return RoundPrepared(settings=play.world.settings, goal=GOAL, head=play.world.head)
        return None

    dice = random.Random(4)
    noisy = settings(max_iterations=6, measurement=Measurement(mode="noisy", screen_blocks=4))
    play = Play(
        World(noisy, score=lambda *_: dice.gauss(10.45, 0.3), answer=answer),
        created(noisy, deterministic=False),
    )
    play.start()
    play.run()

    assert play.now.history.merges == 0
    assert max(after.best_score for _, _, after in play.steps) > 10.5
    assert {after.standing.milestone for _, _, after in play.steps if after.standing.milestone} == {
        "First light"
    }


def test_ideas_of_a_round_that_another_init_takes_back_are_tried_in_the_next() -> None:
    play = Play(World(settings(max_iterations=9), ideas=("use a sieve",)))
    play.start()
    play.run(until=lambda p: p.now.round is not None and p.now.now_round.brief is not None)
    play.feed(StopRequested())
    play.feed(RunStopped())
    play.world.ideas = ("and a wheel",)
    play.feed(created(settings(max_iterations=9)))
    play.start()
    play.run(until=lambda p: p.now.round is not None and p.now.now_round.brief is not None)

    assert play.now.now_round.ideas == ("use a sieve", "and a wheel")
    assert play.now.ideas_left == ()
