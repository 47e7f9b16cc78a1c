"""Has a format's pattern searched for in what a benchmark printed, in a process of its own with a deadline.

`benchmark` asks it once a run. A pattern that is quick on all honest output can take hours on some other, with the
interpreter's lock held, and nothing but the end of its process ends a search (`matching` is what that runs).
"""

from __future__ import annotations

import sys

from sid_actors.jobs.job import JobLimits, JobResult, JobSpec
from sid_actors.jobs.process import run_job
from sid_actors.workbench.scores import matching
from sid_actors.workbench.scores.scoring import REGEX_PREFIX, ScoreFault
from sid_protocol.errors import BenchmarkError

SEARCH_LIMIT_S = 60.0
"""Longest search: it goes through 64 MB in seconds, unless the output is made to hold it up."""


async def matched(result: JobResult, form: str) -> matching.Match | ScoreFault | None:
    """Return what a format's pattern finds last in a run's output.

    Args:
        result: The run.
        form: `benchmark_format`.

    Returns:
        The match; None where there is none, the format has no pattern, or the run failed; a fault past the deadline,
        or where what matched is too long to be told.

    Raises:
        BenchmarkError: the process failed.
    """
    if not form.startswith(REGEX_PREFIX) or result.exit_code != 0 or result.timed_out or result.over:
        return None
    spec = JobSpec(
        argv=(sys.executable, "-I", "-S", matching.__file__),
        cwd="/",
        env={},
        stdin=matching.asked(form.removeprefix(REGEX_PREFIX), result.stdout.text()),
        deadline_s=SEARCH_LIMIT_S,
        limits=JobLimits(processes=None),
        sandbox=None,
    )
    found = await run_job(spec)
    if found.timed_out:
        why = f"the pattern did not come to an end over the output within {SEARCH_LIMIT_S:g} s"
        return ScoreFault("benchmark_parse_error", why)
    if found.exit_code != 0:
        raise BenchmarkError(f"the output could not be searched: {found.stderr.last_line()}")
    if found.stdout.dropped:
        return ScoreFault(
            "benchmark_parse_error", "the line that the pattern matches is too long to hold a score"
        )
    return matching.told(found.stdout.head + found.stdout.tail)
