"""The tree of a job's processes: who belongs to it, and how all of them come to an end.

`process.run_job` uses it for every job, the daemon's start for what a killed predecessor left
(`sweep_leftovers`). It never starts a process and never decides when a tree ends. Three ways hold a tree
together, the best there is: a PID namespace (its init is killed, the kernel does the rest), a cgroup, or,
alone, a child subreaper and a walk that is repeated until it finds nobody, which knows by their `marks` those
that left their parents. Killing the process group is none: `setsid` leaves it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sid_actors.jobs import procfs
from sid_actors.jobs.cgroup import JobCgroup
from sid_actors.jobs.marks import Mark, is_named, ran_away, starting
from sid_actors.jobs.procfs import ProcessStat
from sid_protocol.errors import WorldError

KILL_LIMIT_S = 30.0  # what lives longer after SIGKILL hangs in the kernel, most often on a disk
_LOOK_AGAIN_S = 0.05  # how long one turn of a kill loop waits for those it killed
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

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
                is_ours = main is not None and ran_away(pid, main.started)
            if is_ours:
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
        named = {pid for pid in listed - strangers if is_named(pid, prefix)}
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


def _set_subreaper(*, on: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
