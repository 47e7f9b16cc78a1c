"""SIGKILL at random moments, by chance and not by name: of a run, of a start, of what a user asks for.

`SID_KILLS` says how often each, `SID_SEED` at which moments.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sid_daemon.core.state import ACTIVE
from tests.actors.job_cases import strays
from tests.e2e.harness import BIN, HANG_S, sandbox_works, watched
from tests.faults.harness import Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("SID_KILLS", "4"))
SEED = int(os.environ.get("SID_SEED", "1"))
RECORDS = 60  # of the log, about as many as the run has
PAUSE_S = 0.03  # between a record, or a request, and the kill
APPLY_S = 0.5
START_S = 1.0  # within it a daemon is ready and goes on with what was active
TRIES = 8

REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "at a pause": ("run.pause", {}),
    "at a stop": ("run.cancel", {}),
    "at a stop now": ("run.cancel", {"now": True}),
    "at a setting": ("run.config", {"key": "plateau_window", "value": 9}),
    "at a shutdown": ("daemon.shutdown", {}),
    "at a shutdown now": ("daemon.shutdown", {"now": True}),
}
WHAT = ("the daemon", "its group", "a start, too", "twice", *REQUESTS)


class Killer:
    """Kills daemons of a stage, and finds out what is left."""

    def __init__(self, stage: Stage, dice: random.Random) -> None:
        self.stage = stage
        self.dice = dice
        self.ready_s: list[float] = []
        self.cpu_s: list[float] = []

    @property
    def left(self) -> dict[int, str]:
        """Every process of a job of this world, by mark, folder and mounts."""
        state = self.stage.world.state
        prefix = hashlib.sha256(str(state).encode()).hexdigest()[:12]
        daemons = {process.pid for process in self.stage.world.processes()} - set(self.jobs)
        found = strays(self.stage.world.base, prefix)
        return {pid: name for pid, name in found.items() if pid not in daemons}

    @property
    def jobs(self) -> list[int]:
        """What runs for this world beside daemons and clients."""
        control = ("/bin/sid", "/bin/sictl")
        found = []
        for process in self.stage.world.processes():
            with suppress(psutil.Error):
                if not any(word.endswith(control) for word in process.cmdline()[:2]):
                    found.append(process.pid)
        return found

    def start(self) -> None:
        """Start a daemon and note what that took."""
        began = time.monotonic()
        daemon = self.stage.world.daemon()
        self.ready_s.append(time.monotonic() - began)
        times = psutil.Process(daemon.pid).cpu_times()
        self.cpu_s.append(times.user + times.system)

    def pause(self, at_most_s: float = PAUSE_S) -> None:
        """Let some time pass."""
        time.sleep(self.dice.uniform(0, at_most_s))

    def at_some_record(self) -> None:
        """Follow the log to a record by chance, or to the run's end."""
        number = self.dice.randrange(RECORDS)
        with suppress(AssertionError), self.stage.world.wire() as wire:
            wire.follow(since=0, run=self.stage.run_id)
            for _ in range(number):
                if wire.record()["event"] == "run_ended":
                    return
        self.pause()

    def ask(self, method: str, more: dict[str, object], at_most_s: float = PAUSE_S) -> None:
        """Ask for something and do not wait for the answer."""
        params = more if method.startswith("daemon.") else {"run": self.stage.run_id, **more}
        with self.stage.world.wire() as wire:
            wire.call("run.list")  # all is loaded by now
            wire.send(
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n"
            )
            self.pause(at_most_s)

    def kill(self, *, group: bool = False) -> None:
        """Kill the daemon that there is; one may have left by itself."""
        daemon = self.stage.world.started[-1]
        with watched([daemon.pid]) as watch, suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(daemon.pid, signal.SIGKILL)
            assert watch.alive() == []
        daemon.wait()

    def strike(self, what: str) -> None:
        """Kill by one of the ways there are."""
        self.at_some_record()
        if what in REQUESTS:
            self.ask(*REQUESTS[what])
        self.kill(group=what == "its group")
        if what == "a start, too":
            self.stage.world.spawn([BIN / "sid"], cwd="/", stderr=subprocess.DEVNULL)
            self.pause(START_S)
            self.kill()
        elif what == "twice":
            self.start()
            self.at_some_record()
            self.kill()

    def go_on(self) -> None:
        """Bring the run of a live daemon to its end; what was stopped or paused is started again."""
        with self.stage.world.wire() as wire:
            wire.follow(since=0, run=self.stage.run_id)
            for _ in range(TRIES):
                status = wire.call("run.status", run=self.stage.run_id)["status"]
                if status == "max_iterations":
                    return
                if status == "paused":
                    wire.call("run.resume", run=self.stage.run_id)
                elif status not in ACTIVE:
                    wire.call("run.start", repo=str(self.stage.repo.path))
                wire.until("run_ended")
        pytest.fail(f"the run does not come to its end: {status}")


