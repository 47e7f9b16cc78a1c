"""What users do in the middle of things: Ctrl-C, links, subfolders, other worktrees, deleting everything."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from tests.conftest import MakeRepo
from tests.e2e.contract_files import check_root
from tests.e2e.harness import SEALED_BENCHMARK, World, clean_repository
from tests.e2e.test_lifecycle import at_gate, check_every_round_once
from tests.repos import Repo

GATED = {
    **SEALED_BENCHMARK,
    "bench.sh": '[ -p "$(cat gate-path)" ] && cat "$(cat gate-path)"\ncat value.txt\n',
}


def test_ctrl_c_in_the_middle_of_init_costs_nothing(world: World, repo: MakeRepo) -> None:
    agent = world.agent()
    gate = agent.folder / "gates/bench"
    os.mkfifo(gate)
    numbers = repo({**GATED, "gate-path": str(gate)})
    paths = ("--set", f'benchmark_paths=["{agent.folder}/gates"]')
    world.daemon()
    flags = ("--objective", "raise the number", "--benchmark", "sh bench.sh", "--format", "number", "--trust")
    setting_up = world.start_sictl("init", numbers.path, *flags, *paths)
    with at_gate(gate):
        setting_up.send_signal(signal.SIGINT)
        assert world.finish(setting_up).code == 130
        again = world.start_sictl("init", numbers.path, *flags, *paths)
    gate.unlink()

    assert world.finish(again).code == 0
    assert world.row(numbers)["baseline"] == 1.0
    assert world.jobs() == []
    world.init(numbers, agent)
    world.run(numbers, "--rounds", "1")
    check_every_round_once(numbers, 1)


@pytest.mark.slow
def test_ctrl_c_ends_a_demo_with_all_it_started(world: World) -> None:
    demo = world.start_sictl("demo", "--rounds", "9")
    assert demo.stdout is not None
    for line in demo.stdout:
        if "round_started" in line or "step_started" in line:
            break
    demo.send_signal(signal.SIGINT)
    assert world.finish(demo).code == 130
    assert world.processes() == []
    assert not world.state.exists(), "the demo used the user's own daemon"


@pytest.mark.slow
def test_runs_are_found_from_links_subfolders_and_linked_worktrees(world: World, repo: MakeRepo) -> None:
    numbers = repo({**SEALED_BENCHMARK, "deep/er/file": "x\n"})
    world.init(numbers, world.agent())
    run_id = world.row(numbers)["run_id"]
    link = world.base / "link"
    link.symlink_to(numbers.path)
    linked = Repo(world.base / "linked")
    numbers.git("worktree", "add", "--quiet", "-b", "side", str(linked.path))

    for place in (link, numbers.path / "deep/er", link / "deep"):
        assert world.sictl("history", place, "--json").json["run_id"] == run_id
        assert world.sictl("history", "--json", cwd=place).json["run_id"] == run_id
    world.sictl("start", link, "--wait", "--rounds", "1", cwd=world.base)
    world.sictl("start", "--wait", "--rounds", "1", cwd=numbers.path / "deep/er")
    check_every_round_once(numbers, 2)
    assert linked.git("status", "--porcelain") == ""
    assert numbers.worktrees() == [linked.path]


@pytest.mark.slow
def test_a_linked_worktree_is_the_same_repository(world: World, numbers: Repo) -> None:
    agent, other = world.agent(), world.agent("other")
    agent.script({"role": "planner", "round": 1, "turn": 1, "wait": "gate"})
    world.init(numbers, agent)
    linked = Repo(world.base / "linked")
    numbers.git("worktree", "add", "--quiet", "-b", "side", str(linked.path))
    world.init(linked, other, "--objective", "another goal of it")
    world.sictl("start", numbers.path, "--rounds", "1")
    with at_gate(agent.folder / "gates/gate"):
        refused = world.sictl("start", linked.path, "--json", code=5)
        assert refused.json["error"]["code"] == "already_running"
        world.sictl("stop", numbers.path, "--now")
    world.run(linked, "--rounds", "1")
    assert linked.git("status", "--porcelain") == ""
    assert linked.git("show", "improve/another_goal_of_it:value.txt") == "10"


@pytest.mark.slow
@pytest.mark.parametrize("what", [".", ".git"])
def test_a_repository_that_is_deleted_under_a_run_costs_the_daemon_nothing(
    world: World, repo: MakeRepo, what: str
) -> None:
    agent, survivor = world.agent(), repo(SEALED_BENCHMARK, name="survivor")
    numbers = repo(SEALED_BENCHMARK)
    agent.script({"role": "executor", "round": 1, "turn": 1, "wait": "gate"})
    world.daemon()
    world.init(numbers, agent)
    world.init(survivor, world.agent("other"))
    with world.wire() as wire:
        wire.follow()
        run_id = world.sictl("start", numbers.path, "--json").json["run_id"]
        with at_gate(agent.folder / "gates/gate"):
            shutil.rmtree(numbers.path / what)
        ended = wire.until("run_ended", run_id=run_id)
        assert ended["status"] == "failed"
        assert ended["reason"]
        assert "\n" not in ended["reason"]
    assert world.jobs() == []
    world.run(survivor, "--rounds", "1")
    check_every_round_once(survivor, 1)
    row = next(row for row in world.sictl("status", "--json").json["runs"] if row["run_id"] == run_id)
    assert row["status"] == "failed"
    assert world.sictl("start", numbers.path, code=None).code != 0


@pytest.mark.slow
def test_git_clean_in_the_middle_of_a_run_costs_nothing(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 2, "turn": 1, "wait": "gate"})
    world.init(numbers, agent)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path, "--rounds", "3")
        with at_gate(agent.folder / "gates/gate"):
            numbers.git("clean", "-ffdxq")
        assert wire.until("run_ended")["status"] == "max_iterations"
    with clean_repository(numbers):
        world.sictl("export", numbers.path)
        check_every_round_once(numbers, 3)
        check_root(numbers.path / ".sid/topics/default", 3)


@pytest.mark.slow
def test_a_commit_on_the_target_and_a_push_of_tags_change_nothing_of_a_run(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "agent": "executor_1", "turn": 1, "wait": "gate"})
    numbers.git("tag", "archive/round_1_executor_2")
    mine = numbers.git("rev-parse", "archive/round_1_executor_2")
    world.init(numbers, agent, agents=2)
    world.sictl("start", numbers.path, "--rounds", "1")
    with at_gate(agent.folder / "gates/gate"):
        moved = numbers.commit({"other.txt": "mine\n"}, "Mine")
    with world.wire() as wire:
        wire.follow().until("run_ended")
    assert numbers.git("rev-parse", "main") == moved
    assert numbers.git("rev-parse", "archive/round_1_executor_2") == mine, "a tag of the user's was moved"
    shown = world.sictl("show", numbers.path, "1", "--json").json["round"]
    assert shown["merge_report"]["archived"] == ["archive/round_1_executor_2-2"]


@pytest.mark.slow
def test_two_inits_and_two_starts_at_once_make_one_run(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.daemon()
    flags = ("--objective", "raise the number", "--benchmark", "sh bench.sh", "--format", "number", "--trust")
    paths = (
        "--agent-command",
        agent.command,
        "--set",
        f'agent_paths=["{agent.folder}/seen:rw"]',
        "--agents",
        "1",
    )
    both = [world.start_sictl("init", numbers.path, *flags, *paths) for _ in range(4)]
    assert {world.finish(process).code for process in both} == {0}
    assert len(world.sictl("status", "--json").json["runs"]) == 1
    starts = [world.start_sictl("start", numbers.path, "--rounds", "1", "--wait") for _ in range(4)]
    assert sorted(world.finish(process).code for process in starts) == [0, 5, 5, 5]
    check_every_round_once(numbers, 1)
