"""A track that another self-improve tool has made goes on here, with its history and its counters."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeRepo
from tests.e2e.contract_files import load
from tests.e2e.harness import SEALED_BENCHMARK, World, clean_repository, sandbox_works
from tests.repos import Repo

FLAT = ".omc/self-improve"
TOPIC = ".omc/self-improve/topics/speed"


def winner(number: int, family: str) -> dict[str, Any]:
    return {
        "plan_id": f"round_{number}_planner_a",
        "score": 1.0 + number,
        "approach_family": family,
        "hypothesis": f"Add one, {number}",
        "sub_scores": {},
    }


def track(repo: Repo, root: str, command: str, seen: Path) -> Path:
    """Write what such a tool leaves behind after two rounds, unknown fields included; return the root."""
    repo.commit({".gitignore": ".omc/\n"})
    repo.git("branch", "improve/raise_the_number")
    repo.git("checkout", "--quiet", "improve/raise_the_number")
    repo.commit({"value.txt": "3\n"}, "Iteration 2: Add one, 2 (score: 2.0 → 3.0)")
    repo.git("checkout", "--quiet", "main")
    settings = {
        "number_of_agents": 1,
        "benchmark_command": "sh bench.sh",
        "benchmark_format": "number",
        "topic_slug": "speed" if "topics" in root else "default",
        "max_iterations": 3,
        "si_claude_setting": False,
        "agent_backend": "command",
        "agent_command": command,
        "agent_paths": [f"{seen}:rw"],
        "grace_s": 0.2,
        **({} if sandbox_works() else {"sandbox": "off"}),
    }
    agent = {
        "trust_confirmed": True,
        "si_setting_goal": True,
        "si_setting_benchmark": True,
        "si_setting_harness": True,
        "iterations": 2,
        "best_score": 3.0,
        "current_milestone": None,
        "current_phase": None,
        "status": "user_stopped",
        "plateau_consecutive_count": 1,
        "circuit_breaker_count": 0,
        "goal_slug": "raise_the_number",
        "theirs": 1,
    }
    files: dict[str, Any] = {
        "config/settings.json": settings,
        "state/agent-settings.json": agent,
        "tracking/baseline.json": {"baseline_score": 1.0, "recorded_at": "2026-01-01T00:00:00Z", "theirs": 2},
        "tracking/events.json": [
            {"timestamp": "2026-01-01T00:00:00Z", "event_type": "config_change", "iteration": 1,
             "details": {"field": "max_iterations", "old_value": 2, "new_value": 3, "source": "user"}, "theirs": 3}
        ],
        "tracking/raw_data.json": [
            {"iteration": n, "plan_id": f"round_{n}_planner_a", "benchmark_score": 1.0 + n, "is_winner": True, "approach_family": "data", "sub_scores": {}}
            for n in (1, 2)
        ],
    }  # fmt: skip
    for n in (1, 2):
        history: dict[str, Any] = {
            "iteration": n,
            "baseline_score": float(n),
            "winner": winner(n, "data"),
            "losers": [],
            "research_brief_id": f"round_{n}",
            "theirs": "kept",
        }
        merged = {
            "executor_id": "executor_1",
            "branch": f"experiment/round_{n}_executor_1",
            "hypothesis": f"Add one, {n}",
            "score_before": float(n),
            "score_after": 1.0 + n,
            "sub_scores": {},
        }
        files[f"state/iteration_history/round_{n}.json"] = history
        files[f"state/merge_reports/round_{n}.json"] = {
            "iteration": n,
            "goal_slug": "raise_the_number",
            "winner": merged,
            "archived": [],
            "regressions_detected": False,
            "re_benchmark_score": 1.0 + n,
            "status": "merged",
            "reason": None,
        }
    repo.write({f"{root}/{name}": json.dumps(value) for name, value in files.items()})
    repo.write({f"{root}/config/goal.md": "# Goal\n\n## Objective\n\nRaise the number\n"})
    repo.write(
        {f"{root}/config/harness.md": "# Harness\n\n## Custom Approach Families\n\n- `counting`: counts\n"}
    )
    repo.write({f"{root}/state/iteration_history/round_3.json": "half a docu"})
    return repo.path / root


@pytest.mark.parametrize("root", [FLAT, pytest.param(TOPIC, marks=pytest.mark.slow)])
def test_a_track_is_taken_over_after_trust_with_its_history(world: World, numbers: Repo, root: str) -> None:
    agent = world.agent()
    place = track(numbers, root, agent.command, agent.folder / "seen")
    topic = ("--topic", "speed") if "topics" in root else ()
    refused = world.sictl("start", numbers.path, *topic, "--json", code=5)
    assert "--trust" in refused.json["error"]["hint"], "what the other tool trusted is not trusted here"

    made = world.sictl("init", numbers.path, *topic, "--trust", "--json").json
    assert (made["took_over"], made["root"]) == (True, str(place))
    assert any("round_3.json" in note for note in made["notes"]), "what could not be read is not named"
    told = world.sictl("history", numbers.path, *topic, "--json").json["rounds"]
    assert [(row["iteration"], row["score"]) for row in told] == [(1, 2.0), (2, 3.0)]

    # H002 knows of two rounds that `data` won, and max_iterations of two that were done.
    agent.script({"role": "planner", "family": "data"})
    done = world.sictl("start", numbers.path, *topic, "--wait", "--json").json
    assert done["status"] == "max_iterations"
    assert done["summary"]["baseline"] == 1.0
    report = load(place / "state/merge_reports/round_3.json")
    assert report["status"] == "all_rejected"
    assert load(place / "state/iteration_history/round_1.json")["theirs"] == "kept"
    assert [entry["iteration"] for entry in load(place / "tracking/raw_data.json")][:2] == [1, 2]
    settings = load(place / "state/agent-settings.json")
    assert (settings["iterations"], settings["best_score"], settings["plateau_consecutive_count"]) == (
        3,
        3.0,
        1,
    )
    assert settings["theirs"] == 1, "a field of the other tool's is dropped"
    baseline = load(place / "tracking/baseline.json")
    assert (baseline["baseline_score"], baseline["samples"], baseline["theirs"]) == (1.0, [], 2)
    assert [one["theirs"] for one in load(place / "tracking/events.json")[:1]] == [3]
    assert not (numbers.path / ".sid").exists()
    assert "`counting`" in (place / "config/harness.md").read_text()
    with clean_repository(numbers):
        assert "improve/raise_the_number" in numbers.branches()


@pytest.mark.slow
def test_start_is_refused_while_a_mode_of_the_other_tool_is_active(world: World, numbers: Repo) -> None:
    agent = world.agent()
    track(numbers, FLAT, agent.command, agent.folder / "seen")
    world.sictl("init", numbers.path, "--trust")
    numbers.write({".omc/state/ralph-state.json": '{"active": true}'})

    refused = world.sictl("start", numbers.path, "--json", code=5)

    assert "ralph" in refused.json["error"]["message"]
    numbers.write({".omc/state/ralph-state.json": '{"active": false}'})
    world.run(numbers, "--rounds", "1")


@pytest.mark.slow
def test_a_second_init_keeps_history_and_baseline_and_frees_what_a_stopped_round_left(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "round": 2, "turn": 1, "wait": "gate"})
    world.init(numbers, agent)
    world.sictl("start", numbers.path)
    with (agent.folder / "gates/gate").open("w"):
        world.sictl("stop", "--now")
    before = world.row(numbers)["run_id"]

    world.init(numbers, agent, "--set", "plateau_window=7")
    row = world.row(numbers)
    assert (row["run_id"], row["best_score"], row["baseline"]) == (before, 10.0, 1.0)
    done = world.run(numbers, "--rounds", "1", "--json")
    assert done.json["summary"]["iterations"] == 2
    assert [row["status"] for row in world.rounds(numbers)] == ["merged", "merged"]
    with clean_repository(numbers):
        assert world.jobs() == []


@pytest.mark.slow
def test_a_track_whose_database_is_lost_everywhere_goes_on_from_its_files(
    world: World, numbers: Repo
) -> None:
    world.init(numbers, world.agent())
    world.run(numbers, "--rounds", "2")
    for lost in (numbers.path / ".sid/topics/default/state").glob("run.db*"):
        lost.unlink()
    for lost in (world.state / "copies").glob("*.db"):
        lost.unlink()

    world.run(numbers, "--rounds", "1")

    assert [row["iteration"] for row in world.rounds(numbers)] == [1, 2, 3]
    row = world.row(numbers)
    assert (row["iteration"], row["best_score"], row["baseline"]) == (3, 30.0, 1.0)
    assert len(world.sictl("status", "--json").json["runs"]) == 1

    numbers.git("clean", "-ffdxq")
    for lost in (world.state / "copies").iterdir():
        shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    gone = world.sictl("start", numbers.path, "--json", code=2)
    assert "sictl init" in gone.json["error"]["hint"]
    world.init(numbers, world.agent("another"))
    world.run(numbers, "--rounds", "1")


@pytest.mark.slow
def test_a_copied_repository_gets_a_run_of_its_own(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent)
    world.run(numbers, "--rounds", "1")
    run_id = world.row(numbers)["run_id"]
    copy = Repo(shutil.copytree(numbers.path, world.base / "copy", symlinks=True))

    for _ in range(2):  # trusted or not
        refused = world.sictl("init", copy.path, "--trust", code=5)
        assert f"is a copy of the track of run {run_id}" in refused.err
    world.sictl("start", copy.path, code=5)
    assert world.row(numbers)["run_id"] == run_id

    for file in (copy.path / ".sid/topics/default/state").glob("run.db*"):
        file.unlink()
    world.sictl("init", copy.path, "--trust")
    world.run(copy, "--rounds", "1")
    (mine, its) = (world.row(numbers), world.row(copy))
    assert (mine["run_id"], mine["iteration"], its["iteration"]) == (run_id, 1, 2)
    assert its["run_id"] != run_id
    assert len(world.sictl("history", copy.path, "--json").json["rounds"]) == 2


@pytest.mark.slow
def test_a_moved_repository_keeps_its_run_and_another_does_not_get_it(
    world: World, numbers: Repo, repo: MakeRepo
) -> None:
    agent, root = world.agent(), world.base / "track"
    world.init(numbers, agent, "--root", root)
    run_id = world.sictl("status", "--json", root).json["run"]["run_id"]
    other = repo(SEALED_BENCHMARK, name="other")
    for verb in (("init", "--trust"), ("start",)):
        refused = world.sictl(verb[0], other.path, "--root", root, *verb[1:], code=5)
        assert f"{root} holds run {run_id} of {numbers.path}" in refused.err

    moved = Repo(numbers.path.rename(world.base / "moved"))
    world.init(moved, agent, "--root", root)
    assert world.row(moved)["run_id"] == run_id
