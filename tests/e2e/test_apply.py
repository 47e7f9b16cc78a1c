"""`sictl apply`: the only way in which the target branch ever moves."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import SEALED_BENCHMARK, World, watched
from tests.repos import Repo


def improved(world: World, repo: Repo) -> None:
    world.init(repo, world.agent())
    world.run(repo, "--rounds", "1")


def test_apply_fast_forwards_refuses_over_changes_and_can_be_undone(world: World, numbers: Repo) -> None:
    improved(world, numbers)
    before = numbers.head
    unasked = world.sictl("apply", numbers.path, code=2)
    assert "--yes" in unasked.err

    numbers.write({"value.txt": "7\n"})
    refused = world.sictl("apply", numbers.path, "--yes", "--json", code=5)
    assert refused.json["error"]["code"] == "refused"
    assert "git -C" in refused.json["error"]["hint"], "the command to run is not told"
    assert (numbers.head, (numbers.path / "value.txt").read_text()) == (before, "7\n")

    # A change elsewhere is no reason to refuse: `git merge` would not, either.
    numbers.git("checkout", "--quiet", "--", "value.txt")
    numbers.write({"README.md": "Mine.\n"})
    done = world.sictl("apply", numbers.path, "--yes", "--json").json
    assert (done["applied"], done["fast_forward"]) == (True, True)
    assert numbers.head == numbers.git("rev-parse", "improve/raise_the_number")
    assert (numbers.path / "value.txt").read_text() == "10\n"
    assert numbers.git("status", "--porcelain") == " M README.md"

    subprocess.run(shlex.split(done["undo"]), check=True, capture_output=True)
    assert (numbers.head, (numbers.path / "value.txt").read_text()) == (before, "1\n")
    assert (numbers.path / "README.md").read_text() == "Mine.\n", "undoing cost the user a change"
    again = world.sictl("apply", numbers.path, "--yes")
    assert "undo with: git" in again.out
    assert "nothing to apply" in world.sictl("apply", numbers.path, "--yes").out


@pytest.mark.slow
@pytest.mark.parametrize("end", ["the daemon is killed", "its group is killed", "the client hangs up"])
def test_apply_is_not_ended_half_way(world: World, numbers: Repo, end: str) -> None:
    improved(world, numbers)
    gate = numbers.path.parent / "gate"
    os.mkfifo(gate)
    (numbers.path / ".git/info/attributes").write_text("value.txt filter=gated\n")
    numbers.git("config", "filter.gated.smudge", f"cat '{gate}'; cat")
    numbers.write({"README.md": "Mine.\n"})
    client = world.start_sictl("apply", numbers.path, "--yes")
    at_gate = gate.open("w")  # git waits in the middle of the checkout
    assert (numbers.path / ".git/index.lock").exists()
    with watched(process.pid for process in world.processes() if process.name() == "git") as merging:
        if end == "the client hangs up":
            client.send_signal(signal.SIGINT)
            world.finish(client)
        else:
            world.kill(group="group" in end)
            world.finish(client)
            world.daemon()  # which sweeps
        at_gate.close()
        assert merging.alive() == []
    assert not (numbers.path / ".git/index.lock").exists()
    assert numbers.head == numbers.git("rev-parse", "improve/raise_the_number")
    assert (numbers.path / "value.txt").read_text() == "10\n"
    assert numbers.git("diff", "--name-only") == "README.md"
    assert "nothing to apply" in world.sictl("apply", numbers.path, "--yes").out


@pytest.mark.slow
def test_apply_merges_into_a_target_that_went_on_and_is_not_checked_out(world: World, numbers: Repo) -> None:
    improved(world, numbers)
    moved = numbers.commit({"other.txt": "other\n"}, "Meanwhile")
    numbers.git("checkout", "--quiet", "-b", "work")
    seen = numbers.fingerprint()

    done = world.sictl("apply", numbers.path, "--yes", "--json").json

    assert (done["applied"], done["fast_forward"]) == (True, False)
    assert numbers.git("rev-parse", "main^1") == moved
    assert numbers.git("rev-parse", "main^2") == numbers.git("rev-parse", "improve/raise_the_number")
    assert numbers.git("show", "main:value.txt") == "10"
    assert numbers.git("show", "main:other.txt") == "other"
    assert numbers.fingerprint() == seen
    subprocess.run(shlex.split(done["undo"]), check=True, capture_output=True)
    assert numbers.git("rev-parse", "main") == moved


@pytest.mark.slow
def test_apply_with_a_conflict_changes_nothing(world: World, numbers: Repo) -> None:
    improved(world, numbers)
    moved = numbers.commit({"value.txt": "5\n"}, "Meanwhile")
    seen = numbers.fingerprint()

    failed = world.sictl("apply", numbers.path, "--yes", "--json", code=1)

    assert failed.json["error"]["code"] == "failed"
    assert "value.txt" in failed.json["error"]["message"]
    assert (numbers.git("rev-parse", "main"), numbers.fingerprint()) == (moved, seen)


@pytest.mark.slow
def test_apply_to_a_target_checked_out_in_another_worktree(world: World, repo: MakeRepo) -> None:
    numbers = repo(SEALED_BENCHMARK)
    improved(world, numbers)
    numbers.git("checkout", "--quiet", "-b", "work")
    other = Repo(numbers.path.parent / "other")
    numbers.git("worktree", "add", "--quiet", str(other.path), "main")

    world.sictl("apply", numbers.path, "--yes")

    assert (other.path / "value.txt").read_text() == "10\n"
    assert other.git("status", "--porcelain") == ""
