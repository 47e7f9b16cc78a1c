"""A wall clock that jumps an hour forward and back, again and again, all through a run: no matter to it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from datetime import datetime
from typing import Any

import pytest

from tests.faults.harness import Stage
from tests.faults.test_surroundings import begin

HOUR_S = 3600


def test_a_wall_clock_that_jumps_ends_no_turn_and_disorders_nothing(stage: Stage) -> None:
    daemon = stage.fault_daemon("tests.faults.clock")
    records: list[dict[str, Any]] = []
    with stage.world.wire() as wire:
        wire.follow(since=0, run=stage.run_id)
        stage.start()
        while not records or records[-1]["event"] != "run_ended":
            records.append(wire.record())
        row = wire.call("run.status", run=stage.run_id)
        rounds = wire.call("run.history", run=stage.run_id)["rounds"]

    with closing(sqlite3.connect(stage.database)) as database:
        bodies = database.execute("SELECT body FROM events ORDER BY seq").fetchall()
    times = [datetime.fromisoformat(json.loads(body)["at"]).timestamp() for (body,) in bodies]
    steps = [after - before for before, after in itertools.pairwise(times)]
    assert min(steps) < -HOUR_S / 2, "the clock never jumped back"
    assert max(steps) > HOUR_S / 2, "the clock never jumped forward"
    cursors = [record["cursor"] for record in records]
    assert cursors == sorted(set(cursors))
    numbers = [record["iteration"] for record in records if record["event"] == "round_recorded"]
    assert numbers == [1, 2]
    names = {record["event"] for record in records}
    assert not names & {"deadline_passed", "force_kill", "agent_failed", "actor_crashed", "work_failed"}, (
        names
    )
    told = [*records, *rounds, row["budget"]["wall_s"] | {"duration_s": row["budget"]["wall_s"]["spent"]}]
    assert min(one["duration_s"] for one in told if one.get("duration_s") is not None) >= 0
    stage.check(daemon)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["executor", "planner"])
def test_a_daemon_that_was_stopped_past_a_deadline_kills_nobody_who_ended_in_time(
    stage: Stage, role: str
) -> None:
    agent = stage.world.base / "agent.sh"
    agent.write_text(agent.read_text().replace(f"{role})", f"{role}) sleep 1;"))
    stage.world.sictl("config", "set", stage.repo.path, f"deadlines.{role}", "20")
    stage.world.end()
    daemon, wire = begin(stage)
    with wire:
        wire.until("step_started", step={"executor": "execution", "planner": "planning"}[role])
        os.killpg(daemon.pid, signal.SIGSTOP)
        time.sleep(30)  # the deadline passes on the real clock
        os.killpg(daemon.pid, signal.SIGCONT)
        wire.until("run_ended", status="max_iterations")
    assert stage.bodies("agent_killed") == []
    assert stage.bodies("agent_failed") == []
    stage.check(daemon)
