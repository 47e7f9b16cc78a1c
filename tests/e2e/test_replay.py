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
UNTOLD = {"run_created", "stop_requested", "run_stopped", "work_halted"}
"""A replay makes no stops."""
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
    return [(event["at"], event["kind"]) for event in events if event["kind"] not in UNTOLD]


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


def check_commits(repo: Repo, made: dict[str, Any], goal: str = "raise_the_number") -> None:
    """Check that a replay came to the plans, trees, commits and decisions of its run, at the same times."""
    original, root, topic = repo.path / ".sid/topics/default", Path(made["root"]), made["topic"]
    assert told(root) == told(original)
    assert kinds(root) == kinds(original)
    assert commits(repo, f"improve/{goal}_{topic.replace('-', '_')}") == commits(repo, f"improve/{goal}")
    assert archived(repo, f"archive/{topic}/") == archived(repo, "archive/")
    assert repo.worktrees() == []
    assert [name for name in repo.branches() if name.startswith(f"experiment/{topic}/")] == []


def check_same(world: World, repo: Repo, made: dict[str, Any], goal: str = "raise_the_number") -> None:
    """Check the same, and that all that tells of a run tells the same of the replay."""
    check_commits(repo, made, goal)
    topic = made["topic"]
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


def set_up_local(world: World, repo: MakeRepo) -> Repo:
    """Set a repository up for the back end that asks no model, and let its three rounds run."""
    target = EXAMPLES / "json-tunables/target"
    shop = repo({path.name: path.read_bytes() for path in target.iterdir() if path.is_file()})
    sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
    world.sictl(
        *("init", shop.path, "--objective", "earn more", "--backend", "local", "--agents", "2", "--trust"),
        *("--benchmark", "python3 bench.py", "--format", "number", *RECORD, *sandbox),
    )
    world.run(shop, "--rounds", "3")
    return shop


def test_a_recorded_run_is_made_again(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent, *RECORD)
    recorded = world.run(numbers, "--rounds", "1", "--json").json["run_id"]
    refs, files = numbers.git("for-each-ref").splitlines(), told(numbers.path / ".sid/topics/default")
    shutil.rmtree(agent.folder)

    made = world.sictl("replay", numbers.path, "--wait", "--json").json

    assert (made["status"], made["replay_of"]) == ("max_iterations", recorded)
    check_commits(numbers, made)
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
    shop = set_up_local(world, repo)

    made = replay(world)

    check_same(world, shop, made, "earn_more")


@pytest.mark.slow
def test_a_replay_goes_on_after_its_daemon_died(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent, *RECORD, agents=2)
    world.run(numbers, "--rounds", "3")
    shutil.rmtree(agent.folder)
    made = world.sictl("replay", run_of(world), "--json").json

    with world.wire() as wire:
        wire.follow().until("round_recorded", run_id=made["run_id"])
    world.kill()
    world.daemon()
    with world.wire() as wire:
        wire.follow()
        # It may have ended in the moment of the kill, untold.
        while wire.call("run.status", run=made["run_id"])["status"] == "running":
            wire.record()
    assert world.end() == []  # all is written by then

    original, root = numbers.path / ".sid/topics/default", Path(made["root"])
    assert told(root) == told(original)
    assert commits(numbers, f"improve/raise_the_number_{made['topic'].replace('-', '_')}") == commits(
        numbers, "improve/raise_the_number"
    )


@pytest.mark.slow
def test_a_run_that_was_stopped_is_made_again_up_to_there(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "round": 3, "wait": "never"})
    world.init(numbers, agent, *RECORD)
    world.sictl("start", numbers.path)
    with world.wire() as wire:
        wire.follow().until("executor_started", iteration=3)
    world.sictl("stop", numbers.path, "--now")
    shutil.rmtree(agent.folder)

    made = replay(world, code=11)

    assert (made["status"], made["summary"]["iterations"]) == ("user_stopped", 2)
    check_commits(numbers, made)


@pytest.mark.slow
def test_what_came_before_another_init_is_left_out_and_all_after_it_is_made_again(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    world.init(numbers, agent, "--rounds", "4")
    for _ in range(2):
        world.run(numbers, "--rounds", "1")
    world.init(numbers, agent, *RECORD, "--rounds", "4")
    world.run(numbers)
    shutil.rmtree(agent.folder)

    made = replay(world)

    assert (made["status"], made["summary"]["iterations"]) == ("max_iterations", 4)
    assert [one["iteration"] for one in world.sictl("history", made["run_id"], "--json").json["rounds"]] == [
        3,
        4,
    ]


@pytest.mark.slow
def test_a_run_that_was_stopped_changed_and_resumed_is_made_again_whole(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "agent": "executor_2", "round": 2, "turn": 1, "wait": "never"})
    world.init(numbers, agent, *RECORD, agents=2)
    world.sictl("start", numbers.path, "--rounds", "4")
    with world.wire() as wire:
        wire.follow().until("benchmark_finished", iteration=2, actor="executor_1")
        busy = world.sictl("replay", run_of(world), code=5)
        assert "is active in" in busy.err
        assert [path.name for path in (numbers.path / ".sid/topics").iterdir()] == ["default"]
        world.sictl("stop", numbers.path, "--now")
        world.sictl("config", "set", "--run", run_of(world), "plateau_window", "7")
        world.sictl("idea", numbers.path, "try a larger one")
        world.run(numbers, "--rounds", "2")
        world.sictl("calibrate", numbers.path)
        world.run(numbers, "--rounds", "1")
    assert len(world.rounds(numbers)) == 4
    shutil.rmtree(agent.folder)

    made = replay(world)

    assert (made["status"], made["summary"]["iterations"]) == ("max_iterations", 4)
    check_commits(numbers, made)


