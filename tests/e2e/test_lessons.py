"""Lessons on a real run: a failing executor's fault reaches the prompts, another run's too, and a vain one leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import SEALED_BENCHMARK, World
from tests.repos import Repo

SEALED = "sealed_file_violation/-/-"
RULE = "Never touch a sealed file"
CHEAT = {"role": "executor", "edit": {"conftest.py": "x = 1\n"}}
PATIENT = ("--set", "circuit_breaker_threshold=90", "--set", "lesson_probe=0")


def lessons(world: World, repo: Repo, **more: str) -> Any:
    with world.wire() as wire:
        return wire.call("run.lessons", run=str(repo.path), **more)


def test_a_fault_of_two_runs_is_told_to_the_next_rounds_agents(world: World, repo: MakeRepo) -> None:
    first, second = repo(SEALED_BENCHMARK, name="first"), repo(SEALED_BENCHMARK, name="second")
    agent, other = world.agent(), world.agent("other")
    agent.script(CHEAT)
    other.script({**CHEAT, "round": 1})
    world.init(first, agent, *PATIENT)
    world.run(first, "--rounds", "1")
    assert lessons(world, first)["lessons"] == []

    world.init(second, other, *PATIENT)
    world.run(second, "--rounds", "2")
    assert RULE not in other.seen("1.executor.executor_1.1")["prompt"]
    for turn in ("2.executor.executor_1.1", "2.planner.planner_a.1"):
        assert RULE in other.seen(turn)["prompt"]
        assert "conftest.py" in other.seen(turn)["prompt"]
    assert RULE not in other.seen("2.critic.critic.1")["prompt"]
    assert f"`{SEALED}`" in (second.path / ".sid/topics/default/state/lessons.md").read_text()
    assert f"`{SEALED}`" in (world.state / "LESSONS.md").read_text()

    (ended,) = lessons(world, second, forget=SEALED)["lessons"]
    assert ended["status"] == "forgotten"
    assert lessons(world, second)["lessons"] == [ended]
    assert f"{SEALED} forgotten after round 2" in world.sictl("lessons", second.path).out


@pytest.mark.slow
def test_a_lesson_that_does_not_help_is_retired(world: World, numbers: Repo) -> None:
    repo, agent = numbers, world.agent()
    agent.script(CHEAT)
    world.init(repo, agent, *PATIENT)
    world.run(repo, "--rounds", "8")  # three to learn, five with the lesson
    world.sictl("config", "set", repo.path, "lesson_probe", "1")
    world.run(repo, "--rounds", "5")
    (found,) = lessons(world, repo)["lessons"]
    assert found["since"] == 4
    assert (found["status"], found["ended"]) == ("retired", 13)
    assert "no help: the fault came back in 5 of 5 rounds with it, in 5 of 5 without" in found["why"]
    assert RULE not in agent.seen("3.executor.executor_1.1")["prompt"]
    assert RULE in agent.seen("4.executor.executor_1.1")["prompt"]
    assert RULE in agent.seen("8.executor.executor_1.1")["prompt"]
    assert RULE not in agent.seen("9.executor.executor_1.1")["prompt"]

    records = [
        json.loads(line)
        for line in world.sictl("attach", repo.path, "--json", "--no-follow", "--since", "0").out.splitlines()
    ]
    told = [record["event"] for record in records if record["event"].startswith("lesson")]
    assert told == ["lesson_promoted", *["lessons_held_out"] * 5, "lesson_retired"]
