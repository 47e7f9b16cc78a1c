"""Sees that a job uses more than it may, where the kernel does not hold it to that.

`process.run_job` asks `passed` about each job and ends the one that it returns for. It ends nothing itself. What the
kernel holds is not looked at: memory and processes of a cgroup, processes of an ordinary user's sandbox. Looks are in
a thread and short; a job that is over in a quarter of a second is never looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from sid_actors.jobs import procfs
from sid_actors.jobs.containment import Members
from sid_actors.jobs.job import JobSpec, OverLimit

if TYPE_CHECKING:  # the daemon answers before settings are imported
    from sid_protocol.settings import Limits

_LOOK_EACH_S = 0.25
_REAP_EACH_S = 5.0  # where there is no limit, and only dead orphans are looked for
_DISK_SHARE = 0.05  # of one core: looking at a large folder takes no more


class DiskRoom:
    """How much may be written into one folder, from now on; the jobs of one turn share it.

    It is only walked when its disk has lost half as much room as may be written. What was written is told by the
    time of the last change, which no program can set, as the check of a candidate does: a changed file counts whole.

    Args:
        folder: The folder, absolute; it must exist.
        limit_mb: What may be written, in MiB.
    """

    def __init__(self, folder: str, limit_mb: int) -> None:
        self.limit_mb = limit_mb
        self._folder = folder
        self._since = time.time()
        self._free = _free(folder)
        self._walking = threading.Lock()
        self._again_at = 0.0

    def grown_mb(self, members: Members) -> int:
        """Return how many MiB were written, as far as that was looked at; blocks.

        Args:
            members: The processes that work in it: what they hold open and have deleted takes room, too.
        """
        lost = self._free - _free(self._folder)
        if lost < self.limit_mb << 19 or not self._walking.acquire(blocking=False):
            return 0
        with contextlib.ExitStack() as held:
            held.callback(self._walking.release)
            begun = time.monotonic()
            if begun < self._again_at:
                return 0
            size, closed = written(self._folder, self._since)
            size += _deleted(self._folder, members())
            now = time.monotonic()
            self._again_at = now + (now - begun) / _DISK_SHARE
            # A folder that it has closed to us may hold all that is missing.
            return (max(size, lost) if closed else size) >> 20


def room_in(folder: str, limits: Limits) -> DiskRoom | None:
    """Return the room for what jobs write into a folder from now on; None where the user sets no limit."""
    return None if limits.worktree_mb is None else DiskRoom(folder, limits.worktree_mb)


async def passed(spec: JobSpec, members: Members, enforced: Collection[str]) -> OverLimit:
    """Return once a job has passed a limit; never where there is nothing to be looked at.

    Args:
        spec: The job.
        members: Finds its processes.
        enforced: The limits that its cgroup holds: "memory", "pids".
    """
    limits = spec.limits
    counted = "pids" in enforced or (spec.sandbox is not None and os.getuid() != 0)
    processes = None if counted else limits.processes
    memory_mb = None if "memory" in enforced else limits.memory_mb
    # Without a namespace of their own its orphans come to us, and who looks reaps the dead among them.
    looked_for = spec.sandbox is None or processes is not None or memory_mb is not None
    if not looked_for and spec.room is None:
        await trio.sleep_forever()

    def look() -> OverLimit | None:
        if looked_for:
            found = members()
            count = sum(stat.threads for stat in found.values())
            if processes is not None and count > processes:
                return OverLimit(
                    "processes", f"it ran {count} processes at a time, limits.processes is {processes}"
                )
            if memory_mb is not None and (held := sum(map(procfs.private_bytes, found)) >> 20) > memory_mb:
                why = f"its processes held {held} MB together, limits.memory_mb is {memory_mb}"
                return OverLimit("memory_mb", why)
        if spec.room is not None and (grown := spec.room.grown_mb(members)) > spec.room.limit_mb:
            why = f"it wrote {grown} MB into its folder, limits.worktree_mb is {spec.room.limit_mb}"
            return OverLimit("worktree_mb", why)
        return None

    has_limit = processes is not None or memory_mb is not None or spec.room is not None
    pause_s = _LOOK_EACH_S if has_limit else _REAP_EACH_S
    limiter = trio.CapacityLimiter(1)  # a job is looked at even when all the usual threads are taken
    while True:
        await trio.sleep(pause_s)
        found = await trio.to_thread.run_sync(look, limiter=limiter, abandon_on_cancel=True)
        if found is not None:
            return found


def _free(folder: str) -> int:
    room = os.statvfs(folder)
    return room.f_bfree * room.f_frsize


def written(folder: str, since: float) -> tuple[int, bool]:
    """Return what the files below a folder take that were changed since a time, in bytes, and whether some are out of sight."""
    size, closed = 0, False
    linked: set[int] = set()
    pending = [folder]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    if status.st_ctime < since or status.st_ino in linked:
                        continue
                    if status.st_nlink > 1:
                        linked.add(status.st_ino)
                    size += status.st_blocks * 512
        except OSError as error:  # gone meanwhile, unless it is closed or too deep to be named
            closed = closed or error.errno in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
    return size, closed


def _deleted(folder: str, pids: Collection[int]) -> int:
    """Return what files take that have no name any more and are held open, on the folder's disk, in bytes."""
    device = Path(folder).stat().st_dev
    held: dict[int, int] = {}
    for pid in pids:
        for status in _open_files(pid):
            if status.st_dev == device and status.st_nlink == 0:
                held[status.st_ino] = status.st_blocks * 512
    return sum(held.values())


def _open_files(pid: int) -> Iterator[os.stat_result]:
    with contextlib.suppress(OSError):  # gone, or it became root
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                yield link.stat()
