"""Has a run's chart drawn, by a job: the program `report.chart`, which reads the run's database and prints a picture.

Drawing needs a JavaScript engine of 150 MB and seconds of CPU time, so it happens in no daemon. As a job it stands back
behind whatever is being measured, and is gone when its daemon is.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from sid_actors.jobs.job import JobLimits, JobSpec
from sid_actors.jobs.process import run_job
from sid_daemon.core.state import RunState
from sid_daemon.report.chart import NO_LIBRARY
from sid_daemon.report.series import Subject
from sid_daemon.report.text import gained
from sid_daemon.runs.runstore import RunStore
from sid_protocol.errors import SidError

DEADLINE_S = 60.0
PATIENCE_S = 1800.0
"""What stands back on a machine that never rests gets a hundredth of a processor; drawing takes a few seconds of one."""


async def draw(state: RunState, store: RunStore, form: str, *, patient: bool = False) -> bytes:
    """Draw the step chart of a run as it is now; see `render_chart`.

    Args:
        state: The run.
        store: Its database.
        form: `png` or `svg`.
        patient: Nobody waits for it: all others go before it, and it may take its time.

    Raises:
        SidError: see `render_chart`.
    """
    limit_s = PATIENCE_S if patient else DEADLINE_S
    subject = Subject.of(state, gained(state))
    return await render_chart(store.database, subject, form, deadline_s=limit_s, stands_back=patient)


async def render_chart(
    database: Path, subject: Subject, form: str, *, deadline_s: float = DEADLINE_S, stands_back: bool = False
) -> bytes:
    """Return a chart as a picture.

    Args:
        database: The run's.
        subject: What the run is about.
        form: `png` or `svg`.
        deadline_s: After so many seconds the job is killed.
        stands_back: Others go before it where processors are short.

    Raises:
        SidError: the extra `charts` is not installed, or the chart could not be drawn.
    """
    spec = JobSpec(
        # -P: a file named like a module in the current folder must not be imported in its place.
        argv=(sys.executable, "-P", "-m", "sid_daemon.report.chart", form, str(database)),
        cwd="/",
        env=dict(os.environ),
        stdin=json.dumps(asdict(subject)).encode(),
        deadline_s=deadline_s,
        limits=JobLimits(processes=None),
        sandbox=None,
        stands_back=stands_back,
    )
    result = await run_job(spec)
    if result.timed_out:
        raise SidError(f"drawing the chart took longer than {deadline_s:g} s", hint="try it again later")
    if result.exit_code == NO_LIBRARY:
        raise SidError(
            "charts need the library vl-convert-python, which is not installed",
            hint="install sid with its extra: pip install 'sid-daemon[charts]'",
        )
    if result.exit_code != 0 or not result.stdout.total or result.stdout.dropped:
        last = result.stderr.text().strip().splitlines()[-1:] or ["no reason given"]
        raise SidError(f"the chart could not be drawn: {last[0][:300]}", hint="try the other format")
    return result.stdout.head + result.stdout.tail
