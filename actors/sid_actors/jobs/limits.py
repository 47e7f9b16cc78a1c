"""From the settings' limits to those of a job, and back: which limit a job that failed has run into.

Back ends and workbench share it, so that every job has the same limits and a failure names the key that a user would
change. It limits nothing itself.
"""

from __future__ import annotations

import os
import re
import signal

from sid_actors.jobs.job import JobLimits, JobResult
from sid_protocol.settings import Limits

_RAM_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
_SCRATCH_SHARE = 4  # of the machine's memory: a sandbox has three such folders, and they are memory
# What programs say when the kernel refuses them more, by the key that allows more.
_REFUSED = (
    ("file_mb", re.compile(r"File too large|file size limit exceeded|EFBIG", re.IGNORECASE)),
    ("open_files", re.compile(r"Too many open files|EMFILE", re.IGNORECASE)),
    (
        "processes",
        re.compile(r"Resource temporarily unavailable|can't start new thread|cannot fork|EAGAIN", re.IGNORECASE),
    ),
    ("memory_mb", re.compile(r"MemoryError|cannot allocate memory|out of memory|bad_alloc|ENOMEM", re.IGNORECASE)),
)  # fmt: skip
_FULL = re.compile(r"No space left on device|ENOSPC", re.IGNORECASE)


def limits_of(limits: Limits, *, output_mb: int | None = None) -> JobLimits:
    """Return the limits of a job.

    Args:
        limits: The user's.
        output_mb: How much of its output is kept, in MiB; None is as the user says.
    """
    bounds = [limits.worktree_mb, limits.memory_mb, max(1, _RAM_MB // _SCRATCH_SHARE)]
    return JobLimits(
        memory_mb=limits.memory_mb,
        processes=limits.processes,
        open_files=limits.open_files,
        file_mb=limits.file_mb,
        output_mb=output_mb or limits.output_mb or JobLimits().output_mb,
        scratch_mb=min(bound for bound in bounds if bound is not None),
    )


def blame(result: JobResult, limits: JobLimits) -> str:
    """Return which limit a failed job has run into, in words; empty where it was none, as far as can be told.

    Args:
        result: How it ended.
        limits: What it was allowed.
    """
    if result.over is not None:
        return result.over.why
    if result.signal == signal.SIGXFSZ:
        return f"limits.file_mb is {limits.file_mb}"
    said = "\n".join((result.stdout.text()[-2000:], result.stderr.text()[-2000:]))
    for name, pattern in _REFUSED:
        allowed = getattr(limits, name)
        if allowed is not None and pattern.search(said):
            return f"limits.{name} is {allowed}"
    if limits.scratch_mb is not None and _FULL.search(said):
        return f"a sandbox's private folders hold {limits.scratch_mb} MB each"
    return ""
