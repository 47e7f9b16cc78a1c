"""A cgroup (version 2) for each job, where one is delegated to the daemon: all its processes, however they fork.

`process.prepare_jobs` claims a home for them once; `process.run_job` makes one for each job, and the job's first
process puts itself in before anything else runs. Used for limits of memory and processes and to end a tree in
one step. It never assumes a place: where the daemon's own cgroup is comes from /proc, whether it may be divided
comes from trying, and without one everything works by the other two ways (`containment`). The rules are the
kernel's (Documentation/admin-guide/cgroup-v2.rst): a cgroup with children that have controllers holds no
processes itself, so the daemon moves into a leaf.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_CONTROLLERS = ("memory", "pids")
_LEAF = "daemon"


@dataclass(frozen=True, slots=True)
class JobCgroup:
    """The cgroup of one job."""

    path: Path

    @property
    def door(self) -> str:
        """The file into which a process writes 0 to move in."""
        return str(self.path / "cgroup.procs")

    def members(self) -> set[int]:
        """Return the ids of all processes in it and below."""
        found: set[int] = set()
        for door in self.path.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):  # a cgroup below was removed meanwhile
                found.update(int(line) for line in door.read_text().split())
        return found

    def ready_s(self) -> float:
        """Return how long any of its processes, ended ones too, stood ready so far without a processor, in seconds.

        0 where the kernel does not count that (Documentation/accounting/psi.rst: `some` of `cpu.pressure`).
        """
        try:
            told = (self.path / "cpu.pressure").read_text()
        except OSError:
            return 0.0
        return int(told.split("\n", 1)[0].rpartition("total=")[2]) / 1e6

    def kill(self) -> None:
        """Send SIGKILL to all in it at once; kernels before 5.14 cannot, there the walk is alone."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Remove it, and what a job made below, once nobody lives there."""
        with contextlib.suppress(OSError):  # most jobs make nothing below
            self.path.rmdir()
            return
        folders = [path for path in self.path.rglob("*") if path.is_dir()]
        for folder in [*sorted(folders, reverse=True), self.path]:
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


@dataclass(frozen=True, slots=True)
class CgroupHome:
    """Where the cgroups of this daemon's jobs are made; `controllers` names the limits that work there."""

    path: Path
    controllers: frozenset[str]

    def make(self, name: str, *, memory_mb: int | None, processes: int | None) -> JobCgroup:
        """Make a job's cgroup with its limits; those whose controller is missing are the caller's to set.

        Args:
            name: The job's id.
            memory_mb: The most memory of all its processes together, in MiB; None is no limit.
            processes: The most processes and threads at a time; None is no limit.

        Raises:
            OSError: The kernel refuses.
        """
        path = self.path / name
        path.mkdir()
        if memory_mb is not None and "memory" in self.controllers:
            (path / "memory.max").write_text(str(memory_mb << 20))
            (path / "memory.oom.group").write_text("1")
        if processes is not None and "pids" in self.controllers:
            (path / "pids.max").write_text(str(processes))
        return JobCgroup(path)

    def remove(self) -> None:
        """Remove it, once no job is left."""
        JobCgroup(self.path).remove()


def claim(name: str, *, end: Callable[[JobCgroup], object]) -> CgroupHome | None:
    """Make a home for jobs below the daemon's own cgroup; one of that name is a dead predecessor's and goes.

    Blocks for a few milliseconds; may move this process into a leaf of its cgroup.

    Args:
        name: The home's name, the same for each start of one daemon.
        end: Kills all that live in a cgroup and below; for the dead predecessor's.

    Returns:
        The home, or None where there is no cgroup v2, or it is not ours to divide.
    """
    own = _own_cgroup()
    if own is None:
        return None
    home = CgroupHome(own / name, frozenset())
    try:
        if home.path.exists():
            end(JobCgroup(home.path))
            home.remove()
        home.path.mkdir()
        home = CgroupHome(home.path, _enable(own, home.path))
        probe = home.make("probe", memory_mb=None, processes=None)
        enter = ["/bin/sh", "-c", 'echo 0 >"$0"', probe.door]
        works = subprocess.run(enter, check=False, capture_output=True).returncode == 0
        probe.remove()
        if not works:
            home.remove()
    except OSError:  # not delegated: read-only, not ours, or shared with others
        return None
    return home if works else None


def _own_cgroup() -> Path | None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # proc_pid_mountinfo(5): id, parent, device, root, mount point, options ... - type, source, options
        fields, _, kind = line.partition(" - ")
        root, place = fields.split()[3:5]
        if own is not None and kind.startswith("cgroup2 ") and Path(own).is_relative_to(root):
            return Path(place) / Path(own).relative_to(root)
    return None


def _enable(own: Path, home: Path) -> frozenset[str]:
    """Hand the controllers down to `home` as far as that is possible, and say which arrived."""
    offered = set((own / "cgroup.controllers").read_text().split())
    wanted = " ".join(f"+{name}" for name in _CONTROLLERS if name in offered)
    if not wanted:
        return frozenset()
    alone = (own / "cgroup.procs").read_text().split() == [str(os.getpid())]
    with contextlib.suppress(OSError):  # shared with others: no limits then, the rest works
        if alone and (own / "cgroup.type").exists():  # the root has none, and may hold processes
            (own / _LEAF).mkdir(exist_ok=True)
            (own / _LEAF / "cgroup.procs").write_text(str(os.getpid()))
        (own / "cgroup.subtree_control").write_text(wanted)
        (home / "cgroup.subtree_control").write_text(wanted)
    return frozenset((home / "cgroup.subtree_control").read_text().split())
