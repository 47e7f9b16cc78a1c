"""Runs that were recorded, made again: the same plans, trees, commits and decisions, and nothing is run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from sid_daemon.store.journal import Journal
from tests.e2e.harness import World
from tests.repos import Repo

GOAL = "improve/raise_the_number"
SAME = (
    "plans",
    "state/plan_archive",
    "state/iteration_history",
    "state/research_briefs",
    "state/benchmark_results",
)
OWN = {"archived", "branch", "goal_slug"}
"""What names a track's own refs: the topic stands in them."""
STORY = (
    {"role": "planner", "agent": "planner_b", "round": 2, "file": "bench.sh", "change": "echo 99\n"},
    {"role": "planner", "agent": "planner_b", "round": 1, "turn": 1, "exit": 1},
    {"role": "executor", "agent": "executor_3", "round": 1, "edit": {"value.txt": "junk\n"}},
    {"role": "executor", "agent": "executor_1", "round": 2, "hang": True, "edit": {"value.txt": "99\n"}},
    {"role": "executor", "agent": "executor_3", "round": 2, "edit": {}},
)


def told(root: Path) -> dict[str, Any]:
    """Return what a track's files tell of its plans, candidates and decisions."""
    files = [path for name in SAME for path in sorted((root / name).rglob("*.json"))]
    found: dict[str, Any] = {str(path.relative_to(root)): json.loads(path.read_text()) for path in files}
    for path in sorted((root / "state/merge_reports").glob("*.json")):
        report = json.loads(path.read_text())
        winner = report["winner"] and {key: one for key, one in report["winner"].items() if key not in OWN}
        rest = {key: one for key, one in report.items() if key not in OWN}
        found[path.name] = {**rest, "winner": winner, "archived": len(report["archived"])}
    found["table"] = (root / "tracking/results.tsv").read_text()
    return found


def events(root: Path) -> list[dict[str, Any]]:
    """Return a track's journal."""
    journal = Journal(root / "state/run.db")
    try:
        return [json.loads(body) for _, body in journal.each_event()]
    finally:
        journal.close()


def commits(repo: Repo, branch: str) -> list[str]:
    """Return commit, tree and parents of all that led to a branch."""
    return repo.git("log", "--format=%H %T %P", branch).splitlines()


def archived(repo: Repo, prefix: str) -> dict[str, str]:
    """Return the archived candidates of a track: round and executor → commit."""
    names = [name for name in repo.tags() if name.startswith(prefix) and name.count("/") == prefix.count("/")]
    return {name.removeprefix(prefix): repo.git("rev-parse", name) for name in names}


def replay(world: World, repo: Repo, *args: str, code: int = 0) -> dict[str, Any]:
    """Replay the default track of a repository to its end and return what `sictl` tells."""
    made: dict[str, Any] = world.sictl(
        "replay", repo.path, "--topic", "default", "--wait", "--json", *args, code=code
    ).json
    return made


def check_same(repo: Repo, made: dict[str, Any]) -> None:
    """Check that a replay came to what its run came to."""
    original, root, topic = repo.path / ".sid/topics/default", Path(made["root"]), made["topic"]
    assert told(root) == told(original)
    assert commits(repo, f"{GOAL}_{topic.replace('-', '_')}") == commits(repo, GOAL)
    assert archived(repo, f"archive/{topic}/") == archived(repo, "archive/")
    assert repo.worktrees() == []
    assert [name for name in repo.branches() if name.startswith("experiment/")] == []


def test_a_recorded_run_is_made_again(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent, "--set", "record=true", agents=2)
    world.run(numbers, "--rounds", "1")
    turns, refs = agent.turns(), numbers.git("for-each-ref")
    shutil.rmtree(agent.folder)

    made = replay(world, numbers)

    assert (made["status"], made["replay_of"]) == ("max_iterations", world_run(world, "default"))
    check_same(numbers, made)
    assert turns
    for line in refs.splitlines():
        assert line in numbers.git("for-each-ref"), "the recorded run's refs are as they were"


def world_run(world: World, topic: str) -> str:
    """Return the id of the run of a topic."""
    rows = world.sictl("status", "--json").json["runs"]
    return next(str(row["run_id"]) for row in rows if row["topic"] == topic)
