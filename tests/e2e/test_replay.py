"""Runs that were recorded, made again: the same plans, trees, commits and decisions, and nothing is run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sid_daemon.store.journal import Journal
from tests.conftest import MakeRepo
from tests.e2e.harness import SEALED_BENCHMARK, World, sandbox_works
from tests.e2e.test_measuring import noisy_repo, set_up
from tests.repos import Repo

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORD = ("--set", "record=true")
GUARD = 'test "$(cat value.txt)" != 29\n'
SAME = (
    "plans",
    "state/plan_archive",
    "state/iteration_history",
    "state/research_briefs",
    "state/benchmark_results",
)
OWN = {"archived", "branch", "goal_slug"}
"""What names a track's own refs."""
EVENTFUL = (
    {"role": "planner", "agent": "planner_b", "round": 1, "turn": 1, "exit": 1},
    {"role": "executor", "agent": "executor_3", "round": 1, "edit": {"value.txt": "junk\n"}},
    {"role": "planner", "agent": "planner_b", "round": 2, "file": "bench.sh", "change": "echo 99\n"},
    {"role": "executor", "agent": "executor_1", "round": 2, "hang": True, "edit": {"value.txt": "99\n"}},
    {"role": "executor", "agent": "executor_1", "round": 3, "edit": {}},
)
"""A turn that fails and is asked again, a score that cannot be read, a rejected plan, a force-kill, an empty change."""


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


def kinds(root: Path) -> list[tuple[str, str]]:
    """Return what happened in a run from its first round on, with the times."""
    journal = Journal(root / "state/run.db")
    try:
        events = [json.loads(body) for _, body in journal.each_event()]
    finally:
        journal.close()
    return [(event["at"], event["kind"]) for event in events if event["kind"] != "run_created"]


def commits(repo: Repo, branch: str) -> list[str]:
    """Return commit, tree and parents of all that led to a branch."""
    return repo.git("log", "--format=%H %T %P", branch).splitlines()


def archived(repo: Repo, prefix: str) -> dict[str, str]:
    """Return the archived candidates of a track: round and executor → commit."""
    names = [name for name in repo.tags() if name.startswith(prefix) and name.count("/") == prefix.count("/")]
    return {name.removeprefix(prefix): repo.git("rev-parse", name) for name in names}


def run_of(world: World, topic: str = "default") -> str:
    """Return the id of the run of a topic."""
    rows = world.sictl("status", "--json").json["runs"]
    return next(str(row["run_id"]) for row in rows if row["topic"] == topic)


def replay(world: World, *args: str | Path, code: int = 0) -> dict[str, Any]:
    """Replay the run of the default topic to its end and return what `sictl` tells."""
    made: dict[str, Any] = world.sictl("replay", run_of(world), "--wait", "--json", *args, code=code).json
    return made


def check_same(world: World, repo: Repo, made: dict[str, Any], goal: str = "raise_the_number") -> None:
    """Check that a replay came to what its run came to, and left that one alone."""
    original, root, topic = repo.path / ".sid/topics/default", Path(made["root"]), made["topic"]
    assert told(root) == told(original)
    assert kinds(root) == kinds(original)
    assert commits(repo, f"improve/{goal}_{topic.replace('-', '_')}") == commits(repo, f"improve/{goal}")
    assert archived(repo, f"archive/{topic}/") == archived(repo, "archive/")
    assert repo.worktrees() == []
    assert [name for name in repo.branches() if name.startswith("experiment/")] == []
    assert world.sictl("verify", made["run_id"], "--json").json["agrees"] is True
    rows = {row["topic"]: row for row in world.sictl("status", "--json").json["runs"]}
    assert rows[topic]["best_score"] == rows["default"]["best_score"]
    assert rows[topic]["counters"] == rows["default"]["counters"]


def set_up_eventful(world: World, repo: MakeRepo, *more: str) -> Repo:
    """Set a repository up whose run is full of incidents, and let its three rounds run."""
    made = repo({**SEALED_BENCHMARK, "guard.sh": GUARD})
    agent = world.agent()
    agent.script(*EVENTFUL)
    guard = ("--set", 'guard_command=["sh guard.sh"]', "--set", "deadlines.executor=3")
    world.init(made, agent, *RECORD, *guard, *more, agents=3)
    world.run(made, "--rounds", "3")
    shutil.rmtree(agent.folder)
    return made


def test_a_recorded_run_is_made_again(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent, *RECORD)
    world.run(numbers, "--rounds", "1")
    refs, files = numbers.git("for-each-ref").splitlines(), told(numbers.path / ".sid/topics/default")
    shutil.rmtree(agent.folder)

    made = replay(world)

    assert (made["status"], made["replay_of"]) == ("max_iterations", run_of(world))
    check_same(world, numbers, made)
    assert [line for line in refs if line not in numbers.git("for-each-ref")] == []
    assert told(numbers.path / ".sid/topics/default") == files


@pytest.mark.slow
@pytest.mark.parametrize("cap", [None, 1])
def test_an_eventful_run_is_made_again_at_any_parallelism(
    world: World, repo: MakeRepo, cap: int | None
) -> None:
    numbers = set_up_eventful(world, repo, "--set", f"max_parallel_executors={json.dumps(cap)}")
    files = told(numbers.path / ".sid/topics/default")
    first, second, third = (files[f"state/iteration_history/round_{number}.json"] for number in (1, 2, 3))
    assert first["agent_failures"], "a planner was asked again"
    assert [one["failure_analysis"]["category"] for one in first["losers"] if one["score"] is None]
    assert second["rejected_plans"]
    assert second["force_kills"]
    assert len(third["losers"]) == 2, "one changed nothing, one did not get past the guard"

    made = replay(world)

    check_same(world, numbers, made)


@pytest.mark.slow
def test_a_noisy_run_is_made_again(world: World, repo: MakeRepo) -> None:
    noisy, out = noisy_repo(world, repo)
    set_up(world, noisy, out, 130.0, 90.0, record=True)
    world.run(noisy, "--rounds", "1")
    runs = (out / "count").read_text()

    made = replay(world)

    check_same(world, noisy, made)
    assert (out / "count").read_text() == runs, "no benchmark is run"


@pytest.mark.slow
def test_a_run_of_the_local_back_end_is_made_again(world: World, repo: MakeRepo) -> None:
    target = EXAMPLES / "json-tunables/target"
    shop = repo({path.name: path.read_bytes() for path in target.iterdir() if path.is_file()})
    sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
    world.sictl(
        *("init", shop.path, "--objective", "earn more", "--backend", "local", "--agents", "2", "--trust"),
        *("--benchmark", "python3 bench.py", "--format", "number", *RECORD, *sandbox),
    )
    world.run(shop, "--rounds", "3")

    made = replay(world)

    check_same(world, shop, made, "earn_more")
