"""The socket under load and abuse, with the real daemon: it answers, its memory stays bounded, a run is not slowed."""

from __future__ import annotations

import json
import random
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.harness import Wire
from tests.faults.harness import Stage

FOLLOWERS = Path(__file__).with_name("followers.py")
# Of each of two executors, for five seconds: together 2,000 records a second.
CHATTER = """
import sys, time
at = time.monotonic()
for number in range(0, 5000, 20):
    sys.stderr.write("".join(f"line {number + n} of what an agent says while it works on its plan\\n" for n in range(20)))
    sys.stderr.flush()
    at += 0.02
    time.sleep(max(0.0, at - time.monotonic()))
"""
SPARE_MB = 60.0
"""What a flood may cost beyond what the daemon weighs at rest."""
METHODS = (
    "daemon.info",
    "run.list",
    "run.status",
    "run.history",
    "log.subscribe",
    "rpc.discover",
    "run.nonsense",
    "",
)


def weight_mb(daemon: subprocess.Popen[Any]) -> float:
    weight: float = psutil.Process(daemon.pid).memory_info().rss / 2**20
    return weight


def junk(dice: random.Random) -> bytes:
    """Return one line that a careless or hostile client might send."""
    message: dict[str, Any] = {
        "jsonrpc": dice.choice(("2.0", "1.0", 2, None)),
        "id": dice.choice((1, "x", None, 1.5, [], {}, -(2**70))),
        "method": dice.choice((*METHODS, 3, None)),
        "params": dice.choice(
            ({}, [], {"run": "x" * dice.randrange(400)}, {"run": None}, 7, {"since": -1}, None)
        ),
    }
    whole = json.dumps(message if dice.random() < 0.8 else [message] * dice.randrange(4)).encode()
    match dice.randrange(6):
        case 0:
            whole = whole[: dice.randrange(len(whole))]
        case 1:
            at = dice.randrange(len(whole))
            whole = whole[:at] + dice.randbytes(dice.randrange(1, 9)).replace(b"\n", b" ") + whole[at:]
        case 2:
            whole = b"[" * dice.randrange(1, 3000)
        case _:
            pass
    return whole + b"\n"


def flood(stage: Stage, count: int) -> None:
    dice = random.Random(count)
    sent = 0
    while sent < count:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(str(stage.world.socket))
            burst = dice.randrange(1, 40)
            for _ in range(burst):
                client.sendall(junk(dice))
            if dice.random() < 0.3:
                client.sendall(b'{"jsonrpc": "2.0", "id"')  # half a line, then gone
            else:
                client.sendall(b'{"jsonrpc":"2.0","id":"last","method":"daemon.info"}\n')
                replies = client.makefile("rb")
                answers = (json.loads(line) for line in replies)
                assert any(
                    isinstance(one, dict) and one.get("id") == "last" and "result" in one for one in answers
                )
                replies.close()
        sent += burst


@pytest.mark.parametrize(
    "count", [5_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_junk_is_answered_and_forgotten(stage: Stage, count: int) -> None:
    daemon = stage.world.daemon()
    with stage.world.wire() as wire:
        wire.call("rpc.discover")
        before = weight_mb(daemon)
        flood(stage, count)
        assert wire.call("daemon.info")["pid"] == daemon.pid
    assert weight_mb(daemon) < before + SPARE_MB
    stage.leave(daemon)


@pytest.mark.slow
def test_a_thousand_connections_and_readers_that_do_not_read(stage: Stage) -> None:
    (stage.world.base / "sid.toml").write_text("connections = 1024\n")
    daemon = stage.world.daemon()
    with stage.world.wire() as wire:
        wire.call("rpc.discover")  # at rest all is loaded
    before = weight_mb(daemon)
    with ExitStack() as opened:
        deaf = [opened.enter_context(Wire(stage.world.socket)) for _ in range(20)]
        for wire in deaf:
            wire.send(b'{"jsonrpc":"2.0","id":1,"method":"log.subscribe","params":{"since":0}}\n')
        for wire in deaf[:4]:
            wire.socket.settimeout(0.2)
            for _ in range(400):  # answers that nobody reads: 400 times the whole document
                try:
                    wire.send(b'{"jsonrpc":"2.0","id":2,"method":"rpc.discover"}\n')
                except OSError:
                    break
        for _ in range(95):
            for _ in range(10):
                last = opened.enter_context(Wire(stage.world.socket))
            assert last.call("daemon.info")["pid"] == daemon.pid
        stage.start()
        with stage.world.wire() as follower:
            follower.follow(since=0, run=stage.run_id)
            follower.until("round_started")
            assert follower.call("daemon.info")["runs"] == 1
            follower.until("run_ended", status="max_iterations")
        assert weight_mb(daemon) < before + SPARE_MB
    (stage.world.base / "sid.toml").unlink()
    stage.check(daemon)


@pytest.mark.slow
def test_two_hundred_followers_of_a_run_that_logs_two_thousand_records_a_second(stage: Stage) -> None:
    agent = stage.world.base / "agent.sh"
    talks = f"executor) python3 -c {shlex.quote(CHATTER)};"
    agent.write_text(agent.read_text().replace("executor) ", f"{talks} "))
    daemon = stage.world.daemon()
    with stage.world.wire() as wire:
        wire.call("rpc.discover")  # at rest all is loaded
    before = weight_mb(daemon)
    count, deaf = 200, 10
    followers = stage.world.spawn(
        [sys.executable, FOLLOWERS, str(stage.world.socket), str(count), str(deaf)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert followers.stdout is not None
    assert followers.stdin is not None
    assert followers.stdout.readline() == "ready\n"
    stage.start()
    with stage.world.wire() as wire:
        end = wire.follow(since=0, run=stage.run_id).until("run_ended", status="max_iterations")["cursor"]
    assert weight_mb(daemon) < before + SPARE_MB
    followers.stdin.write(f"{end}\n")
    told = json.loads(followers.communicate()[0])

    assert end > 2 * 2 * 5000, "fewer records than the agents told lines"
    assert len(told) == count
    for one in told:  # how much a quick one loses is a matter of who else wants the processor
        assert one["unexplained"] == 0, "missing, doubled or out of order, and not told"
        assert one["got"] + one["lost"] == one["last"] >= end
    assert all(one["lost"] for one in told[:deaf]), "who does not read loses, or the daemon has kept it all"
    stage.check(daemon)
