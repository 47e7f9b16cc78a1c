"""A job: a command in a process tree of its own, which has ended, wholly, when `run_job` returns.

Agents, benchmarks, guards, set-up commands, profilers and git's command line all run through `run_job`; nothing
else of sid starts a process. It decides nothing about what a job's end means. Its rules are containment's: the
end of a job is the end of all its processes, not end of file and not the exit of the first; its output is
always read, with a cap; it is reaped before the scope returns. `launch` starts it, `containment` ends it.

What holds when the daemon itself is killed: a sandbox ends with it; one in the middle of its set-up may leave
an idle bubblewrap, never a job. Without a sandbox only the job's first process is tied to the daemon's life,
and only where `setpriv` is installed. What is left is found by its marks when the next daemon starts
(`prepare_jobs`), or ended by systemd with the unit.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import trio

from sid_actors.jobs import cgroup, containment, overload
from sid_actors.jobs.job import JobHandle, JobResult, JobSpec, JobStartError, OverLimit
from sid_actors.jobs.launch import Launch
from sid_actors.jobs.marks import Mark
from sid_actors.jobs.output import Capture

OnOutput = Callable[[str, bytes], None]
T = TypeVar("T")

START_LIMIT_S = 60.0  # a sandbox is ready in milliseconds; a machine that swaps gets a minute
_PIECE_BYTES = 16 << 10  # read at a time: who takes it may have some hundred lines to read, on the event loop
_PIPE_LIMIT_BYTES = 1 << 20  # the most that a pipe holds by default (fs.pipe-max-size)


@dataclass(frozen=True, slots=True)
class _SetUp:
    """What all jobs of this process share: the beginning of their ids, and where their cgroups are made."""

    prefix: str
    home: cgroup.CgroupHome | None = None


_set_up = _SetUp(f"sid-{os.getpid()}")


def prepare_jobs(prefix: str) -> list[int]:
    """Name this daemon's jobs, claim a cgroup where one is delegated, end what a dead predecessor left; blocks.

    Called once, in a thread, before the first job. Without it jobs run all the same, without cgroups.

    Args:
        prefix: The same at each start of one daemon and unlike any other's (such as a digest of its state
            folder); not empty.

    Returns:
        The ids of the processes that were left over and killed.

    Raises:
        containment.JobStuckError: Some of them do not end.
    """
    global _set_up  # noqa: PLW0603 -- one for the process, as its cgroup is
    swept = containment.sweep_leftovers(prefix)
    _set_up = _SetUp(prefix, cgroup.claim(prefix, end=containment.end_cgroup))
    return swept


def release_jobs() -> None:
    """Give back what `prepare_jobs` claimed; for the daemon's end, when no job runs any more."""
    global _set_up  # noqa: PLW0603 -- as above
    if _set_up.home:
        _set_up.home.remove()
    _set_up = _SetUp(_set_up.prefix)


async def run_job(
    spec: JobSpec,
    *,
    on_output: OnOutput | None = None,
    on_start: Callable[[JobHandle], None] | None = None,
) -> JobResult:
    """Run a command to its end, and come back when no process of it is left.

    Cancellation ends it as the deadline does: SIGTERM and `grace_s` if that is not 0, then SIGKILL to all, and
    only then `trio.Cancelled` goes on. What it prints is read all the time, however much that is.

    Args:
        spec: What to run.
        on_output: Called with "stdout" or "stderr" and each piece that was read; must not block.
        on_start: Called once, right after the job was let go, with a handle to watch it by.

    Returns:
        How it ended and what it printed.

    Raises:
        JobStartError: Nothing of the command ran. A command that is not found is none: that is exit code 127.
        containment.JobStuckError: Some processes hang in the kernel and cannot be killed.
    """
    with contextlib.ExitStack() as held:
        job = _Job(spec, held)
        try:
            await job.start()
            with _lone_exception():
                async with trio.open_nursery() as io:
                    try:
                        io.start_soon(job.drain, "stderr", on_output)
                        if await job.arm():
                            io.start_soon(job.drain, "stdout", on_output)
                            io.start_soon(job.feed)
                            io.start_soon(job.oversee)
                            if on_start:
                                on_start(job.handle())
                            await job.wait()
                    finally:
                        await job.end()  # noqa: ASYNC102 - it shields what must be done, and bounds it itself
        finally:
            await job.clean_up()  # noqa: ASYNC102 - as above
        return job.result()


