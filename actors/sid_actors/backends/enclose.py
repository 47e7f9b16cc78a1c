"""What back ends need of a sandbox and of a job: its environment, how it is made, watched, and ended without grace.

Back ends do not know the workbench; the composition root hands them its `Sandbox` as an `Enclose`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, Protocol

import trio

from sid_actors.jobs.job import Enclosure, JobHandle, JobResult, JobSpec, Mount
from sid_actors.jobs.process import OnOutput, run_job
from sid_actors.watching.activity import ActivityLog
from sid_actors.watching.signs import Seen
from sid_protocol.errors import WorldError

PASSED_ON = ("PATH", "HOME", "LANG", "TERM", "USER")
"""All that an agent gets of the daemon's environment, besides what `agent_env` names."""


class Enclose(Protocol):
    """Makes a sandbox; the workbench's `Sandbox` is one."""

    def __call__(
        self,
        *,
        workdir: str,
        writable: tuple[str, ...],
        readable: tuple[str, ...],
        sealed: tuple[str, ...],
        network: bool,
        home: str,
        mounts: tuple[Mount, ...] = (),
    ) -> Enclosure:
        """Return a sandbox that shows and lets write what is named, and nothing else of the user's."""
        ...


def watch(activity: ActivityLog, handle: JobHandle) -> None:
    """Let evidence see a job's processes from now on, and let them stand still with the run's agents."""
    activity.clock.enlist(handle)

    def processes() -> Seen:
        seen = handle.snapshot().processes
        states = tuple(f"{p.pid} {p.state} {p.wchan or '-'} {p.command}" for p in seen)
        sockets = tuple(f"{s.state} {s.remote}" for p in seen for s in p.sockets)
        ready_s = {thread: ready_s for p in seen for thread, ready_s in p.ready_s.items()}
        return Seen(states, sockets, sum(p.cpu_s for p in seen), ready_s, handle.ready_s())

    activity.processes = processes


async def run_watched(
    spec: JobSpec,
    activity: ActivityLog,
    hurry: trio.Event,
    on_output: OnOutput,
    on_start: Callable[[], None] = lambda: None,
) -> JobResult:
    """Run a job whose processes are evidence, and whose grace ends when `hurry` is set.

    Cancelled, a job has `grace_s` to save its work; a stop that must not wait sets `hurry` before or after.

    Raises:
        JobStartError: nothing of the command ran.
        containment.JobStuckError: some processes hang in the kernel and cannot be killed.
    """
    running: list[JobHandle] = []
    ended = trio.Event()

    def started(handle: JobHandle) -> None:
        running.append(handle)
        watch(activity, handle)
        on_start()

    result: JobResult | WorldError
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut_grace, running, hurry, ended)
        try:
            result = await run_job(spec, on_output=on_output, on_start=started)
        except WorldError as error:
            result = error  # raised outside of the nursery, so that it stays a single exception
        finally:
            ended.set()
    if isinstance(result, WorldError):
        raise result
    return result


async def _cut_grace(running: list[JobHandle], hurry: trio.Event, ended: trio.Event) -> None:
    """Once the job is cancelled and there is no time, kill its first process; the rest follows from that."""
    try:
        await ended.wait()
    except trio.Cancelled:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:

                async def first(wait: Callable[[], Any]) -> None:
                    await wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(first, hurry.wait)
                nursery.start_soon(first, ended.wait)
        for handle in running:
            if handle.pid in {process.pid for process in handle.snapshot().processes}:
                os.kill(handle.pid, signal.SIGKILL)
        raise
