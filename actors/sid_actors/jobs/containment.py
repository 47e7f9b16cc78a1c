"""The tree of a job's processes: who belongs to it, and how all of them come to an end.

`process.run_job` uses it for every job, the daemon's start for what a killed predecessor left
(`sweep_leftovers`). It never starts a process and never decides when a tree ends. Three ways hold a tree
together, the best there is: a PID namespace (its init is killed, the kernel does the rest), a cgroup, or,
alone, a child subreaper and a walk that is repeated until it finds nobody. Killing the process group is none:
`setsid` leaves it.

A process that left its parents is known by two marks of its job, which children inherit: the variable
`SID_JOB`, and a tag in RLIMIT_LOCKS, a limit that Linux has not enforced since 2.4. The tag outlives a scrubbed
environment, cannot be raised again by an ordinary user, and can be read even of a zombie. It can be lowered, though:
who did both, or bears another's marks, is known by its session. Jobs start in sessions of their own, and nobody can
join the daemon's; so a child that this process did not start, in another session and of no job that is alive, ran away.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import select
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sid_actors.jobs import procfs
from sid_actors.jobs.cgroup import JobCgroup
from sid_actors.jobs.procfs import ProcessStat
from sid_protocol.errors import WorldError

JOB_VARIABLE = "SID_JOB"
KILL_LIMIT_S = 30.0  # what lives longer after SIGKILL hangs in the kernel, most often on a disk
_LOOK_AGAIN_S = 0.05  # how long one turn of a kill loop waits for those it killed
_RLIMIT_LOCKS = 10  # asm-generic/resource.h; the resource module has no name for it
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# A tag: one bit, so that no limit that someone means is taken for one, 32 bits of the daemon, 29 of the job.
_TAG_BIT = 1 << 61
_TAG_JOB_BITS = 29

starting = threading.Lock()
"""Held while a process is started: from fork to exec it looks like one that ran away."""
_alive: dict[str, tuple[Mark, set[int]]] = {}  # the jobs that run, and the processes that we started for them

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
        job = secrets.randbits(_TAG_JOB_BITS)
        return cls(f"{prefix}.{secrets.token_hex(8)}", _first_tag(prefix) + job)

    def put_on(self, pid: int) -> None:
        """Tag a process, and so all that it will start.

        Refused inside a job of another daemon, whose own tag is the limit; there the variable is all there is.
        """
        with contextlib.suppress(PermissionError):
            resource.prlimit(pid, _RLIMIT_LOCKS, (self.tag, self.tag))

    def is_on(self, pid: int) -> bool:
        """Whether the process inherited this mark."""
        if procfs.file_locks_limit(pid) == self.tag:
            return True
        return procfs.environment_value(pid, JOB_VARIABLE) == self.job_id


@contextlib.contextmanager
def known_job(mark: Mark) -> Iterator[set[int]]:
    """Know a job while the scope is open; to what it yields go the ids of the processes that we start for it."""
    _alive[mark.job_id] = (mark, set())
    try:
        yield _alive[mark.job_id][1]
    finally:
        del _alive[mark.job_id]


def _ran_away(pid: int, since: int) -> bool:
    """Whether a child of this process is one of a job that hid its marks.

    Args:
        pid: The child.
        since: Ticks since boot; an older one is of no job of ours.
    """
    stat = procfs.read_stat(pid)
    with contextlib.suppress(ProcessLookupError):
        if stat is None or stat.started < since or os.getsid(pid) == os.getsid(0):
            return False
        jobs = list(_alive.values())
        if any(pid in started for _, started in jobs):
            return False
        tag, job_id = procfs.file_locks_limit(pid), procfs.environment_value(pid, JOB_VARIABLE)
        return not any(tag == mark.tag or job_id == mark.job_id for mark, _ in jobs)
    return False


def _first_tag(prefix: str) -> int:
    return _TAG_BIT | zlib.crc32(prefix.encode()) << _TAG_JOB_BITS


@dataclass(frozen=True, slots=True)
class SandboxTree:
    """The processes of a job in a PID namespace: its init (the id that the host knows) and its descendants."""

    init: int

    def members(self) -> Mapping[int, ProcessStat]:
        """Return all that are alive, init included."""
        return procfs.tree([self.init])


@dataclass(slots=True)
class PlainTree:
    """The processes of a job without a namespace: found by descent, by mark and, if there is one, by cgroup.

    Only right inside `adopt_orphans`, and until `main` was reaped: its id may be another's then.

    Attributes:
        main: The first process, a child of this one.
        mark: What the others are known by.
        cgroup: Where they live, if anywhere.
        cpu_s: CPU time of the orphans that were reaped so far, and of their children, in seconds.
    """

    main: int
    mark: Mark
    cgroup: JobCgroup | None = None
    cpu_s: float = 0.0

    def members(self) -> Mapping[int, ProcessStat]:
        """Return all that are alive, as far as one look can tell; the dead are reaped, so that they do not pile up."""
        return procfs.tree({self.main, *filter(self._lives, self._adopted()), *self._in_cgroup()})

    def end(self) -> set[int]:
        """Kill all members until none is left, and reap those that were adopted; blocks.

        After the first look only the orphans matter: whoever loses its parent becomes a child of this process.
        Of a lineage that does nothing but fork and exit, the youngest is such a child, dead or alive, at any
        moment; so it has ended when two looks in a row find no child, and to be faster than the fork, a look
        is no more than one list of children.

        Returns:
            The ids of those that were found alive and killed.

        Raises:
            JobStuckError: Some are left `KILL_LIMIT_S` later.
        """
        members = self.members()
        send_signal(members, signal.SIGKILL)
        killed = set(members)
        give_up_at = time.monotonic() + KILL_LIMIT_S
        before: set[int] = set()
        quiet_looks = 0
        while quiet_looks < 2:  # see above
            found, ended = self._strike()
            killed |= found
            quiet_looks = 0 if found or ended else quiet_looks + 1
            if found and found == before:
                _wait_for(found)
            before = found
            if found and time.monotonic() > give_up_at:
                raise JobStuckError(found)
        return killed

    def _strike(self) -> tuple[set[int], bool]:
        """Kill main, orphans and cgroup; return who was alive, and whether a dead orphan was reaped."""
        reaped = False
        alive = set(procfs.tree(self._in_cgroup()))
        if alive and self.cgroup:
            self.cgroup.kill()
        for pid in self._adopted():
            if self._lives(pid):
                _kill_child(pid)
                alive.add(pid)
            else:
                reaped = True
        main = procfs.read_stat(self.main)
        if main and main.state not in procfs.ENDED:
            _kill_child(self.main)
            alive.add(self.main)
        return alive, reaped

    def _lives(self, orphan: int) -> bool:
        """Whether an adopted process is alive; if not, it is reaped."""
        cpu_s = reap(orphan)
        self.cpu_s += cpu_s or 0.0
        return cpu_s is None

    def _adopted(self) -> Iterator[int]:
        """Yield the orphans of this job, the youngest first."""
        main = procfs.read_stat(self.main)
        for pid in reversed(procfs.children_of(os.getpid())):
            if pid == self.main:
                continue
            if self.mark.is_on(pid):
                yield pid
                continue
            with starting:
                ran_away = main is not None and _ran_away(pid, main.started)
            if ran_away:
                yield pid

    def _in_cgroup(self) -> set[int]:
        return self.cgroup.members() if self.cgroup else set()


@contextlib.contextmanager
def adopt_orphans() -> Iterator[None]:
    """Make this process the parent of all orphans below it while the scope is open (a child subreaper).

    Only then can a process that gave up its parents still be found. Not for ever, so that a daemon which
    someone detaches on purpose, outside of any job, goes to the system's init as always.
    """
    global _adopting  # noqa: PLW0603 -- the kernel's flag is one for the whole process, so is the count
    _adopting += 1
    if _adopting == 1:
        _set_subreaper(on=True)
    try:
        yield
    finally:
        _adopting -= 1
        if _adopting == 0:
            _set_subreaper(on=False)


def reap(pid: int) -> float | None:
    """Reap an adopted process.

    Returns:
        The CPU time of it and the children it waited for, in seconds; 0 where its own parent has reaped it;
        None where it is alive.
    """
    try:
        reaped, _, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return 0.0
    return usage.ru_utime + usage.ru_stime if reaped else None


def kill_until_gone(members: Members) -> set[int]:
    """Send SIGKILL to all members, again and again until two looks in a row find nobody; blocks.

    Two looks, because a look is no instant: a process may fork behind the reader's back, once.

    Args:
        members: Finds those that are alive.

    Returns:
        The ids of all that were found alive and killed.

    Raises:
        JobStuckError: Some are left `KILL_LIMIT_S` later.
    """
    killed: set[int] = set()
    give_up_at = time.monotonic() + KILL_LIMIT_S
    quiet_looks = 0
    while quiet_looks < 2:  # see above
        found = members()
        quiet_looks = 0 if found else quiet_looks + 1
        killed |= found.keys()
        send_signal(found, signal.SIGKILL)
        _wait_for(found)
        if found and time.monotonic() > give_up_at:
            raise JobStuckError(found)
    return killed


def end_cgroup(cgroup: JobCgroup) -> set[int]:
    """Kill all that live in a cgroup until it is empty; blocks. Returns whom it killed."""

    def members() -> Mapping[int, ProcessStat]:
        found = procfs.tree(cgroup.members())
        cgroup.kill()
        return found

    return kill_until_gone(members) if cgroup.path.exists() else set()


def sweep_leftovers(prefix: str) -> list[int]:
    """Kill all processes of this user that bear the mark of a job named `prefix`; blocks.

    For the start of a daemon, before its first job: what a killed predecessor left. This process and its
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
    spared = {os.getpid(), *procfs.ancestors(os.getpid())}
    strangers: set[int] = set()

    def members() -> Mapping[int, ProcessStat]:
        # The new ones only, to be faster than who forks; all of them, after a look that found nobody.
        listed = procfs.process_ids() - spared
        strangers.intersection_update(listed)
        named = {pid for pid in listed - strangers if _is_named(pid, prefix)}
        strangers.update(listed - named)
        found = {pid: stat for pid in named if (stat := procfs.read_stat(pid))}
        alive = {pid: stat for pid, stat in found.items() if stat.state not in procfs.ENDED}
        if not alive:
            strangers.clear()
        return alive

    return sorted(kill_until_gone(members))