@contextlib.contextmanager
def _lone_exception() -> Iterator[None]:
    """Let an exception out of its group where it is the only one, as if no nursery had been there."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None  # noqa: ASYNC123 - it is as if no group had been there
        raise


class _Job:
    """One run of a job: its processes, its pipes, and what is known so far."""

    def __init__(self, spec: JobSpec, held: contextlib.ExitStack) -> None:
        self._spec = spec
        # By another name the next daemon's sweep passes it by.
        mark = Mark.fresh(f"{_set_up.prefix}-outlives" if spec.outlives else _set_up.prefix)
        held.enter_context(containment.adopt_orphans())
        self._mark = mark
        self._room: cgroup.JobCgroup | None = None
        self._launch = Launch(spec, mark, held)
        self._captured = {name: Capture(spec.limits.output_mb << 20) for name in ("stdout", "stderr")}
        names = ("stdin", "stdout", "stderr", "overseer")
        self._io = {name: trio.CancelScope(shield=True) for name in names}
        self._over: OverLimit | None = None
        self._handle: JobHandle | None = None
        self._timed_out = False
        self._limit = trio.CancelScope()
        self._started_at = self._ended_at = math.nan
        self._killed = 0
        self._cpu_s = 0.0

    async def start(self) -> None:
        """Start its first process, which waits to be let go."""
        await self._launch.start(self._make_room)
        self._tree = containment.PlainTree(self._launch.pid, self._mark, self._room)

    def _make_room(self) -> str | None:
        """Make its cgroup, where there are any, and return its door; blocks: the kernel makes one at a time."""
        home, limits = None if self._spec.outlives else _set_up.home, self._spec.limits
        if home is None:
            return None
        try:
            self._room = home.make(self._mark.job_id, memory_mb=limits.memory_mb, processes=limits.processes)
        except OSError as error:
            raise JobStartError(f"cannot make a cgroup for {self._spec.argv[0]}: {error}") from error
        return self._room.door

    async def clean_up(self) -> None:
        """Take its cgroup away, in which nobody lives any more."""
        if self._room:
            with trio.CancelScope(shield=True):
                await _in_thread(self._room.remove)

    async def arm(self) -> bool:
        """Wait until the sandbox is ready, set the limits, let the job go; not to be cancelled, but short."""
        running = False
        enforced = _set_up.home.controllers if _set_up.home else ()
        with trio.CancelScope(shield=True), trio.move_on_after(START_LIMIT_S):
            running = await self._launch.arm(enforced)
        if running:
            self._started_at = trio.current_time()
            if self._spec.deadline_s is not None:
                self._limit.deadline = self._started_at + self._spec.deadline_s
        return running

    def handle(self) -> JobHandle:
        """Return the handle for those who watch; only for a job that runs."""
        self._handle = JobHandle(
            self._launch.init or self._launch.pid, self._members(), self._limit, self._room
        )
        return self._handle

    async def wait(self) -> None:
        """Wait for the end of the first process, the deadline, or a limit that it passes."""
        with self._limit:
            await self._first_ended()
        self._timed_out = self._limit.cancelled_caught and self._over is None

    async def oversee(self) -> None:
        """End it once it uses more than it may."""
        with self._io["overseer"]:
            enforced = _set_up.home.controllers if _set_up.home else ()
            self._over = await overload.passed(self._spec, self._members(), enforced)
            self._limit.cancel()

    async def end(self) -> None:
        """See to it that no process is left, by whatever it takes, whoever is cancelled; then reap."""
        try:
            with trio.CancelScope(shield=True):
                if (
                    self._over is None
                    and self._spec.grace_s > 0
                    and self._has_started
                    and not self._has_ended()
                ):
                    await self._ask()
                await self._kill()
                self._reap()
        finally:
            for scope in self._io.values():  # nobody is alive who could still write
                scope.cancel()

    async def _ask(self) -> None:
        members = await _in_thread(self._members())
        # A stopped process hears SIGTERM only when it goes on.
        containment.send_signal(members, signal.SIGTERM, signal.SIGCONT)
        with trio.move_on_after(self._spec.grace_s):
            await self._first_ended()

    async def _kill(self) -> None:
        if self._launch.init_pidfd is None:
            self._killed = len(await _in_thread(self._tree.end))
        elif not self._has_ended():
            self._killed = len(await _in_thread(self._members()))
            # The init, never the outer process: killed during its set-up, that leaves the rest behind.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._launch.init_pidfd, signal.SIGKILL)
        with trio.move_on_after(containment.KILL_LIMIT_S) as scope:
            await self._first_ended()
        if scope.cancelled_caught:
            raise containment.JobStuckError(self._members()())

    def _reap(self) -> None:
        _, status, usage = os.wait4(self._launch.pid, 0)
        self._exit_code = os.waitstatus_to_exitcode(status)
        self._cpu_s = usage.ru_utime + usage.ru_stime + self._tree.cpu_s
        if self._launch.init is not None:
            # The outer process leaves its init to us, which has the CPU time of all in there, unless it reaped it.
            self._cpu_s += containment.reap(self._launch.init) or 0.0
        if self._handle:
            self._handle.close()

    def _members(self) -> containment.Members:
        if self._launch.init is None:
            return self._tree.members
        return containment.SandboxTree(self._launch.init).members

    def _pidfds(self) -> list[int]:
        fds = (self._launch.pidfd, self._launch.init_pidfd)
        return [fd for fd in fds if fd is not None]

    @property
    def _has_started(self) -> bool:
        return not math.isnan(self._started_at)

    def _has_ended(self) -> bool:
        poll = select.poll()
        for fd in self._pidfds():
            poll.register(fd, select.POLLIN)
        return len(poll.poll(0)) == len(self._pidfds())

    async def _first_ended(self) -> None:
        """Wait for the first process; in a sandbox for its init too, after which nobody is alive in there."""
        for fd in self._pidfds():
            await trio.lowlevel.wait_readable(fd)
        if math.isnan(self._ended_at):
            self._ended_at = trio.current_time()

    async def feed(self) -> None:
        """Write the job's standard input, as far as anybody reads it, and close it."""
        stream = self._launch.streams["stdin"]
        with self._io["stdin"], contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(self._spec.stdin)
        stream.close()

    async def drain(self, name: str, on_output: OnOutput | None) -> None:
        """Read a stream until its end, or until nobody of the job is alive and what is in the pipe was read."""
        stream = self._launch.streams[name]

        def take(piece: bytes) -> bool:
            self._captured[name].add(piece)
            if piece and on_output:
                on_output(name, piece)
            return bool(piece)

        with self._io[name]:
            while take(await stream.receive_some(_PIECE_BYTES)):
                pass
            return
        # Someone outside of the job may hold the pipe, so no end of file need come.
        with contextlib.suppress(BlockingIOError):
            for _ in range(_PIPE_LIMIT_BYTES // select.PIPE_BUF):
                if not take(os.read(stream.fileno(), _PIPE_LIMIT_BYTES)):
                    break

    def result(self) -> JobResult:
        """Return how it ended.

        Raises:
            JobStartError: It never started.
        """
        stdout, stderr = (self._captured[name].freeze() for name in ("stdout", "stderr"))
        command = self._spec.argv[0]
        if not self._has_started:
            said = stderr.last_line() or "its first process did not become ready"
            hint = "try the sandbox: bwrap --ro-bind / / true" if self._spec.sandbox else ""
            raise JobStartError(f"cannot start {command}: {said}", hint=hint)
        code = self._exit_code
        if self._spec.sandbox and code - 128 in set(signal.Signals):
            code = 128 - code
        return JobResult(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            timed_out=self._timed_out,
            stdout=stdout,
            stderr=stderr,
            wall_s=self._ended_at - self._started_at,
            cpu_s=self._cpu_s,
            processes_killed=self._killed,
            over=self._over if self._limit.cancelled_caught else None,
        )


async def _in_thread(blocking: Callable[[], T]) -> T:
    """Run it in a thread of its own: a job must end even when all the usual threads are taken."""
    return await trio.to_thread.run_sync(blocking, limiter=trio.CapacityLimiter(1))
