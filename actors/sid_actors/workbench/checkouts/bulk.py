"""Folders of any size, deleted or copied by a program: in a process of its own, which holds nobody up.

For worktrees, trash and results of the set-up; what is known to be small is deleted by `deleting` in a thread.
"""

from __future__ import annotations

import trio

from sid_actors.jobs.job import JobLimits, JobResult, JobSpec
from sid_actors.jobs.process import run_job
from sid_actors.workbench.checkouts import deleting
from sid_protocol.errors import GitError

_LIMIT_S = 600.0


async def delete(path: str) -> None:
    """Delete a folder, whatever permissions it was left with.

    Raises:
        OSError: something in it cannot be deleted.
    """
    await _run("rm", "-rf", "--", path)
    await trio.to_thread.run_sync(deleting.remove, path)  # what rm could not: folders without permissions


async def copy(folder: str, path: str) -> None:
    """Copy a folder to where nothing lies.

    Raises:
        GitError: not all of it could be copied.
    """
    result = await _run("cp", "-a", "-T", "--", folder, path)
    if result.exit_code != 0:
        raise GitError(f"cannot copy {folder}: {result.stderr.last_line()}")


async def _run(*argv: str) -> JobResult:
    spec = JobSpec(
        argv=argv,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        deadline_s=_LIMIT_S,
        limits=JobLimits(processes=None),
        sandbox=None,
    )
    return await run_job(spec)
