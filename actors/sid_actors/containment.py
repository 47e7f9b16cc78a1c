"""The tree of a job's processes: who belongs to it, and how all of them come to an end.

`process.run_job` uses it for every job, the daemon's start for what a killed predecessor left
(`sweep_leftovers`). It never starts a process and never decides when a tree ends. Three ways hold a tree
together, the best there is: a PID namespace (its init is killed, the kernel does the rest), a cgroup, or,
alone, a child subreaper and a walk that is repeated until it finds nobody. Killing the process group is none:
`setsid` leaves it.

A process that left its parents is known by two marks of its job, which children inherit: the variable
`SID_JOB`, and a tag in RLIMIT_LOCKS, a limit that Linux has not enforced since 2.4. The tag outlives a scrubbed
environment, cannot be raised again by an ordinary user, and can be read even of a zombie.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sid_actors import procfs
from sid_actors.cgroup import JobCgroup
from sid_actors.procfs import ProcessStat
from sid_protocol.errors import WorldError

JOB_VARIABLE = "SID_JOB"
KILL_LIMIT_S = 30.0  # what lives longer after SIGKILL hangs in the kernel, most often on a disk
_LOOK_AGAIN_S = 0.05  # how long one turn of the kill loop waits for those it killed
_RLIMIT_LOCKS = 10  # asm-generic/resource.h; the resource module has no name for it
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_TAG_FLOOR, _TAG_CEILING = 1 << 32, 1 << 62

Members = Callable[[], Mapping[int, ProcessStat]]
_adopting = 0  # how many scopes of `adopt_orphans` are open


class JobStuckError(WorldError):
    """Processes did not end within `KILL_LIMIT_S` of SIGKILL.

    Args:
        pids: Those that are left.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        super().__init__(
            f"processes {', '.join(map(str, sorted(pids)))} do not end after SIGKILL",
            hint="they wait in the kernel, most often for a disk or a network drive; see ps -o pid,stat,wchan",
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """What all processes of one job inherit: its id in the environment, its tag in RLIMIT_LOCKS."""

    job_id: str
    tag: int

    @classmethod
    def fresh(cls, prefix: str) -> Mark:
        """Return the mark of a new job of the daemon whose jobs are named `prefix`."""
        _, hard = resource.getrlimit(_RLIMIT_LOCKS)
        ceiling = _TAG_CEILING if hard == resource.RLIM_INFINITY else max(hard, _TAG_FLOOR + 1)
        tag = _TAG_FLOOR + secrets.randbelow(ceiling - _TAG_FLOOR)
        return cls(f"{prefix}.{secrets.token_hex(8)}", tag)

    def put_on(self, pid: int) -> None:
        """Tag a process, and so all that it will start; where that is refused, the variable is left."""
        with contextlib.suppress(PermissionError):
            resource.prlimit(pid, _RLIMIT_LOCKS, (self.tag, self.tag))

    def is_on(self, pid: int) -> bool:
        """Whether the process inherited this mark."""
        if procfs.file_locks_limit(pid) == self.tag:
            return True
        return procfs.environment_value(pid, JOB_VARIABLE) == self.job_id


@dataclass(frozen=True, slots=True)
class SandboxTree:
    """The processes of a job in a PID namespace: its init (the id that the host knows) and its descendants."""

    init: int

    def members(self) -> Mapping[int, ProcessStat]:
        """Return all that are alive, init included."""
        return _alive({self.init})


@dataclass(frozen=True, slots=True)
class PlainTree:
    """The processes of a job without a namespace: found by descent, by mark and, if there is one, by cgroup.

    Only right inside `adopt_orphans`, and until `main` was reaped: its id may be another's then.
    """

    main: int
    mark: Mark
    cgroup: JobCgroup | None = None

    def members(self) -> Mapping[int, ProcessStat]:
        """Return all that are alive; cheap where nobody outlived `main`."""
        main = procfs.read_stat(self.main)
        roots = {self.main} if main and main.state not in procfs.ENDED else set()
        roots |= self._adopted()
        if self.cgroup:
            roots |= self.cgroup.members()
        return _alive(roots) if roots else {}

    def kill(self) -> set[int]:
        """Kill all members until none is left; blocks. Returns whom it killed."""
        return kill_until_gone(self.members, self.cgroup.kill if self.cgroup else None)

    def reap(self) -> float:
        """Reap the job's zombies that this process adopted, and return the CPU time they used, in seconds."""
        return sum(map(reap, self._adopted()))

    def _adopted(self) -> set[int]:
        children = procfs.children_of(os.getpid())
        return {pid for pid in children if pid != self.main and self.mark.is_on(pid)}


@contextlib.contextmanager
def adopt_orphans() -> Iterator[None]:
    """Make this process the parent of all orphans below it while the scope is open (a child subreaper).

    Only then can a process that gave up its parents still be found. Not for ever, so that a daemon which
    someone detaches on purpose, outside of any job, goes to the system's init as always.
    """
    global _adopting  # noqa: PLW0603 -- the kernel's flag is one for the whole process, so is the count
    _adopting += 1
    _set_subreaper(on=True)
    try:
        yield
    finally:
        _adopting -= 1
        _set_subreaper(on=_adopting > 0)


def reap(pid: int) -> float:
    """Reap an adopted process if it has ended, and return the CPU time of it and its children, in seconds."""
    try:
        reaped, _, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:  # its own parent has done it
        return 0.0
    return usage.ru_utime + usage.ru_stime if reaped else 0.0


def _set_subreaper(*, on: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def kill_until_gone(members: Members, kill_at_once: Callable[[], None] | None = None) -> set[int]:
    """Send SIGKILL to all members, again and again until two looks in a row find nobody; blocks.

    Two looks, because a look is no instant: a process may fork behind the reader's back, once.

    Args:
        members: Finds those that are alive.
        kill_at_once: Kills many of them in one step, where there is such a thing.

    Returns:
        The ids of all that were found alive and killed.

    Raises:
        JobStuckError: Some are left `KILL_LIMIT_S` later.
    """
    killed: set[int] = set()
    give_up_at = time.monotonic() + KILL_LIMIT_S
    empty_looks = 0
    while empty_looks < 2:  # see above
        found = members()
        empty_looks = 0 if found else empty_looks + 1
        killed |= found.keys()
        if found and kill_at_once:
            kill_at_once()
        _kill(found)
        if found and time.monotonic() > give_up_at:
            raise JobStuckError(found)
    return killed


def send_signal(members: Mapping[int, ProcessStat], *signals: signal.Signals) -> None:
    """Send signals to processes, each of which is the one in the table or is spared."""
    for fd in _open_all(members):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            for number in signals:
                signal.pidfd_send_signal(fd, number)
        os.close(fd)


def sweep_leftovers(prefix: str) -> list[int]:
    """Kill all processes of this user that jobs named `prefix` left behind, with their descendants; blocks.

    For the start of a daemon, before its first job: what a killed predecessor left. This process and its own
    ancestors are spared, so a daemon may itself be part of a job.

    Args:
        prefix: The name of the dead daemon's jobs, not empty.

    Returns:
        The ids of those killed, in order.

    Raises:
        JobStuckError: Some do not end.
        ValueError: The prefix is empty.
    """
    if not prefix:
        raise ValueError("an empty prefix would sweep the jobs of every daemon")

    def members() -> Mapping[int, ProcessStat]:
        table = procfs.process_table()
        spared = {os.getpid(), *procfs.ancestors(os.getpid(), table)}
        named = [pid for pid in table if pid not in spared and _is_named(pid, f"{prefix}.")]
        return {pid: stat for pid, stat in _alive(set(named), table).items() if pid not in spared}

    return sorted(kill_until_gone(members))


def end_cgroup(cgroup: JobCgroup) -> set[int]:
    """Kill all that live in a cgroup until it is empty; blocks. Returns whom it killed."""
    return kill_until_gone(lambda: _alive(cgroup.members()), cgroup.kill)


def _is_named(pid: int, start: str) -> bool:
    try:
        own = Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
    return own and (procfs.environment_value(pid, JOB_VARIABLE) or "").startswith(start)


def _alive(roots: set[int], table: Mapping[int, ProcessStat] | None = None) -> dict[int, ProcessStat]:
    table = procfs.process_table() if table is None else table
    found = {pid: table[pid] for pid in procfs.tree(roots, table)}
    return {pid: stat for pid, stat in found.items() if stat.state not in procfs.ENDED}


def _kill(found: Mapping[int, ProcessStat]) -> None:
    """Kill them and wait a moment until they are dead."""
    fds = list(_open_all(found))
    poll = select.poll()
    for fd in fds:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll.register(fd, select.POLLIN)
    alive = len(fds)
    until = time.monotonic() + _LOOK_AGAIN_S
    while alive and (left_s := until - time.monotonic()) > 0:
        for fd, _ in poll.poll(left_s * 1000):
            poll.unregister(fd)
            alive -= 1
    for fd in fds:
        os.close(fd)


def _open_all(found: Mapping[int, ProcessStat]) -> Iterator[int]:
    """Open a pidfd of each process that is still the one in the table, not a later one with its number."""
    for pid, stat in found.items():
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        now = procfs.read_stat(pid)
        if now is not None and now.started == stat.started:
            yield fd
        else:
            os.close(fd)
