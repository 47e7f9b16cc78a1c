"""Shapes of process trees, each under each ending of a run: whoever is still alive afterwards is a survivor, by pid."""

from __future__ import annotations

import contextlib
import hashlib
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.attacks.target import FILES, seat, set_up
from tests.conftest import MakeRepo
from tests.e2e.conftest import world
from tests.e2e.harness import World, sandbox_works
from tests.repos import Repo

__all__ = ["world"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

# Each is known by what it sleeps; the racing one ends by itself, so that no defect can fill the machine.
SHAPES = {
    "child": "sleep 987601 & ",
    "fork": "(sleep 987602 & wait) & ",
    "setsid": "setsid sleep 987603 & ",
    "double fork": "(setsid sh -c 'sleep 987604 & sleep 987604' &); ",
    "deaf": "(trap '' TERM HUP INT; sleep 987605 & while :; do sleep 987605; done) & ",
    "stopped": "sleep 987606 & kill -STOP $!; ",
    "scrubbed": "(env -i setsid sleep 987607 &); ",
    "disguised": "(prlimit --locks=5:5 env -i setsid sleep 987609 &); ",
    "racing": "printf '%s' 'n=${1:-0}; [ $n -gt 400 ] && exit; setsid sh /tmp/race $((n+1)) & sleep 0.05; exit' > /tmp/race;"
    " for i in $(seq 45); do setsid sleep 987608 & done; for i in 1 2 3 4 5; do sh /tmp/race 0 & done; ",
}
UP = "echo stands >&2; wait; exec sleep 987600"
ENDINGS = ("deadline", "stop", "stop --now", "stop while paused", "SIGTERM", "SIGINT", "SIGKILL and start")


def survivors() -> list[str]:
    """Everything alive that an attack of this file started, on the whole machine."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            mine = any(word.startswith("98760") for word in words) or "/tmp/race" in words
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(words)[:80]}")
    return found


def in_cgroups(world: World) -> list[str]:
    """Everything that lives in a cgroup of a job, where the daemon has any; its own deleting and drawing aside."""
    home = hashlib.sha256(str(world.state).encode()).hexdigest()[:12]
    found = []
    for door in Path("/sys/fs/cgroup").glob(f"**/{home}/*/cgroup.procs"):
        pids: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            pids = door.read_text().split()
        for pid in pids:
            # One may have gone; the others are looked at all the same.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                ours = re.match(r"(.* sid-job )?(rm -rf -- |\S+ -P -m sid_daemon)", command, re.DOTALL)
                # Without memory it has ended, and has no command line any more by which to tell whose it was.
                if not ours and "VmSize:" in Path(f"/proc/{pid}/status").read_text():
                    found.append(f"{door.parent.name}: {pid} {command}")
    return found


def end(world: World, target: Repo, ending: str) -> None:
    """Bring the run to its end, or its daemon, in one of the ways there are."""
    if ending == "deadline":
        with world.wire() as wire:
            wire.follow().until("round_recorded")
    elif ending.startswith("stop"):
        if ending.endswith("paused"):
            world.sictl("pause", target.path)
        world.sictl("stop", target.path, *(["--now"] if ending.endswith("--now") else []))
    elif ending in ("SIGTERM", "SIGINT"):
        world.kill(by=signal.Signals[ending])
    else:
        world.kill()
        world.daemon()
        world.sictl("stop", target.path, code=None)  # returns when it has tidied up, too


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandboxed", "plain"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_no_shape_survives(repo: MakeRepo, world: World, ending: str, sandbox: bool) -> None:
    if sandbox and not sandbox_works():
        pytest.skip("no sandbox here")
    assert survivors() == [], "left by another test"
    target = repo(FILES)
    attacks = {name: f"# heard\n{shape}{UP}" for name, shape in SHAPES.items()}
    agent = world.agent()
    seat(agent, attacks)
    limit_s = "20" if ending == "deadline" else "600"  # all must stand by then, on a busy machine, too
    more = (
        "--set",
        f"deadlines.executor={limit_s}",
        "--set",
        "kill_threshold=100",
        "--set",
        "max_parallel_executors=9",
    )
    set_up(world, target, agent, len(attacks), *more, sandbox=sandbox)
    world.sictl("start", target.path, "--rounds", "1")
    with world.wire() as wire:
        wire.follow()
        for _ in attacks:
            wire.until("agent_stderr", line="stands")
    lived = in_cgroups(world)
    end(world, target, ending)

    assert survivors() == []
    assert in_cgroups(world) == []
    print(f"{ending}: {len(attacks)} trees, {len(lived)} of them in cgroups, no survivor")
    if ending == "deadline":
        shown = world.sictl("show", target.path, "1", "--json").json["round"]
        kills = [result["force_kill"] for result in shown["results"]]
        assert all(kill["processes_killed"] >= 2 for kill in kills)
    Path("/tmp/race").unlink(missing_ok=True)
