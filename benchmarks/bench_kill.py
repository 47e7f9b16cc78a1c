"""How long a tree of processes takes to die: SIGKILL to the last process dead, and from the cancelling to the next line of code.

The tree is an agent's that does not want to end: sessions of their own, double forks, SIGTERM ignored. It is run and cancelled by
`sid_actors.jobs.process.run_job`, as the daemon does it, in a sandbox and without one. A thread of its own watches all of its processes.
The moment of SIGKILL is that of the first such signal. With `--busy` each core has another process to do.

    python benchmarks/bench_kill.py [--times 100] [--processes 50] [--busy]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import trio

from sid_actors.jobs import procfs
from sid_actors.jobs.job import JobHandle, JobSpec
from sid_actors.jobs.marks import is_named
from sid_actors.jobs.process import run_job
from sid_actors.workbench.sandbox.bwrap import Sandbox

TREE = """
i=0
while [ $i -lt {quarter} ]; do
  setsid sleep 600 &
  (setsid sleep 600 &)
  (trap '' TERM HUP INT; sleep 600; :) &
  i=$((i + 1))
done
echo up
wait
sleep 600
"""
PATH = "/usr/local/bin:/usr/bin:/bin"


class Watch(threading.Thread):
    """Waits until all processes are dead, and notes when the last one was."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__()
        self.pidfds = [os.pidfd_open(pid) for pid in pids]
        self.ended = 0.0

    def run(self) -> None:
        """Wait."""
        poll = select.poll()
        for fd in self.pidfds:
            poll.register(fd, select.POLLIN)
        left = len(self.pidfds)
        while left:
            for fd, _ in poll.poll():
                poll.unregister(fd)
                left -= 1
        self.ended = time.perf_counter()
        for fd in self.pidfds:
            os.close(fd)


def noting(told: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sender of signals that notes when SIGKILL was sent."""

    def send(to: int, number: int, *more: Any) -> Any:
        if number == signal.SIGKILL:
            told.append(time.perf_counter())
        return function(to, number, *more)

    return send


async def one(folder: str, processes: int, *, sandboxed: bool) -> tuple[float, float, int]:
    """Start a tree and cancel it; returns SIGKILL to dead and cancel to return in seconds, and how many there were."""
    box = Sandbox(
        workdir=folder, writable=(folder,), readable=(), sealed=(), network=False, home="/home/bench"
    )
    argv = ("/bin/sh", "-c", TREE.format(quarter=-(-processes // 4)))
    spec = JobSpec(
        argv=argv, cwd=folder, env={"PATH": PATH}, deadline_s=None, sandbox=box if sandboxed else None
    )
    handles: list[JobHandle] = []
    up = trio.Event()
    killed: list[float] = []
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await run_job(spec, on_start=handles.append, on_output=lambda *_: up.set())

        nursery.start_soon(run)
        await up.wait()
        pids: list[int] = []
        while len(pids) < processes:  # noqa: ASYNC110 -- a tree tells nobody that it stands
            await trio.sleep(0.01)
            pids = [one.pid for one in handles[0].snapshot().processes]
        watch = Watch(pids)
        watch.start()
        senders = {(os, "kill"): os.kill, (signal, "pidfd_send_signal"): signal.pidfd_send_signal}
        for (module, name), function in senders.items():
            setattr(module, name, noting(killed, function))
        cancelled = time.perf_counter()
        nursery.cancel_scope.cancel()
    returned = time.perf_counter()
    for (module, name), function in senders.items():
        setattr(module, name, function)
    watch.join()
    return watch.ended - killed[0], returned - cancelled, len(pids)


def survivors() -> int:
    """Return how many processes bear the mark of a job of this benchmark."""
    prefix = f"sid-{os.getpid()}"
    return sum(is_named(pid, prefix) for pid in procfs.process_ids() - {os.getpid()})  # the daemon's own look


@contextlib.contextmanager
def load(*, busy: bool) -> Iterator[None]:
    """Keep every core busy, if that is wanted."""
    cores = os.cpu_count() or 1
    others = [subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) for _ in range(cores if busy else 0)]
    yield
    for other in others:
        other.kill()
        other.wait()


def at(values: list[float], share: float) -> float:
    """Return a quantile of some values in milliseconds."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="sid-kill-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    try:
        with load(busy=options.busy):
            for name, sandboxed in (("sandboxed", True), ("plain", False)):
                took = [
                    trio.run(partial(one, folder, options.processes, sandboxed=sandboxed))
                    for _ in range(options.times)
                ]
                dead, back = [kill for kill, _, _ in took], [whole for _, whole, _ in took]
                print(
                    f"{name}, {took[0][2]} processes, {len(took)} times, load {os.getloadavg()[0]:.1f}: SIGKILL to last dead "
                    f"p50 {at(dead, 0.5):.1f} ms, p99 {at(dead, 0.99):.1f} ms; cancelled to over "
                    f"p50 {at(back, 0.5):.1f} ms, p99 {at(back, 0.99):.1f} ms; left {survivors()}"
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
