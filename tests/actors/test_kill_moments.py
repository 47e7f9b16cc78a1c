"""Sandboxes that are killed, with their daemon or by it, in the milliseconds of their set-up; and writers that come late.

`SID_KILLS` says how often; each is a real job in a real sandbox, on the machine as it is and on a busy one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio

from sid_actors.jobs import containment, process
from sid_actors.jobs.process import run_job
from tests.actors.job_cases import make_spec, need_sandbox, strays
from tests.conftest import Spawn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("real_process")]
KILLS = int(os.environ.get("SID_KILLS", "100"))
SET_UP_S = 0.012  # a sandbox is ready within it on an idle machine
SETTLED_S = 10.0
AGENT = "echo ran >> ran; setsid sleep 600 & (setsid sleep 600 &); sleep 600"

# Starts one job a line, each in a process of its own, which says so right before; whoever asked kills it.
DAEMONS = """
import os, sys, trio
from pathlib import Path
from sid_actors.jobs import process
from tests.actors.job_cases import make_spec
process._set_up = process._SetUp(sys.argv[2])
spec = make_spec(Path(sys.argv[1]), sys.argv[3], box="sandboxed")
print("ready", flush=True)
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        print(os.getpid(), flush=True)
        trio.run(process.run_job, spec)
        os._exit(0)
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""


@pytest.fixture(params=["as it is", "busy"])
def machine(request: pytest.FixtureRequest, real_process: Spawn) -> Iterator[str]:
    """A machine as it is, and one whose cores are taken by others."""
    cores = os.cpu_count() or 1 if request.param == "busy" else 0
    load = [real_process(["yes"], stdout=subprocess.DEVNULL, cwd="/") for _ in range(cores)]
    yield request.param
    for one in load:
        one.kill()


def test_a_daemon_killed_while_it_makes_a_sandbox_leaves_no_job(
    short_dir: Path, real_process: Spawn, machine: str
) -> None:
    need_sandbox()
    prefix, dice = f"sid-test-{short_dir.parent.name}-{short_dir.name}", random.Random(7)
    root = Path(__file__).parent.parent.parent
    daemons = real_process(
        [sys.executable, "-c", DAEMONS, str(short_dir), prefix, AGENT],
        cwd="/",
        env={**os.environ, "PYTHONPATH": ":".join([str(root), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert daemons.stdin
    assert daemons.stdout
    assert daemons.stdout.readline() == b"ready\n"
    for _ in range(KILLS):
        daemons.stdin.write(b"\n")
        pid = int(daemons.stdout.readline())
        time.sleep(dice.uniform(0, SET_UP_S))
        os.kill(pid, signal.SIGKILL)
        assert daemons.stdout.readline() == b"gone\n"
    with contextlib.suppress(psutil.Error):
        psutil.wait_procs(map(psutil.Process, strays(short_dir, prefix)), timeout=SETTLED_S)
    left = strays(short_dir, prefix)
    swept = containment.sweep_leftovers(prefix)
    print(f"{machine}: {KILLS} daemons killed, {len(left)} left until the next start, {len(swept)} swept")
    assert set(left.values()) <= {"bwrap"}, "a job went on without its daemon"
    # Bubblewrap can be killed by its own death signal right before it lets its init go on; that is all.
    assert len(left) <= KILLS // 10
    assert strays(short_dir, prefix) == {}


async def test_a_job_cancelled_while_its_sandbox_is_made_leaves_nothing(
    short_dir: Path, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_sandbox()
    prefix, dice = f"sid-test-{short_dir.parent.name}-{short_dir.name}", random.Random(11)
    monkeypatch.setattr(process, "_set_up", process._SetUp(prefix))
    left: dict[int, str] = {}
    for _ in range(KILLS):
        with trio.move_on_after(dice.uniform(0, SET_UP_S)):
            await run_job(make_spec(short_dir, AGENT, box="sandboxed"))
        left |= strays(short_dir, prefix)
    print(f"{machine}: {KILLS} jobs cancelled, {len(left)} left")
    assert left == {}


async def test_nobody_writes_after_a_job_is_over(
    short_dir: Path, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_sandbox()
    prefix = f"sid-test-{short_dir.parent.name}-{short_dir.name}"
    monkeypatch.setattr(process, "_set_up", process._SetUp(prefix))
    writer = "(env -i setsid sh -c 'while :; do echo late >> late$0; done' $i &)"
    late = 0

    def sizes() -> dict[str, int]:
        return {file.name: file.stat().st_size for file in short_dir.glob("late*")}

    for number in range(KILLS // 4):
        script = f"rm -f late*; for i in 1 2 3 4; do {writer}; done; sleep 0.0{number % 10}"
        spec = make_spec(short_dir, script, box="sandboxed")
        done = await run_job(spec)
        before = sizes()
        assert done.exit_code == 0
        assert strays(short_dir, prefix) == {}
        await trio.sleep(0.05)
        late += before != sizes()
    print(f"{machine}: {KILLS // 4} jobs of four writers, {late} wrote late")
    assert late == 0
