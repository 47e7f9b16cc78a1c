"""Several things at once: what users do with git under a run, and kills that come in the middle of what kills left."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import BIN, HANG_S, SEALED_BENCHMARK, World, clean_repository, sandbox_works
from tests.e2e.test_lifecycle import check_every_round_once
from tests.faults.harness import AGENT, Stage
from tests.faults.test_surroundings import begin, until_failed
from tests.repos import Repo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROUNDS = 3
BRANCH = "improve/raise_the_number"
HANDS = {
    "collects garbage": ("reflog expire --expire=now --all", "gc --quiet --prune=now"),
    "packs": ("repack -a -d -q", "pack-refs --all --prune"),
    "prunes worktrees": ("worktree prune --expire=now",),
}


@pytest.fixture
def world(short_dir: Path, own_world: None) -> Iterator[World]:
    """One user's machine; whatever still runs after its daemon has left is a failure."""
    made = World(short_dir, dict(os.environ))
    yield made
    assert made.end() == [], "still running after the daemon left"


@pytest.mark.parametrize("when", ["round_started", "executor_started", "candidate_committed"])
@pytest.mark.parametrize("what", HANDS)
def test_a_user_who_tidies_up_costs_a_run_nothing(stage: Stage, what: str, when: str) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until(when)
        for command in HANDS[what]:
            stage.repo.git(*command.split())
        wire.until("run_ended", status="max_iterations")
    stage.check(daemon)


def test_a_deleted_improvement_branch_can_be_brought_back_as_the_hint_says(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("round_recorded")
        wire.until("executor_started")
        was = stage.repo.git("rev-parse", BRANCH)
        stage.repo.git("update-ref", "-d", f"refs/heads/{BRANCH}")
        until_failed(wire)
        done = stage.world.sictl("start", stage.repo.path, "--wait", code=1)
        assert f"bring it back: git branch {BRANCH} COMMIT" in done.out
        assert any(was[:12] in line for line in stage.disagreements())
        stage.repo.git("branch", BRANCH, was)
        wire.call("run.start", repo=str(stage.repo.path))
        wire.until("run_ended", status="max_iterations")
    stage.check(daemon)


def prepared(world: World, repo: MakeRepo, name: str) -> Repo:
    """Make a repository with a run that is set up."""
    made = repo(SEALED_BENCHMARK, name=name)
    shutil.copy(AGENT, world.base / "agent.sh")
    sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
    world.sictl(
        *("init", made.path, "--objective", "raise the number", "--agents", "1", "--rounds", str(ROUNDS)),
        *("--trust", "--benchmark", "sh bench.sh", "--format", "number", "--backend", "command"),
        *("--agent-command", f"sh '{world.base}/agent.sh'", "--set", "grace_s=0.2", *sandbox),
    )
    return made


def kill_with_children(daemon: subprocess.Popen[bytes]) -> None:
    """Kill a daemon with all that it started."""
    whole = [psutil.Process(daemon.pid), *psutil.Process(daemon.pid).children(recursive=True)]
    for process in whole:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    daemon.wait(HANG_S)


@pytest.mark.parametrize("seed", range(3))
def test_runs_of_one_daemon_survive_kills_of_all_and_of_those_who_recover(
    world: World, repo: MakeRepo, seed: int
) -> None:
    dice = random.Random(seed)
    daemon = world.daemon()
    repos = [prepared(world, repo, name) for name in ("one", "two", "three")]
    before = [made.fingerprint() for made in repos]
    with world.wire() as wire:
        wire.follow()
        for made in repos:  # one after the other, so that they are at different steps
            wire.call("run.start", repo=str(made.path))
            wire.until(dice.choice(["round_started", "plan_drafted", "executor_started"]))
    kill_with_children(daemon)
    # A run that is active in three crashes within ten minutes has failed: two more, before they go on with anything.
    for _ in range(2):
        started = world.spawn([BIN / "sid"], cwd="/", stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0, 1.0))
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()

    world.daemon()
    with world.wire() as wire:
        wire.follow()
        paths = {row["run_id"]: row["repo"] for row in wire.call("run.list")["runs"]}
        ended = 0
        while ended < len(repos):
            end = wire.until("run_ended")
            if end["status"] == "failed":
                assert "3 times within 10 minutes" in end["reason"], end
                wire.call("run.start", repo=paths[end["run_id"]])
            else:
                ended += 1
    for made, was in zip(repos, before, strict=True):
        with clean_repository(made):
            check_every_round_once(made, ROUNDS)
        assert world.sictl("verify", made.path, "--json").json["agrees"] is True
        assert made.fingerprint() == was
        assert not list(Path(made.path, ".git").rglob("*.lock"))
    assert world.jobs() == []
