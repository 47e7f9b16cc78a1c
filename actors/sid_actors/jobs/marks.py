"""The marks of a job: what its processes inherit, and by which those that left their parents are known.

`launch` puts them on, `containment` looks for them, also for those of a killed daemon's jobs.

A process that left its parents is known by two marks of its job, which children inherit: the variable
`SID_JOB`, and a tag in RLIMIT_LOCKS, a limit that Linux has not enforced since 2.4. The tag outlives a scrubbed
environment, cannot be raised again by an ordinary user, and can be read even of a zombie. It can be lowered, though:
who did both, or bears another's marks, is known by its session. Jobs start in sessions of their own, and nobody can
join the daemon's; so a child that this process did not start, in another session and of no job that is alive, ran away.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sid_actors.jobs import procfs

JOB_VARIABLE = "SID_JOB"
_RLIMIT_LOCKS = 10  # asm-generic/resource.h; the resource module has no name for it
# A tag: one bit, so that no limit that someone means is taken for one, 32 bits of the daemon, 29 of the job.
_TAG_BIT = 1 << 61
_TAG_JOB_BITS = 29

starting = threading.Lock()
"""Held while a process is started: from fork to exec it looks like one that ran away."""
_alive: dict[str, tuple[Mark, set[int]]] = {}  # the jobs that run, and the processes that we started for them


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


def ran_away(pid: int, since: int) -> bool:
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


def is_named(pid: int, prefix: str) -> bool:
    """Whether a process of this user bears the mark of a job of the daemon whose jobs are named `prefix`."""
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return False
    except FileNotFoundError:
        return False
    tag = procfs.file_locks_limit(pid)
    if tag is not None and tag >> _TAG_JOB_BITS == _first_tag(prefix) >> _TAG_JOB_BITS:
        return True
    return (procfs.environment_value(pid, JOB_VARIABLE) or "").startswith(f"{prefix}.")
