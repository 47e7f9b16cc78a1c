"""What systemd hears, over real datagram sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trio

from sid_daemon.notify import Notifier


@pytest.fixture
def ear(short_dir: Path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(short_dir / "notify"))
        ear.settimeout(0)
        yield ear


def heard(ear: socket.socket) -> list[str]:
    lines = []
    while True:
        try:
            lines.append(ear.recv(4096).decode())
        except BlockingIOError:
            return lines


def test_ready_status_and_stopping(ear: socket.socket, short_dir: Path) -> None:
    env = {"NOTIFY_SOCKET": str(short_dir / "notify"), "PATH": "/bin"}
    notifier = Notifier.take(env, os.getpid())
    assert env == {"PATH": "/bin"}
    assert notifier.ready("2 runs")
    assert notifier.status("round 3\nof 50")
    assert notifier.stopping("bye")
    notifier.close()

    assert heard(ear) == ["READY=1\nSTATUS=2 runs", "STATUS=round 3 of 50", "STOPPING=1\nSTATUS=bye"]


def test_the_abstract_namespace() -> None:
    name = f"sid-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(f"\0{name}")
        ear.settimeout(0)
        notifier = Notifier.take({"NOTIFY_SOCKET": f"@{name}"}, 1)
        assert notifier.send("READY=1")
        notifier.close()
        assert heard(ear) == ["READY=1"]


@pytest.mark.parametrize("address", ["", "/no/such/socket"])
def test_without_a_listener_nothing_fails(address: str) -> None:
    notifier = Notifier(address)
    assert not notifier.ready("up")
    notifier.close()


def test_a_full_queue_never_blocks(ear: socket.socket, short_dir: Path) -> None:
    notifier = Notifier(str(short_dir / "notify"))
    sent = [notifier.send("WATCHDOG=1") for _ in range(10_000)]
    notifier.close()
    assert sent[0]
    assert not sent[-1]


async def test_the_watchdog_pings_twice_an_interval(
    ear: socket.socket, short_dir: Path, autojump_clock: trio.testing.MockClock
) -> None:
    env = {"NOTIFY_SOCKET": str(short_dir / "notify"), "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "77"}
    notifier = Notifier.take(env, 77)
    with trio.move_on_after(21):
        await notifier.watchdog()
    notifier.close()

    assert heard(ear) == ["WATCHDOG=1"] * 5
    assert "WATCHDOG_USEC" not in env


@pytest.mark.parametrize("env", [{}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}])
async def test_no_watchdog_where_none_is_asked_for(
    ear: socket.socket, short_dir: Path, env: dict[str, str]
) -> None:
    notifier = Notifier.take({**env, "NOTIFY_SOCKET": str(short_dir / "notify")}, 77)
    await notifier.watchdog()
    notifier.close()
    assert heard(ear) == []
