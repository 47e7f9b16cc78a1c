"""What back ends need of a sandbox and of a job: how one is made, and how its processes become activity.

Back ends do not know the workbench; the composition root hands them its `Sandbox` as an `Enclose`.
"""

from __future__ import annotations

from typing import Protocol

from sid_actors.activity import ActivityLog
from sid_actors.process import Enclosure, JobHandle, JobLimits
from sid_protocol.settings import Settings


class Enclose(Protocol):
    """Makes a sandbox; `workbench.sandbox.Sandbox` is one."""

    def __call__(
        self,
        *,
        workdir: str,
        writable: tuple[str, ...],
        readable: tuple[str, ...],
        sealed: tuple[str, ...],
        network: bool,
        home: str,
    ) -> Enclosure:
        """Return a sandbox that shows and lets write what is named, and nothing else of the user's."""
        ...


def limits_of(settings: Settings, output_mb: int) -> JobLimits:
    """Return the limits of a back end's job; `output_mb` is how much of its output is kept, in MiB."""
    limits = settings.limits
    return JobLimits(
        memory_mb=limits.memory_mb,
        processes=limits.processes,
        open_files=limits.open_files,
        file_mb=limits.file_mb,
        output_mb=output_mb,
    )


def watch(activity: ActivityLog, handle: JobHandle) -> None:
    """Let evidence see a job's processes from now on."""

    def processes() -> tuple[tuple[str, ...], tuple[str, ...], float]:
        seen = handle.snapshot().processes
        states = tuple(f"{p.pid} {p.state} {p.wchan or '-'} {p.command}" for p in seen)
        sockets = tuple(f"{s.state} {s.remote}" for p in seen for s in p.sockets)
        return states, sockets, sum(p.cpu_s for p in seen)

    activity.processes = processes
