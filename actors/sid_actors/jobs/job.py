"""The words for a job: what is to be run, what it may use, how it ended, and a handle to watch it by.

Plain data for `process.run_job` and all that call it; nothing here starts or ends a process.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import trio

from sid_actors.jobs import procfs
from sid_actors.jobs.cgroup import JobCgroup
from sid_actors.jobs.containment import Members, send_signal
from sid_actors.jobs.output import Captured
from sid_protocol.errors import WorldError

_LOOKS = 50  # what still forks then is let be: it must not keep a measurement waiting


class JobStartError(WorldError):
    """A job could not be started: no such folder, no sandbox, no process to be had."""


class Enclosure(Protocol):
    """What `process` needs to know of a sandbox: how it is started (`workbench.sandbox.Sandbox` is one)."""

    def bwrap_argv(
        self, env: Mapping[str, str], *, info_fd: int | None, scratch_mb: int | None = None
    ) -> list[str]:
        """Return the command line that makes it, up to the job's own command."""
        ...


@dataclass(frozen=True, slots=True)
class Mount:
    """One path of a sandbox; `source` is the host's path that appears there, by default the same."""

    path: str
    writable: bool = False
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What one job may use; None is no limit. MiB where the name ends in `_mb`.

    `output_mb` is how much of each of its two streams is kept, half from the start and half from the end;
    `scratch_mb` how much each private folder of a sandbox may hold.
    """

    memory_mb: int | None = None
    processes: int | None = 512
    open_files: int | None = 4096
    file_mb: int | None = 2048
    output_mb: int = 64
    scratch_mb: int | None = None


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The limit that a job was ended for: its key under `limits`, and one line."""

    name: Literal["processes", "memory_mb", "worktree_mb"]
    why: str


class Room(Protocol):
    """How much a folder may grow while jobs work in it (`overload.DiskRoom` is one)."""

    @property
    def limit_mb(self) -> int:
        """What may be added to it, in MiB."""
        ...

    def grown_mb(self, members: Members) -> int:
        """Return by how many MiB it has grown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One command and all that surrounds it.

    Args:
        argv: The command; its first word is looked up on the PATH of `env`.
        cwd: The working directory; with a sandbox, that one's `workdir` counts.
        env: The whole environment. Without a sandbox `SID_JOB`, the job's mark, is added.
        stdin: What it can read; then end of file.
        deadline_s: Seconds from the start byte until it is ended; None is never.
        grace_s: Seconds between SIGTERM and SIGKILL, at the deadline and when cancelled; 0 is no SIGTERM.
        limits: What it may use.
        sandbox: Where it is enclosed, or None.
        merge_stderr: Whether its standard error goes to its standard output.
        room: How much the folder that it works in may grow; None is no limit.
        stands_back: Whether others go before it where processors are short. For agents and charts: what is measured,
            the daemon and the user need not wait for them.
        outlives: Whether it goes on to its end when the daemon is killed, and the next daemon lets it. For git in the
            user's own checkout alone: ended half-way, it leaves that half changed and locked.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    stdin: bytes = b""
    deadline_s: float | None
    grace_s: float = 0.0
    limits: JobLimits = field(default_factory=JobLimits)
    sandbox: Enclosure | None
    merge_stderr: bool = False
    room: Room | None = None
    stands_back: bool = False
    outlives: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job ended.

    Attributes:
        exit_code: The exit status of its first process, or None where a signal ended that.
        signal: The signal, or None. From a sandbox a signal comes as status 128 + n, as from a shell, and is
            shown as the signal.
        timed_out: Whether the deadline passed first, however it ended then.
        stdout: What it printed.
        stderr: What it printed as errors; empty with `merge_stderr`.
        wall_s: Seconds from the start byte to the end of its first process.
        cpu_s: CPU time in seconds, of all processes that were waited for by their parents or by this one.
        processes_killed: How many processes were alive when it was ended, or outlived the first one. Those that
            a sandbox takes along when its first process ends by itself are not counted.
        over: The limit that it was ended for, or None.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    stdout: Captured
    stderr: Captured
    wall_s: float
    cpu_s: float
    processes_killed: int
    over: OverLimit | None = None


class JobHandle:
    """A running job, for those who watch it and let it stand still (`standstill`).

    Args:
        pid: The host's id of its first process; with a sandbox, of the namespace's init.
        members: Finds its processes, parents first.
        limit: Cancelled when its deadline passes.
        room: Its cgroup, where it has one.
    """

    def __init__(
        self, pid: int, members: Members, limit: trio.CancelScope, room: JobCgroup | None = None
    ) -> None:
        self.pid = pid
        self._room = room
        self._members: Members | None = members
        self._limit = limit
        self._left_s: float | None = None
        self._frozen: dict[int, procfs.ProcessStat] = {}

    def snapshot(self) -> procfs.ProcessSnapshot:
        """Return what each of its processes is doing; blocks for some milliseconds. Empty after its end."""
        return procfs.snapshot(self._members() if self._members else ())

    def ready_s(self) -> float:
        """Return how long any of its processes stood ready so far without a processor; 0 where that is not known; blocks."""
        return self._room.ready_s() if self._room else 0.0

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._members is None

    def hold(self) -> None:
        """Let its deadline wait; on the event loop."""
        self._left_s = self._limit.deadline - trio.current_time()
        self._limit.deadline = math.inf

    def release(self) -> None:
        """Let its deadline go on; on the event loop."""
        if self._left_s is not None:
            self._limit.deadline = trio.current_time() + self._left_s
            self._left_s = None

    def freeze(self) -> None:
        """Stop its processes; blocks for some milliseconds.

        Parents first, so that none sees its child stop, and until a look finds nobody new. What had stopped
        before by itself is left alone.
        """
        for _ in range(_LOOKS):
            members = self._members() if self._members else {}
            fresh = {
                pid: stat for pid, stat in members.items() if stat.state != "T" and pid not in self._frozen
            }
            if not fresh:
                return
            send_signal(fresh, signal.SIGSTOP)
            self._frozen.update(fresh)

    def thaw(self) -> None:
        """Let those go on that `freeze` stopped, children first; blocks for some milliseconds."""
        frozen, self._frozen = self._frozen, {}
        send_signal(dict(reversed(frozen.items())), signal.SIGCONT)

    def close(self) -> None:
        """Forget its processes: their ids may be others' by now. `run_job` calls this at the end."""
        self._members = None
