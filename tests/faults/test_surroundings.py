"""Bad surroundings in the middle of a run: what is taken away, filled up or broken is noticed, told, and costs nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import HANG_S, Wire
from tests.faults.harness import Stage


def begin(stage: Stage) -> tuple[subprocess.Popen[Any], Wire]:
    """Start a daemon and the run, and follow its log."""
    daemon = stage.world.daemon()
    wire = stage.world.wire()
    wire.follow(since=0, run=stage.run_id)
    stage.start()
    return daemon, wire


def until_failed(wire: Wire) -> str:
    """Wait for the run's end, which is a failure, and return its reason."""
    ended = wire.until("run_ended")
    assert ended["status"] == "failed", ended
    return str(ended["reason"])


def test_verify_says_what_disagrees(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("run_ended")
    repo = stage.repo
    repo.git("tag", "-d", "archive/round_1_executor_2")
    repo.git("branch", "-f", "improve/raise_the_number", "improve/raise_the_number~1")
    (stage.root / "tracking/baseline.json").unlink()
    history = stage.root / "state/iteration_history"
    shutil.copy(history / "round_1.json", history / "round_3.json")
    results = stage.root / "state/benchmark_results/round_1"
    shutil.copy(results / "executor_1.json", results / "executor_9.json")

    told = stage.world.sictl("verify", repo.path, code=1).out
    assert "tag archive/round_1_executor_2 is missing" in told
    assert "improve/raise_the_number: is at" in told
    assert "tracking/baseline.json: the file is missing" in told
    assert "state/iteration_history/round_3.json: the run did not write this file" in told
    assert "state/benchmark_results/round_1/executor_9.json: the run did not write this file" in told
    document = stage.world.sictl("verify", repo.path, "--json", code=1).json
    assert document["agrees"] is False
    assert len(document["disagreements"]) >= 3
    stage.leave(daemon)


def test_a_run_that_cannot_be_read_hides_no_other_and_keeps_no_daemon(stage: Stage) -> None:
    for side in ("-wal", "-shm"):
        stage.database.with_name(f"run.db{side}").unlink(missing_ok=True)
    stage.database.write_text("no database\n" * 100)
    daemon = stage.world.daemon()
    (row,) = stage.world.sictl("status", "--json").json["runs"]
    assert (row["run_id"], row["status"]) == (stage.run_id, "failed")
    assert "is damaged" in row["reason"]
    assert "is damaged" in stage.world.sictl("history", stage.repo.path, code=1).err
    stage.world.sictl("daemon", "shutdown")
    daemon.wait(HANG_S)


def test_a_cleaned_repository_costs_nothing_in_mid_run(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("candidate_committed")
        stage.repo.git("clean", "-ffdxq", "-e", "mine.txt", "-e", "worktrees", "-e", "pool")
        wire.until("run_ended", status="max_iterations")
    stage.check(daemon)


def test_a_cleaned_repository_costs_nothing_while_no_daemon_runs(stage: Stage) -> None:
    assert stage.crash_at("copy:1:after")
    for place in (
        "",
        "lessons",
        "copies",
        f"copies/{stage.run_id}.config",
    ):  # the crash came in the middle of writing
        (stage.world.state / place / ".one.7-1.new").write_text("half of i")
    stage.repo.git("clean", "-ffdxq", "-e", "mine.txt")
    stage.check(stage.go_on())


def test_a_repository_that_is_cleaned_after_a_stop_costs_nothing(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("candidate_committed")
        wire.call("run.cancel", run=stage.run_id)
        stage.leave(daemon)
    made = stage.bodies("candidate_committed")
    stage.repo.git("clean", "-ffdxq", "-e", "mine.txt")
    daemon, wire = begin(stage)
    with wire:
        wire.until("run_ended", status="max_iterations")
    assert stage.bodies("candidate_committed")[: len(made)] == made
    stage.check(daemon)


@pytest.mark.slow
def test_a_worktree_that_is_deleted_by_hand_costs_one_candidate_at_most(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("executor_started")
        for path in (stage.repo.path / "worktrees").glob("*"):
            subprocess.run(["rm", "-rf", path], check=False)
        ended = wire.until("run_ended")
    assert ended["status"] == "max_iterations"
    assert stage.disagreements() == []
    stage.leave(daemon)
    assert stage.repo.worktrees() == []


@pytest.mark.parametrize("how", ["moved", pytest.param("deleted", marks=pytest.mark.slow)])
def test_a_repository_that_goes_away_ends_the_run_with_the_reason(stage: Stage, how: str) -> None:
    daemon, wire = begin(stage)
    away = stage.world.base / "away"
    with wire:
        wire.until("round_recorded")
        stage.repo.path.rename(away)
        reason = until_failed(wire)
    assert str(stage.repo.path) in reason or "gone" in reason or "repository" in reason, reason
    assert not stage.repo.path.exists(), f"it was made again: {sorted(stage.repo.path.rglob(chr(42)))[:9]}"
    if how == "moved":
        away.rename(stage.repo.path)
        with stage.world.wire() as again:
            again.call("run.start", repo=str(stage.repo.path))
            cursor = again.follow(since=0, run=stage.run_id)
            cursor.until("run_ended", status="max_iterations")
        stage.check(daemon)
        return
    subprocess.run(["rm", "-rf", away], check=True)
    with stage.world.wire() as again:
        assert again.call("run.status", run=stage.run_id)["status"] == "failed"
    stage.leave(daemon)


@pytest.mark.slow
def test_settings_broken_in_mid_run_name_the_key(stage: Stage) -> None:
    daemon, wire = begin(stage)
    path = stage.root / "config/settings.json"
    good = path.read_text()
    with wire:
        wire.until("executor_started")
        path.write_text(json.dumps({**json.loads(good), "plateau_window": "many"}))
        assert "plateau_window" in until_failed(wire)
        path.write_text(good)
        wire.call("run.start", repo=str(stage.repo.path))
        wire.until("run_ended", status="max_iterations")
    stage.check(daemon)


def test_an_improvement_branch_that_is_moved_is_noticed_and_never_forced(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("executor_started")
        tree = stage.repo.git("rev-parse", "main^{tree}")
        mine = stage.repo.git("commit-tree", tree, "-p", "improve/raise_the_number", "-m", "Mine")
        stage.repo.git("update-ref", "refs/heads/improve/raise_the_number", mine)
        reason = until_failed(wire)
    assert "improve/raise_the_number" in reason or "branch" in reason, reason
    assert stage.repo.git("rev-parse", "improve/raise_the_number") == mine
    assert any("is at" in line for line in stage.disagreements())
    stage.leave(daemon)


@pytest.mark.slow
def test_a_target_branch_that_is_moved_does_not_matter(stage: Stage) -> None:
    daemon, wire = begin(stage)
    with wire:
        wire.until("executor_started")
        tree = stage.repo.git("rev-parse", "main^{tree}")
        mine = stage.repo.git("commit-tree", tree, "-p", "main", "-m", "Mine")
        stage.repo.git("update-ref", "refs/heads/main", mine)
        wire.until("run_ended", status="max_iterations")
    assert stage.disagreements() == []
    assert stage.repo.git("rev-parse", "main") == mine
    assert mine not in stage.repo.git("rev-list", "improve/raise_the_number").split()
    stage.leave(daemon)


def read_whole(path: Path) -> None:
    """Read a contract file as what it is.

    Raises:
        ValueError: it is not that, or half of it.
    """
    content = path.read_bytes()
    match path.suffix:
        case ".json":
            json.loads(content)
        case ".tsv":
            rows = [line.split("\t") for line in content.decode().splitlines() if not line.startswith("#")]
            if not content.endswith(b"\n") or len({len(row) for row in rows}) != 1:
                raise ValueError("not a table")
        case ".png":
            if content[:4] != b"\x89PNG" or not content.endswith(b"IEND\xaeB`\x82"):
                raise ValueError("not a picture")
        case _:
            if not content.endswith(b"\n"):
                raise ValueError("not whole lines")


def test_contract_files_parse_at_every_instant(stage: Stage) -> None:
    seen: dict[str, int] = {}
    wrong: list[str] = []
    over = threading.Event()
    folders = ("state", "tracking")

    def poll() -> None:
        while not over.is_set():
            for folder, _, files in (found for top in folders for found in os.walk(stage.root / top)):
                for name in files:
                    if not name.startswith((".", "run.db")):
                        look(Path(folder, name))
            over.wait(0.002)

    def look(path: Path) -> None:
        try:
            read_whole(path)
            seen[path.name] = seen.get(path.name, 0) + 1
        except FileNotFoundError:
            return
        except ValueError as error:
            wrong.append(f"{path}: {error}: {path.read_bytes()[:100]!r}")

    reader = threading.Thread(target=poll)
    daemon, wire = begin(stage)
    reader.start()
    with wire:
        wire.until("run_ended", status="max_iterations")
    over.set()
    reader.join()
    assert wrong == []
    often = ("iteration_state.json", "raw_data.json", "agent-settings.json", "results.tsv", "memory.md")
    assert min(seen[name] for name in often) > 20
    stage.check(daemon)