@pytest.mark.parametrize("what", WHAT)
def test_a_kill_at_any_moment_loses_nothing_and_leaves_nothing(stage: Stage, what: str) -> None:
    killer = Killer(stage, random.Random(f"{SEED} {what}"))
    for number in range(KILLS):
        stage.reset()
        killer.start()
        stage.start()
        killer.strike(what)
        measured = stage.bodies("run_measured")
        killer.start()
        killer.go_on()
        stage.check(stage.world.started[-1], measured)
        assert killer.left == {}, f"kill {number}"
        assert not stage.world.socket.exists()
        assert not list(Path(stage.repo.path, ".git/worktrees").glob("*"))
    told = f"ready in {statistics.median(killer.ready_s):.2f} s, at most {max(killer.ready_s):.2f} s"
    print(f"{what}: {KILLS} times; {told}; CPU {statistics.median(killer.cpu_s):.2f} s")


def settled(killer: Killer) -> None:
    """Wait for what may go on without its daemon: the merge of an apply."""
    gone, alive = psutil.wait_procs([psutil.Process(pid) for pid in killer.jobs], timeout=HANG_S)
    assert alive == [], gone


def test_a_kill_while_the_improvement_is_applied_leaves_a_whole_checkout(stage: Stage) -> None:
    killer = Killer(stage, random.Random(f"{SEED} apply"))
    killer.start()
    stage.start()
    killer.go_on()
    improved, old = stage.repo.git("rev-parse", "improve/raise_the_number"), stage.repo.head
    mine = stage.repo.git("status", "--porcelain")
    moved = 0
    for _ in range(KILLS * 3):
        killer.ask("run.apply", {"confirm": True}, APPLY_S)
        killer.kill()
        settled(killer)
        assert not (stage.repo.path / ".git/index.lock").exists()
        assert stage.repo.git("status", "--porcelain") == mine
        assert stage.repo.head in (old, improved)
        moved += stage.repo.head == improved
        stage.repo.git("reset", "--keep", old)
        killer.start()
    with stage.world.wire() as wire:
        assert wire.call("run.apply", run=stage.run_id, confirm=True)["applied"]
    assert (stage.repo.head, stage.repo.git("status", "--porcelain")) == (improved, mine)
    assert stage.disagreements() == []
    assert killer.left == {}
    stage.leave(stage.world.started[-1])
    print(f"an apply: {KILLS * 3} times, {moved} had come to their end")


def test_a_kill_while_a_track_is_set_up_leaves_nothing_in_the_way(stage: Stage) -> None:
    killer = Killer(stage, random.Random(f"{SEED} init"))
    sandbox = {} if sandbox_works() else {"sandbox": "off"}
    flags = {
        "repo": str(stage.repo.path),
        "topic": "other",
        "objective": "raise it further",
        "benchmark": "sh bench.sh",
        "format": "number",
        "backend": "command",
        "agent_command": f"sh '{stage.world.base}/agent.sh'",
        "trust": True,
        "set": {"max_iterations": 1, **sandbox},
    }
    for _ in range(KILLS):
        stage.reset()
        killer.start()
        with stage.world.wire() as wire:
            request = {"jsonrpc": "2.0", "id": 1, "method": "run.init", "params": flags}
            wire.send(json.dumps(request).encode() + b"\n")
            killer.pause(START_S)
            killer.kill()
        killer.start()
        with stage.world.wire() as wire:
            other = wire.call("run.init", **flags)["run_id"]
            wire.call("run.start", repo=flags["repo"], topic="other")
            wire.follow(since=0, run=other).until("run_ended", status="max_iterations")
            assert wire.call("run.verify", run=other)["disagreements"] == []
            assert wire.call("run.verify", run=stage.run_id)["disagreements"] == []
        stage.leave(stage.world.started[-1])
        assert killer.left == {}
        assert stage.repo.fingerprint() == stage.before
        assert not list(stage.repo.path.glob(".sid/topics/*/pool"))
        assert stage.repo.worktrees() == []
