"""Nothing outlives its deadline: stragglers are looked at, ended with all they started, and on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.contract_files import FORCE_KILL, check_history, check_report, check_result, has, load
from tests.e2e.harness import HANG_S, World, clean_repository
from tests.repos import Repo

ROOT = ".sid/topics/default"
RUNAWAYS = ["setsid", "deaf", "daemon"]
SHORT = ("--set", "deadlines.executor=3")


def history(repo: Repo, number: int) -> dict[str, Any]:
    told: dict[str, Any] = load(repo.path / ROOT / f"state/iteration_history/round_{number}.json")
    check_history(told, f"round {number}")
    return told


def test_a_straggler_is_killed_with_its_tree_and_the_round_goes_on(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script(
        {
            "role": "executor",
            "agent": "executor_1",
            "edit": {"value.txt": "half done\n"},
            "stderr": "Thinking about it\n",
            "children": RUNAWAYS,
            "hang": True,
        }
    )
    world.init(numbers, agent, *SHORT, agents=2)
    world.run(numbers, "--rounds", "1")

    with clean_repository(numbers):
        assert world.jobs() == []
    told = history(numbers, 1)
    assert told["winner"]["plan_id"] == "round_1_planner_b"
    (kill,) = told["force_kills"]
    assert (kill["agent_id"], kill["role"], kill["iteration"]) == ("executor_1", "executor", 1)
    assert kill["deadline_s"] == 3
    assert kill["elapsed_s"] >= 3
    # The sandbox's own process may be counted, too.
    assert kill["processes_killed"] >= 1 + len(RUNAWAYS)
    assert "Thinking about it" in kill["snippet"]
    # What it had done until then is kept, but never measured.
    assert numbers.git("show", "archive/round_1_executor_1:value.txt") == "half done"
    result = load(numbers.path / ROOT / "state/benchmark_results/round_1/executor_1.json")
    check_result(result, "executor_1")
    assert (result["status"], result["failure_analysis"]["category"]) == ("timeout", "timeout")
    assert result["benchmark_score"] is None
    has(result["force_kill"], FORCE_KILL, "force_kill")
    for page in (numbers.path / ROOT / "state/improvements.md", world.state / "IMPROVEMENTS.md"):
        assert "agent executor_1 · reason " in page.read_text()
    assert "executor_1" in world.sictl("show", numbers.path, "1").out
    turns = [name for name in agent.turns() if ".executor_1." in name]
    assert turns == ["1.executor.executor_1.1"], "a force-kill is not retried"


@pytest.mark.slow
def test_the_idle_clock_runs_from_the_first_sign_of_life(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "round": 1, "stderr": "started\n", "hang": True})
    world.init(numbers, agent, "--set", "deadlines.executor_idle=1.5")
    world.run(numbers, "--rounds", "2")

    (kill,) = history(numbers, 1)["force_kills"]
    assert kill["deadline_s"] == 1.5
    assert [row["status"] for row in world.rounds(numbers)] == ["no_winner", "merged"]


@pytest.mark.slow
def test_status_tells_what_a_silent_agent_waits_in_and_for_how_long(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "stderr": "started\n", "hang": True})
    world.init(numbers, agent, "--set", "deadlines.executor=600", "--set", "deadlines.executor_idle=500")
    world.sictl("start", numbers.path)
    with world.wire() as wire:
        wire.follow().until("agent_stderr", line="started")
        while "; waits for a signal: " not in (row := world.row(numbers)["actors"][-1])["doing"]:
            assert row["idle_s"] < HANG_S, row
        assert row["id"] == "executor_1"
        assert 2 <= row["idle_s"] < HANG_S
        assert 0 < row["left_s"] <= 498
        assert "; waits for a signal" in world.sictl("status", numbers.path).out
        assert [one["role"] for one in world.row(numbers)["actors"] if one["left_s"] is None] == ["planner"]
        world.sictl("stop", numbers.path, "--now")


@pytest.mark.slow
def test_force_kills_block_a_round_and_blocked_rounds_end_the_run(world: World, numbers: Repo) -> None:
    agent = world.agent()
    hang = {"role": "executor", "hang": True, "children": ["daemon"]}
    agent.script(
        {**hang, "agent": "executor_1"},
        {**hang, "agent": "executor_2"},
        {"role": "executor", "wait": "never"},
    )
    world.init(numbers, agent, *SHORT, "--set", "kill_threshold=2", "--set", "deadlines.executor=3", agents=3)
    world.sictl("config", "set", numbers.path, "circuit_breaker_threshold", "9")

    done = world.run(numbers, "--json", code=10)

    assert (done.json["status"], [row["status"] for row in world.rounds(numbers)]) == (
        "blocked",
        ["blocked"] * 2,
    )
    for number in (1, 2):
        report = load(numbers.path / ROOT / f"state/merge_reports/round_{number}.json")
        check_report(report, f"round {number}")
        assert report["archived"] == [f"archive/round_{number}_executor_{k}" for k in (1, 2, 3)]
        assert len(history(numbers, number)["force_kills"]) >= 2
    settings = load(numbers.path / ROOT / "state/agent-settings.json")
    assert (settings["status"], settings["circuit_breaker_count"]) == ("blocked", 2)
    with clean_repository(numbers):
        assert world.jobs() == []

    agent.script()
    assert world.run(numbers, "--rounds", "1", "--json").json["status"] == "max_iterations"
    assert world.row(numbers)["counters"]["blocked"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("role", ["researcher", "planner", "architect", "critic"])
def test_a_straggler_of_another_role_is_gone_on_without(world: World, numbers: Repo, role: str) -> None:
    agent = world.agent()
    agent.script({"role": role, "round": 1, "hang": True, "children": RUNAWAYS})
    world.init(numbers, agent, "--set", f"deadlines.{role}=2", "--set", "kill_threshold=1")
    world.run(numbers, "--rounds", "1")

    told = history(numbers, 1)
    assert [kill["role"] for kill in told["force_kills"]] == [role]
    # Without a plan there is nothing to win; without advice or a brief there is.
    assert (told["winner"] is None) == (role == "planner")
    assert [row["status"] for row in world.rounds(numbers)] != ["blocked"]
    assert world.jobs() == []


@pytest.mark.slow
def test_a_benchmark_past_its_deadline_is_a_timeout_with_no_process_left(world: World, numbers: Repo) -> None:
    agent = world.agent()
    deaf = "setsid sleep 1000 & trap '' TERM; while :; do sleep 1000; done"
    numbers.commit({"bench.sh": f"cat value.txt\nif [ -f hang ]; then {deaf}; fi\n"})
    agent.script({"role": "executor", "round": 1, "edit": {"hang": "", "value.txt": "99\n"}})
    world.init(numbers, agent, "--set", "deadlines.benchmark=3")
    world.run(numbers, "--rounds", "2")

    (loser,) = history(numbers, 1)["losers"]
    assert (loser["score"], loser["failure_analysis"]["category"]) == (None, "timeout")
    assert history(numbers, 1)["force_kills"] == [], "a benchmark's time-out is no force-kill"
    assert [row["status"] for row in world.rounds(numbers)] == ["no_winner", "merged"]
    assert world.jobs() == []


@pytest.mark.slow
@pytest.mark.parametrize("paused", [False, True])
def test_stopping_leaves_no_runaway(world: World, numbers: Repo, paused: bool) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "children": RUNAWAYS, "wait": "gate"})
    world.init(numbers, agent)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path)
        with Path(agent.folder, "gates/gate").open("w"):
            if paused:
                world.sictl("pause")
            world.sictl("stop", "--now")
            assert wire.until("run_ended")["status"] == "user_stopped"
    assert (numbers.worktrees(), world.jobs()) == ([], [])
