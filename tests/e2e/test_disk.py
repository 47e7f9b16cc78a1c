"""A disk that is full or read-only: one clear line, nothing half-written, and the run goes on once it is mended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.e2e.contract_files import check_root
from tests.e2e.harness import SEALED_BENCHMARK, World, clean_repository
from tests.e2e.test_lifecycle import check_every_round_once
from tests.repos import Repo

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@contextmanager
def mounted(*how: str) -> Iterator[None]:
    done = subprocess.run(["mount", *how], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", how[-1]], check=True)


@pytest.fixture
def small(short_dir: Path) -> Iterator[Repo]:
    """A repository on a disk of 12 MB."""
    folder = short_dir / "small"
    folder.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)):
        made = Repo(folder / "repo")
        made.path.mkdir()
        made.git("init", "--quiet", "--initial-branch=main")
        made.commit(SEALED_BENCHMARK, "Start")
        yield made


def fill(folder: Path) -> Path:
    """Leave no byte free on a disk."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


@needs_mounts
def test_a_full_disk_stops_the_run_in_one_line_and_costs_no_round(small: Repo, world: World) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 2, "turn": 1, "wait": "gate"})
    world.init(small, agent)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", small.path, "--rounds", "3")
        with (agent.folder / "gates/gate").open("w"):
            filler = fill(small.path.parent)
        ended = wire.until("run_ended")
    assert ended["status"] == "failed"
    assert "\n" not in ended["reason"]
    assert world.jobs() == []
    full = world.sictl("start", small.path, "--wait", "--json", code=1)
    # It may fail at its first event or, where a few bytes were left, at a later one.
    told = full.json["error"] if "error" in full.json else full.json["summary"]
    assert "free some space" in told["hint"]
    row = world.row(small)
    assert (row["status"], row["iteration"]) == ("failed", 2)
    filler.unlink()
    assert [row["status"] for row in world.rounds(small)] == ["merged"]
    world.run(small, "--rounds", "2")
    with clean_repository(small):
        check_every_round_once(small, 3)
    check_root(small.path / ".sid/topics/default", 3)


@needs_mounts
@pytest.mark.slow
def test_init_on_a_full_disk_leaves_nothing(small: Repo, world: World) -> None:
    filler = fill(small.path.parent)
    done = world.init(small, world.agent(), code=1)
    assert len(done.err.splitlines()) <= 2
    filler.unlink()
    world.init(small, world.agent("again"))
    world.run(small, "--rounds", "1")


@needs_mounts
@pytest.mark.slow
def test_a_full_disk_for_temporary_files_is_named(world: World, numbers: Repo) -> None:
    temporary = world.base / "tmp"
    temporary.mkdir()
    world.env["TMPDIR"] = str(temporary)
    with mounted("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(temporary)):
        world.init(numbers, world.agent())
        filler = fill(temporary)
        failed = world.sictl("start", numbers.path, "--rounds", "1", "--wait", "--json", code=1)
        assert str(temporary) in failed.json["summary"]["reason"]
        assert "free some space" in failed.json["summary"]["hint"]
        filler.unlink()
        world.run(numbers, "--rounds", "1")
        assert [row["status"] for row in world.rounds(numbers)] == ["merged"]
        world.end()


@needs_mounts
@pytest.mark.slow
def test_a_repository_that_cannot_be_written_is_refused_before_anything_is(
    world: World, numbers: Repo
) -> None:
    before = numbers.fingerprint()
    inside = str(numbers.path / ".git")
    with mounted("--bind", "-o", "ro", inside, inside):
        done = world.init(numbers, world.agent(), code=1)
    assert f"{inside}/info/exclude: Read-only file system" in done.err
    assert numbers.fingerprint() == before
    assert not (numbers.path / ".sid").exists()


@needs_mounts
@pytest.mark.slow
def test_a_full_disk_under_the_daemons_state_refuses_a_start_and_no_more(world: World, numbers: Repo) -> None:
    world.state.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(world.state)):
        world.daemon()
        world.init(numbers, world.agent())
        filler = fill(world.state)
        world.sictl("start", numbers.path, "--rounds", "1", "--wait", code=None)
        filler.unlink()
        world.run(numbers, "--rounds", "1")
        assert [row["status"] for row in world.rounds(numbers)] == ["merged"]
        world.end()


@pytest.mark.slow
@needs_mounts
def test_a_read_only_root_is_told_in_one_line(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent)
    root = numbers.path / ".sid/topics/default"
    with mounted("--bind", "-o", "ro", str(root), str(root)):
        refused = world.sictl("start", numbers.path, "--json", code=1)
        assert str(root) in refused.json["error"]["message"]
        assert len(refused.err.splitlines()) == 1
        assert world.sictl("idea", numbers.path, "x", code=1).err.startswith("sictl: ")
        assert world.sictl("config", "set", numbers.path, "plateau_window", "5", code=1).err.startswith(
            "sictl: "
        )
    world.run(numbers, "--rounds", "1")


@needs_mounts
@pytest.mark.parametrize("what", ["root", pytest.param("repository", marks=pytest.mark.slow)])
def test_a_disk_that_turns_read_only_ends_the_run_in_one_line_and_costs_no_round(
    world: World, numbers: Repo, what: str
) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 2, "turn": 1, "wait": "gate"})
    world.init(numbers, agent)
    root = numbers.path / ".sid/topics/default"
    folder = str({"root": root, "repository": numbers.path}[what])
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path, "--rounds", "2")
        with (agent.folder / "gates/gate").open("w") as gate, mounted("--bind", "-o", "ro", folder, folder):
            gate.close()
            ended = wire.until("run_ended")
            assert ended["status"] == "failed"
            assert "Read-only file system" in ended["reason"]
            assert folder in ended["reason"]
            assert "Errno" not in ended["reason"]
            assert "\n" not in ended["reason"]
            assert world.jobs() == []
            row = wire.call("run.status", run=ended["run_id"])
            assert (row["status"], row["iteration"]) == ("failed", 2)
    world.run(numbers, "--rounds", "1")
    with clean_repository(numbers):
        check_every_round_once(numbers, 2)
    assert world.sictl("verify", numbers.path, "--json").json["agrees"] is True
    check_root(root, 2)


@pytest.mark.slow
@needs_mounts
def test_a_state_directory_that_turns_read_only_is_told_and_costs_the_run_nothing(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "turn": 1, "wait": "gate"})
    world.init(numbers, agent)
    state = str(world.state)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path, "--rounds", "1")
        with (agent.folder / "gates/gate").open("w") as gate, mounted("--bind", "-o", "ro", state, state):
            gate.close()
            assert state in wire.until("view_not_written")["why"]
            assert wire.until("run_ended")["status"] == "max_iterations"
    world.run(numbers, "--rounds", "1")
    with clean_repository(numbers):
        check_every_round_once(numbers, 2)
    assert world.sictl("verify", numbers.path, "--json").json["agrees"] is True
