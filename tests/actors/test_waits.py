"""What a silent agent waits in, in words: read from real processes, and from each state that is known."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from sid_actors.backends.enclose import watch
from sid_actors.jobs.job import JobHandle, JobSpec
from sid_actors.jobs.process import run_job
from sid_actors.watching.activity import QUIET_S, ActivityLog, what_they_wait_in
from sid_actors.watching.signs import Seen
from sid_actors.watching.waits import words

LIMIT_S = 30.0


@pytest.mark.parametrize(
    ("states", "sockets", "told"),
    [
        ([], [], ""),
        (["7 S do_wait sh x", "8 S hrtimer_nanosleep sleep 600"], [], "sleeps: sleep 600"),
        (["7 S do_wait sh x"], [], "waits for a child: sh x"),
        (["7 R - python3 -m x"], [], "computes: python3 -m x"),
        (["7 T do_signal_stop sh"], [], "is stopped: sh"),
        (["7 D folio_wait dd"], [], "waits in the kernel, most often for a disk (folio_wait): dd"),
        (["7 S n_tty_read ssh"], ["ESTABLISHED 10.0.0.1:22"], "waits for a terminal: ssh"),
        (["7 S ep_poll node"], ["ESTABLISHED 10.0.0.1:443"], "waits for 10.0.0.1:443: node"),
        (["7 S ep_poll node"], ["CLOSE_WAIT 10.0.0.1:443"], "waits for events: node"),
        (["7 S wait_woken cat"], ["ESTABLISHED 10.0.0.1:1", "SYN_SENT 10.0.0.2:2"], "connects to 10.0.0.2:2: cat"),
        (["7 S futex_do_wait node"], [], "waits for a lock or a thread: node"),
        (["7 S brand_new_thing x"], [], "waits in brand_new_thing: x"),
        (["7 S - x"], [], "waits: x"),
        (["7 S - "], [], "waits"),
        (["7 S pipe_read " + "x" * 500], [], "waits for a pipe: " + "x" * 80),
    ],
)  # fmt: skip
def test_each_state_has_its_words(states: list[str], sockets: list[str], told: str) -> None:
    assert words(states, sockets) == told


async def test_real_processes_are_told_of(short_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        host, _, port = address.partition(":")
        silent = {
            "sleep 600": "sleeps: sleep 600",
            "(sleep 600) | cat": "waits for a pipe: cat",
            f"exec 3<>/dev/tcp/{host}/{port}; exec cat <&3": f"waits for {address}: cat",
            "kill -STOP $$": "is stopped: /bin/bash",
            "while :; do :; done": "computes: /bin/bash",
        }
        async with trio.open_nursery() as nursery:
            for command, told in silent.items():
                nursery.start_soon(_is_told, command, told, str(short_dir))


async def _is_told(command: str, told: str, cwd: str) -> None:
    activity = ActivityLog()

    def started(handle: JobHandle) -> None:
        watch(activity, handle)

    env = {"PATH": "/usr/bin:/bin"}
    spec = JobSpec(argv=("/bin/bash", "-c", command), cwd=cwd, env=env, deadline_s=None, sandbox=None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_job(spec, on_start=started))
        seen = ""
        with trio.move_on_after(LIMIT_S):
            while not seen.startswith(told):
                await trio.sleep(0.02)
                activity.last_seen = trio.current_time() - QUIET_S
                seen = (await what_they_wait_in({"it": activity})).get("it", "")
        nursery.cancel_scope.cancel()
    assert seen.startswith(told), (command, seen)


async def test_whoever_was_just_heard_is_not_looked_at() -> None:
    activity = ActivityLog(processes=lambda: Seen(states=("7 S do_wait sh",)))
    activity.touch()
    assert await what_they_wait_in({"it": activity}) == {}
