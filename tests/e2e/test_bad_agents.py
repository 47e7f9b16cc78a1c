"""Agents that fail, talk nonsense or cheat: each ends in a recorded rejection, and the round goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import MakeRepo
from tests.e2e.contract_files import check_history, load, rows_of
from tests.e2e.harness import SEALED_BENCHMARK, World, clean_repository
from tests.repos import Repo

ROOT = ".sid/topics/default"


def history(repo: Repo, number: int = 1) -> dict[str, Any]:
    told: dict[str, Any] = load(repo.path / ROOT / f"state/iteration_history/round_{number}.json")
    check_history(told, f"round {number}")
    return told


def test_answers_that_are_none_are_asked_for_once_more_then_done_without(world: World, numbers: Repo) -> None:
    agent = world.agent()
    key = "sk-ant-" + "a1b2" * 8
    bad = (
        {"agent": "planner_a", "hypothesis": f"Set the value to 9 with {key}"},
        {"agent": "planner_b", "print": "I would rather not.\n"},
        {"agent": "planner_c", "print": '{"hypothesis": "Half a docu'},
        {"agent": "planner_d", "print": "x" * 1000, "times": 10_000},
        {"agent": "planner_e", "print": ""},
        {"agent": "planner_f", "turn": 1, "exit": 1, "stderr": f"out of coffee {key}\n"},
    )
    agent.script(*({"role": "planner", **one} for one in bad), {"role": "researcher", "print": "[]"})
    world.init(numbers, agent, agents=6)
    world.run(numbers, "--rounds", "1")

    told = history(numbers)
    failures = [(one["agent_id"], one["attempt"]) for one in told["agent_failures"]]
    assert sorted(failures) == [
        *(("planner_b", 1), ("planner_b", 2), ("planner_c", 1), ("planner_c", 2), ("planner_d", 1)),
        *(("planner_d", 2), ("planner_e", 1), ("planner_e", 2), ("planner_f", 1)),
        *(("researcher", 1), ("researcher", 2)),
    ]
    coffee = next(one for one in told["agent_failures"] if one["agent_id"] == "planner_f")
    assert coffee["why"].endswith("out of coffee ***")
    kept = [path for path in (numbers.path / ROOT).rglob("*") if path.is_file()]
    assert [path for path in kept if key.encode() in path.read_bytes()] == []
    assert [result["plan_id"] for result in [told["winner"], *told["losers"]]] == [
        "round_1_planner_a",
        "round_1_planner_f",
    ]
    assert "planner_b" in world.sictl("show", numbers.path, "1").out


def test_several_researchers_are_waited_for_and_one_that_fails_is_named(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"agent": "researcher_boundary", "exit": 3})
    world.init(numbers, agent, "--set", "research_fanout=3", agents=1)
    world.run(numbers, "--rounds", "1")

    asked = [turn for turn in agent.turns() if ".researcher." in turn]
    assert sorted(asked) == [
        *("1.researcher.researcher_boundary.1", "1.researcher.researcher_boundary.2"),
        *("1.researcher.researcher_counterexample.1", "1.researcher.researcher_evidence.1"),
    ]
    assert "take for granted" in agent.seen("1.researcher.researcher_counterexample.1")["prompt"]
    root = numbers.path / ROOT
    brief = load(root / "state/research_briefs/round_1.json")
    lines = brief["repo_analysis_summary"].splitlines()
    assert [line.split("]")[0] for line in lines[:2]] == ["[angle: evidence", "[angle: counterexample"]
    assert lines[2].startswith("[angle: boundary — collection failed: ")
    assert len(history(numbers)["agent_failures"]) == 2


def test_plans_that_break_a_rule_are_rejected_by_code_whatever_the_critic_says(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    plans = (
        {"agent": "planner_a", "file": "bench.sh", "family": "data"},
        {"agent": "planner_b", "file": "/etc/passwd", "family": "testing"},
        {"agent": "planner_c", "file": "../outside.txt", "family": "architecture"},
        {"agent": "planner_d", "hypothesis": "1. Set it to 10\n2. Set it to 20", "family": "other"},
        {"agent": "planner_e", "family": "optimization"},
        {"agent": "planner_f", "family": "optimization"},
        {"agent": "planner_g", "family": "blessing"},
    )
    agent.script(*({"role": "planner", **one} for one in plans))
    world.init(numbers, agent, agents=7)
    world.run(numbers, "--rounds", "1")

    told = history(numbers)
    reasons = {
        plan["plan_id"].removeprefix("round_1_planner_"): plan["rejection_reason"]
        for plan in told["rejected_plans"]
    }
    assert "is sealed" in reasons["a"]
    assert "absolute" in reasons["b"]
    assert ".." in reasons["c"]
    assert reasons["d"].startswith("H001")
    assert [reasons[one].startswith("H003") for one in "ef" if one in reasons] == [True]
    assert "unknown approach family" in reasons["g"]
    assert set(reasons) in ({*"abcdeg"}, {*"abcdfg"})
    assert told["winner"]["plan_id"] in ("round_1_planner_e", "round_1_planner_f")
    executors = [name for name in agent.turns() if ".executor." in name]
    assert len(executors) == 1, "a rejected plan was executed"


@pytest.mark.slow
def test_all_plans_rejected_is_a_round_of_its_own(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "file": "bench.sh"})
    world.init(numbers, agent)
    world.sictl("idea", numbers.path, "Count to a hundred")
    world.run(numbers, "--rounds", "1")

    report = load(numbers.path / ROOT / "state/merge_reports/round_1.json")
    assert (report["status"], report["winner"], report["archived"]) == ("all_rejected", None, [])
    assert load(numbers.path / ROOT / "state/iteration_state.json")["user_ideas_consumed"] == [
        "Count to a hundred"
    ]
    assert "Count to a hundred" in agent.seen("1.planner.planner_a.1")["prompt"]


@pytest.mark.slow
def test_ideas_come_back_where_no_planner_gave_a_plan(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "exit": 1})
    world.init(numbers, agent)
    world.sictl("idea", numbers.path, "First")
    world.run(numbers, "--rounds", "1")
    world.sictl("idea", numbers.path, "Second")
    text = (numbers.path / ROOT / "config/idea.md").read_text()
    assert 0 <= text.index("First") < text.index("Second")

    world.run(numbers, "--rounds", "1")
    prompt = agent.seen("2.planner.planner_a.1")["prompt"]
    assert 0 <= prompt.index("First") < prompt.index("Second")


@pytest.mark.slow
def test_a_family_that_won_twice_in_a_row_must_let_another_one(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "agent": "planner_a", "family": "data"})
    world.init(numbers, agent)
    world.run(numbers, "--rounds", "4")

    assert [row["status"] for row in world.rounds(numbers)] == ["merged", "merged", "all_rejected", "merged"]
    assert history(numbers, 3)["rejected_plans"][0]["rejection_reason"].startswith("H002")


def test_edits_that_cheat_or_stray_are_out_and_on_record(world: World, repo: MakeRepo) -> None:
    numbers = repo({**SEALED_BENCHMARK, "gold/answer.txt": "42\n"})
    agent = world.agent()
    edits = (
        {"agent": "executor_1", "edit": {"value.txt": "99\n", "conftest.py": "import os\n"}},
        {"agent": "executor_2", "edit": {"value.txt": "99\n", "README.md": "Better.\n"}},
        {"agent": "executor_3", "edit": {}},
        {"agent": "executor_4", "edit": {"value.txt": "99\n"}, "exit": 3},
        {"agent": "executor_5", "remove": ["value.txt"]},
    )
    agent.script(*({"role": "executor", **one} for one in edits))
    scope = ("--scope", "value.txt", "--scope", "*.py")
    world.init(numbers, agent, "--sealed", "gold/", *scope, agents=6)
    world.run(numbers, "--rounds", "1")

    told = history(numbers)
    assert told["winner"]["plan_id"] == "round_1_planner_f"
    categories = {
        loser["plan_id"].removeprefix("round_1_planner_"): loser["failure_analysis"]["category"]
        for loser in told["losers"]
    }
    assert categories["a"] == "sealed_file_violation"
    assert categories["b"] == "scope_error"
    assert categories["c"] == "logic_error"
    assert categories["d"] == "logic_error"
    assert all(loser["score"] is None for loser in told["losers"])
    assert [one["attempt"] for one in told["agent_failures"] if one["agent_id"] == "executor_4"] == [1, 2]
    _, rows = rows_of((numbers.path / ROOT / "tracking/results.tsv").read_text())
    statuses = [row["status"] for row in rows]
    assert statuses == ["baseline", "discard", "discard", "no-op", "crash", "crash", "keep"]
    assert len(load(numbers.path / ROOT / "tracking/raw_data.json")) == 6
    with clean_repository(numbers):
        assert len(numbers.tags()) == 5


def test_a_red_guard_is_shown_to_the_agent_at_most_twice(world: World, repo: MakeRepo) -> None:
    guard = "test $(cat value.txt) = 1 || test -f checked || { echo the file checked is missing; exit 1; }\n"
    numbers = repo({**SEALED_BENCHMARK, "guard.sh": guard})
    agent = world.agent()
    agent.script(
        {"role": "executor", "agent": "executor_1", "edit": {"value.txt": "10\n"}},
        {"role": "executor", "agent": "executor_2", "turn": 1, "edit": {"value.txt": "9\n"}},
        {"role": "executor", "agent": "executor_2", "edit": {"value.txt": "9\n", "checked": "yes\n"}},
    )
    world.init(numbers, agent, "--guard", "sh guard.sh", agents=2)
    world.run(numbers, "--rounds", "1")

    told = history(numbers)
    assert told["winner"]["plan_id"] == "round_1_planner_b"
    assert told["losers"][0]["failure_analysis"]["category"] == "regression"
    turns = [name for name in agent.turns() if ".executor." in name]
    assert turns == [
        *(f"1.executor.executor_1.{turn}" for turn in (1, 2, 3)),
        *(f"1.executor.executor_2.{turn}" for turn in (1, 2)),
    ]
    assert "the file checked is missing" not in agent.seen(turns[0])["prompt"]
    assert "the file checked is missing" in agent.seen(turns[1])["prompt"]
    _, rows = rows_of((numbers.path / ROOT / "tracking/results.tsv").read_text())
    assert [(row["guard"], row["status"]) for row in rows[1:]] == [
        ("fail", "discard"),
        ("pass", "keep (reworked)"),
    ]


@pytest.mark.slow
def test_a_guard_that_is_red_on_the_baseline_blames_nobody(world: World, numbers: Repo) -> None:
    made = world.init(numbers, world.agent(), "--guard", "echo always red; false")
    assert "red on the baseline" in made.out
    world.run(numbers, "--rounds", "1")

    assert [row["status"] for row in world.rounds(numbers)] == ["merged"]
    assert numbers.tags() == []
