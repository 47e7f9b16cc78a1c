"""Many rounds of a tiny target: memory, descriptors and the cost of a round stay flat, and a resume stays quick."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.harness import HANG_S
from tests.faults.harness import Stage

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "2000"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def costs(daemon: subprocess.Popen[Any]) -> tuple[float, int, float]:
    """Return MiB, descriptors and CPU seconds of a daemon, its children left out."""
    process = psutil.Process(daemon.pid)
    times = process.cpu_times()
    return process.memory_info().rss / 2**20, process.num_fds(), times.user + times.system


def test_a_long_run_costs_the_same_all_the_way(stage: Stage) -> None:
    world, path = stage.world, stage.repo.path
    world.sictl("config", "set", path, "max_iterations", str(ROUNDS))
    world.sictl(
        "config", "set", path, "plateau_window", str(ROUNDS + 1)
    )  # gains of 10 become small beside the score
    world.end()
    daemon = world.daemon()
    marks: list[tuple[float, int, float]] = []
    with world.wire(limit_s=600) as wire:
        wire.follow(since=0, run=stage.run_id)
        stage.start()
        for _ in range(ROUNDS):
            wire.until("round_recorded")
            marks.append(costs(daemon))
        wire.until("run_ended", status="max_iterations")
    tenth = ROUNDS // 10
    cpu = [after[2] - before[2] for before, after in pairwise(marks)]
    early, late = statistics.median(cpu[tenth : 3 * tenth]), statistics.median(cpu[-2 * tenth :])
    print(
        f"{ROUNDS} rounds: {early:.3f} s CPU a round early, {late:.3f} late; MiB {marks[tenth][0]:.0f} to {marks[-1][0]:.0f}"
    )
    assert late < 1.3 * early + 0.01
    assert marks[-1][0] < marks[tenth][0] + 4
    # One look may fall into the next round, whose jobs have descriptors of their own.
    open_early, open_late = (
        statistics.median(mark[1] for mark in part)
        for part in (marks[tenth : 3 * tenth], marks[-2 * tenth :])
    )
    assert open_late <= open_early + 4
    assert stage.disagreements() == []

    stage.leave(daemon)
    begun = time.monotonic()
    daemon = world.daemon()
    with world.wire() as wire:
        assert wire.call("run.status", run=stage.run_id)["iteration"] == ROUNDS
    took = time.monotonic() - begun
    print(f"ready and told after {took:.2f} s; database {Path(stage.database).stat().st_size >> 20} MiB")
    daemon.terminate()
    daemon.wait(HANG_S)
