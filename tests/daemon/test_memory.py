"""`state/memory.md`: what a run has learnt, from its recorded rounds, never longer than its 180 lines."""

from __future__ import annotations

import json
from typing import Any

from sid_daemon.store.documents import render_list
from sid_daemon.store.memory import MEMORY_LINES
from sid_protocol.commands import AnyCommand
from sid_protocol.events import AnyEvent, PlanDrafted
from sid_protocol.settings import Settings
from tests.core.play import Play, plan, played

MEMORY = "state/memory.md"


def page(play: Play) -> str:
    return render_list(MEMORY, play.entries[MEMORY])


def drafted(command: AnyCommand) -> AnyEvent | None:
    if command.kind == "draft_plan" and command.planner == "planner_c":
        return PlanDrafted(plan=plan("nonsense", f"Nothing\x1b[31m\n```\nmuch {command.iteration}."))
    return None


def test_wins_come_first_then_what_may_stand_again_then_what_lost() -> None:
    scores = {"A": 10.0, "executor_1": 12.0, "executor_2": 11.0, "executor_4": 9.0}
    play = played(
        Settings(number_of_agents=4, benchmark_command="b", max_iterations=1),
        score=lambda arm, _: scores.get(arm, 10.0),
        answer=drafted,
    )

    text = page(play)
    order = [
        "1 rounds, 1 won, 3 candidates; 0 rounds since the last win.",
        "Best score: 10.0 at first, 12.0 after round 1.",
        "## By family",
        "- app.py: 3 tried, 1 won",
        "- plan rejected: once",
        "## What won, newest first",
        "(10.0 to 12.0; app.py; ",
        "## What was ahead and was not merged: it may stand again",
        "(11.0 against 10.0)",
        "## What lost, newest first: do not repeat it",
        "(9.0 against 10.0; regression: ",
        "## Plans that were rejected, newest first",
        "- round 1, nonsense: unknown approach family 'nonsense': Nothing[31m ``` much 1.",
        "## How it stopped, newest first",
        "max_iterations: 1 of 1 rounds done",
    ]
    places = [text.index(told) for told in order]
    assert places == sorted(places)


def test_it_never_grows_beyond_its_lines_and_keeps_the_newest() -> None:
    rounds = played(Settings(number_of_agents=3, benchmark_command="b", max_iterations=2)).entries[MEMORY]
    one: dict[str, Any] = json.loads(rounds[0])
    many = []
    for number in range(1, 400):
        lost = [
            {**one["lost"][0], "family": f"f{number % 40}", "files": [f"{number % 30}.py"], "gained": k > 1}
            for k in range(3)
        ]
        told = {
            **one,
            "round": number,
            "lost": lost,
            "kills": ["tool_loop"],
            "rejected": [["data", "H003", "x"]],
        }
        if number % 3 == 0:
            told |= {"won": [{**lost[0], "hypothesis": f"win {number}"}], "score": 11.0}
        many += [
            json.dumps(told),
            json.dumps({"end": "user_stopped", "why": "", "at": "2025-01-01", "round": number}),
        ]
    lines = render_list(MEMORY, many).splitlines()

    assert MEMORY_LINES - 15 <= len(lines) <= MEMORY_LINES
    assert any(line.startswith("- round 399, ") and "win 399" in line for line in lines)
    assert any(line.startswith("- round 399, ") and "against" in line for line in lines)
    assert not any(line.startswith("- round 5, ") for line in lines)
    assert any("older ones left out" in line for line in lines)
    assert max(map(len, lines)) <= 300


def test_a_run_without_winners_lends_its_lines_to_what_lost() -> None:
    rounds = played(Settings(number_of_agents=1, benchmark_command="b", max_iterations=1)).entries[MEMORY]
    one: dict[str, Any] = json.loads(rounds[0])
    lines = render_list(
        MEMORY, [json.dumps({**one, "round": number}) for number in range(1, 400)]
    ).splitlines()

    assert sum("against" in line for line in lines) > 120
    assert len(lines) <= MEMORY_LINES


def test_it_is_there_before_there_is_anything_to_tell() -> None:
    assert render_list(MEMORY, []).startswith("# What this run has learnt\n\n0 rounds")