@pytest.mark.slow
def test_secrets_stay_out_and_a_clone_can_make_the_run_again(world: World, numbers: Repo) -> None:
    key, named = "sk-ant-" + "a1b2" * 8, "correct-horse-battery"
    world.env["BILLING_API_KEY"] = named
    agent = world.agent()
    agent.script(
        {"role": "executor", "round": 1, "print": f"done with {key} and {named}\n"},
        {
            "role": "executor",
            "agent": "executor_2",
            "round": 2,
            "edit": {"value.txt": "5\n", "k.py": f"K = '{key}'\n"},
        },
    )
    world.init(numbers, agent, *RECORD, agents=2)
    world.run(numbers, "--rounds", "2")
    recording = world.state / "recordings" / f"{run_of(world)}.jsonl"
    text = recording.read_text()
    assert "done with *** and ***" in text
    assert key not in text
    assert named not in text

    made = replay(world)
    check_same(world, numbers, made)

    clone = world.base / "clone"
    numbers.git(
        "clone", "--quiet", "--no-local", "--single-branch", "--branch", "main", str(numbers.path), str(clone)
    )
    stopped = world.sictl("replay", made["replay_of"], "--in", clone, "--wait", "--json", code=1).json
    assert (
        "a secret was taken out of the edits of round 2, run plan of executor_2"
        in stopped["summary"]["reason"]
    )
    assert stopped["summary"]["iterations"] == 1


@pytest.mark.slow
def test_a_replay_can_be_set_up_by_its_settings(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent(), *RECORD)
    world.run(numbers, "--rounds", "1")
    recorded = run_of(world)
    by_settings = ("--topic", "again", "--backend", "replay", "--set", f'replay_from="{recorded}"')

    world.sictl("init", numbers.path, *by_settings)
    world.sictl("start", numbers.path, "--topic", "again", "--wait")

    root = numbers.path / ".sid/topics/again"
    assert told(root) == told(numbers.path / ".sid/topics/default")
    again = world.sictl("init", numbers.path, *by_settings, code=5)
    assert "holds a run already" in again.err
    missing = world.sictl("init", numbers.path, "--topic", "x", "--backend", "replay", code=2)
    assert "replay_from" in missing.err


@pytest.mark.slow
def test_what_cannot_be_replayed_says_so(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    world.run(numbers, "--rounds", "1")
    run = run_of(world)

    assert "has no recording; record it: sictl config set" in world.sictl("replay", run, code=4).err
    assert "no run 'qqqqqq'" in world.sictl("replay", "qqqqqq", code=4).err

    world.sictl("config", "set", "--run", run, "replay_from", "other")
    assert "start a replay with: sictl replay RUN" in world.sictl("start", numbers.path, code=2).err
    world.sictl("config", "set", "--run", run, "replay_from", "null")

    world.sictl("config", "set", "--run", run, "record", "true")
    world.run(numbers, "--rounds", "1")
    made = replay(world)
    assert made["summary"]["iterations"] == 2, "the round before the recording was turned on is in it"

    path = world.state / "recordings" / f"{run}.jsonl"
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join(line.replace('"hypothesis":"Set', '"hypothesis":"Let') for line in lines) + "\n"
    )
    changed = world.sictl("replay", run, "--json", code=1)
    assert "is not what was recorded" in changed.json["error"]["message"]

    world.sictl("config", "set", "--run", made["run_id"], "agent_backend", '"local"')
    acting = world.sictl("start", numbers.path, "--topic", made["topic"], code=5)
    assert f"replays {run} and cannot go on with agents" in acting.err


@pytest.mark.slow
def test_a_branch_that_was_moved_by_hand_moves_again(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent(), *RECORD, "--set", 'on_branch_moved="rebase"')
    world.run(numbers, "--rounds", "1")
    branch = "refs/heads/improve/raise_the_number"
    by_hand = numbers.git("commit-tree", "-p", branch, "-m", "By hand", f"{branch}^{{tree}}")
    numbers.git("update-ref", branch, by_hand)
    world.run(numbers, "--rounds", "1")

    made = replay(world)

    check_commits(numbers, made)
    assert made["summary"]["iterations"] == 2
    assert by_hand in "".join(commits(numbers, f"improve/raise_the_number_{made['topic'].replace('-', '_')}"))