def send_signal(members: Mapping[int, ProcessStat], *signals: signal.Signals) -> None:
    """Send signals to processes, each of which is the one in the table or is spared."""
    for pid, stat in members.items():
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        now = procfs.read_stat(pid)
        if now is not None and now.started == stat.started:  # not a later one with its number
            with contextlib.suppress(ProcessLookupError, PermissionError):
                for number in signals:
                    signal.pidfd_send_signal(fd, number)
        os.close(fd)


def _kill_child(pid: int) -> None:
    """Kill an own child that was not reaped, so that its id is nobody else's; one that became root is spared."""
    with contextlib.suppress(PermissionError):
        os.kill(pid, signal.SIGKILL)


def _wait_for(pids: Iterable[int]) -> None:
    """Wait a moment for processes to end."""
    poll = select.poll()
    with contextlib.ExitStack() as held:
        alive = 0
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                held.callback(os.close, fd)
                poll.register(fd, select.POLLIN)
                alive += 1
        until = time.monotonic() + _LOOK_AGAIN_S
        while alive and (left_s := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(left_s * 1000):
                poll.unregister(fd)
                alive -= 1


def _is_named(pid: int, prefix: str) -> bool:
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return False
    except FileNotFoundError:
        return False
    tag = procfs.file_locks_limit(pid)
    if tag is not None and tag >> _TAG_JOB_BITS == _first_tag(prefix) >> _TAG_JOB_BITS:
        return True
    return (procfs.environment_value(pid, JOB_VARIABLE) or "").startswith(f"{prefix}.")


def _set_subreaper(*, on: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
