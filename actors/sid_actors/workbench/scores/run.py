"""One run of a benchmark: started, waited for, and its score read.

`LocalBench` has made the checkout and the job, and holds the machine. What comes back is the run as it was: whether its
score is good is for the core.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from datetime import UTC, datetime

import trio

from sid_actors.jobs.job import JobResult, JobSpec, JobStartError
from sid_actors.jobs.limits import blame
from sid_actors.jobs.process import run_job
from sid_actors.workbench.base import BenchRun
from sid_actors.workbench.scores import searching
from sid_actors.workbench.scores.matching import Match
from sid_actors.workbench.scores.scoring import Score, ScoreFault, parse_score, within
from sid_actors.workbench.setup_store import SetupFailed
from sid_protocol.errors import BenchmarkError
from sid_protocol.records import Category
from sid_protocol.settings import Settings

RAW_CHARACTERS = 16_000
TOKEN_VARIABLE = "SID_SCORE_TOKEN"  # noqa: S105 -- a name
_SIGKILL = 9


async def run_command(job: JobSpec) -> JobResult:
    """Run a command to its end.

    Raises:
        BenchmarkError: it could not be started.
    """
    try:
        return await run_job(job)
    except JobStartError as error:
        raise BenchmarkError(f"the command could not be started: {error.message}", hint=error.hint) from error


async def run_benchmark(job: JobSpec, settings: Settings) -> BenchRun:
    """Run a benchmark's job once and read its score.

    Raises:
        BenchmarkError: it could not be started, or what it printed could not be searched.
    """
    # Fresh for each run: what was printed without it was not printed by this run's benchmark.
    token = secrets.token_hex(16) if settings.score_token else None
    if token:
        job = replace(job, env={**job.env, TOKEN_VARIABLE: token})
    load1 = os.getloadavg()[0]
    started_at = datetime.now(UTC).isoformat(timespec="microseconds")
    result = await run_command(job)
    matched = await searching.matched(result, settings.benchmark_format)
    found = await trio.to_thread.run_sync(_read, result, matched, job, settings, token)
    fault = found if isinstance(found, ScoreFault) else None
    score = found if isinstance(found, Score) else None
    return BenchRun(
        score=score.value if score else None,
        status="success" if fault is None else "timeout" if fault.category == "timeout" else "error",
        category=fault.category if fault else None,
        why=fault.why if fault else "",
        sub_scores=score.sub_scores if score else {},
        raw=_capped(result),
        exit_code=result.exit_code,
        started_at=started_at,
        wall_s=result.wall_s,
        cpu_s=result.cpu_s,
        load1=load1,
    )


def _read(
    result: JobResult,
    matched: Match | ScoreFault | None,
    job: JobSpec,
    settings: Settings,
    token: str | None,
) -> Score | ScoreFault:
    """Return the score of a run, or why it has none; a memory or process limit that it ran into is named."""
    if result.over is not None:
        category: Category = "oom" if result.over.name == "memory_mb" else "logic_error"
        return ScoreFault(category, f"the benchmark was ended: {result.over.why}")
    if result.timed_out:
        why = f"the benchmark did not end within {settings.deadlines.benchmark:g} s"
        return ScoreFault("timeout", why)
    found = parse_score(
        settings.benchmark_format,
        settings.primary_metric,
        matched,
        result.stdout.last_line(),
        result.exit_code,
        token,
    )
    if isinstance(found, Score):
        found = within(found, settings.score_bounds)
    if isinstance(found, Score):
        return found
    said = result.stderr.last_line() or result.stdout.last_line() or ""
    category = found.category
    if category == "logic_error" and (result.signal == _SIGKILL or "MemoryError" in said):
        category = "oom"
    why = f"{found.why}: {said[:300]}" if said and category != "benchmark_parse_error" else found.why
    if category in ("oom", "logic_error") and (limit := blame(result, job.limits)):
        why = f"{why} ({limit})"
    return ScoreFault(category, why)


def unprepared(error: SetupFailed) -> BenchRun:
    """Return the run of a candidate whose changed dependencies cannot be set up."""
    return BenchRun(
        score=None,
        status="error",
        category="logic_error",
        why=error.message,
        sub_scores={},
        raw="",
        exit_code=None,
        started_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        wall_s=0.0,
        cpu_s=0.0,
        load1=os.getloadavg()[0],
    )


def _capped(result: JobResult) -> str:
    text = result.stdout.text()
    if len(text) <= RAW_CHARACTERS:
        return text
    half = RAW_CHARACTERS // 2
    cut = result.stdout.total - 2 * half
    return f"{text[:half]}\n[... about {cut} bytes cut ...]\n{text[-half:]}"
