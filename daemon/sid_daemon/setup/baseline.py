"""The baseline: measured as often as the measuring core asks for, then recorded as the run's first event.

Used by `intake` at set-up.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from sid_actors.workbench.base import BenchRun, CommandRun
from sid_daemon.clock import now_iso
from sid_daemon.core.measuring import calibration
from sid_daemon.core.measuring.calibration import Calibrated, Calibration
from sid_daemon.core.measuring.words import RunResult
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.core.wording import one_line
from sid_daemon.runs.runstore import RunStore
from sid_daemon.setup import takeover
from sid_daemon.setup.drafting import Draft, Site
from sid_daemon.store.views import Projection, project
from sid_protocol.errors import Refused
from sid_protocol.events import CarriedOver, RunCreated
from sid_protocol.settings import (
    Settings,
)
from sid_protocol.status import BaselineReport


async def calibrate(
    site: Site, commit: str, settings: Settings, *, branch: str | None = None
) -> tuple[list[BenchRun], Calibrated]:
    """Measure the baseline as often as the measuring core asks for.

    Args:
        site: The repository.
        commit: What to measure.
        settings: How.
        branch: The branch that it is the head of, where that is not the user's own.

    Raises:
        Refused: a run fails, with the command's own words.
    """
    state = Calibration(
        direction=settings.benchmark_direction,
        mode=settings.measurement.mode,
        runs=settings.measurement.calibration_runs,
        pass_fail=settings.benchmark_format == "pass_fail",
    )
    runs: list[BenchRun] = []
    while not isinstance(ask := calibration.next_ask(state), Calibrated):
        run = await site.measure(commit, settings)
        if run.score is None:
            where, work = "the baseline", "make it work by hand first"
            if branch is not None:
                where = f"{branch} at {commit[:12]}"
                work = f"merge {settings.target_branch} into that branch, or make it work there"
            raise Refused(
                f"the benchmark fails on {where}: {run.why}",
                hint=f"{work}: {settings.benchmark_command}",
                data={"status": run.status, "category": run.category, "output": run.raw[-2000:]},
            )
        runs.append(run)
        result = RunResult(ask.arm, run.score, run.sub_scores, "success", run.cpu_s, run.wall_s)
        state = calibration.on_run(state, result)
    return runs, ask


def created_event(
    run_id: str,
    site: Site,
    draft: Draft,
    slug: str,
    head: str,
    runs: list[BenchRun],
    found: Calibrated,
    earlier: takeover.Track | None,
) -> RunCreated:
    """Return the event that makes the run."""
    carried: CarriedOver | None = earlier.carried if earlier else None
    first = earlier.baseline if earlier else None
    if carried and first and first.benchmark_command in ("", draft.settings.benchmark_command):
        carried = carried.model_copy(update={"baseline_score": first.baseline_score})
    return RunCreated(
        at=now_iso(),
        run_id=run_id,
        repo=site.info.top,
        root=str(draft.root),
        topic=draft.topic,
        goal_slug=slug,
        settings=draft.settings,
        baseline_commit=head,
        baseline_samples=found.scores,
        baseline_score=found.scores[0] if found.baseline is None else found.baseline,
        baseline_raw=runs[0].raw[:4000],
        deterministic=found.mode == "deterministic",
        calibration=calibration_of(runs, found),
        carried_over=carried,
    )


def calibration_of(runs: list[BenchRun], found: Calibrated) -> dict[str, Any]:
    """Return what the journal keeps of a calibration: each run but what it printed, and what was found."""
    facts = [asdict(run) for run in runs]
    for one in facts:
        del one["raw"]
    return {
        "history": asdict(found.history),
        "cv": found.cv,
        "sd_pair": found.sd_pair,
        "run_timeout_s": found.run_timeout_s,
        "advice": found.advice,
        "runs": facts,
    }


async def record_creation(
    store: RunStore, present: RunState | None, created: RunCreated, earlier: takeover.Track | None
) -> None:
    """Make the run durable, with what an earlier track left."""
    created = store.without_secrets(created)  # of what the benchmark printed
    after, _ = step(present, created)
    projection = project(present, created, after)
    if earlier is not None:
        projection = Projection(
            documents={**earlier.documents, **projection.documents},
            entries=(*earlier.entries, *projection.entries),
        )
    await store.commit([created], projection, after)


def report_of(created: RunCreated) -> BaselineReport:
    """Return what the baseline runs gave, for the user."""
    samples = list(created.baseline_samples)
    mean = abs(statistics.fmean(samples))
    spread = 100 * (max(samples) - min(samples)) / mean if mean else 0.0
    return BaselineReport(
        score=created.baseline_score,
        samples=samples,
        spread_pct=round(spread, 3),
        deterministic=created.deterministic,
    )


def advice_of(found: Calibrated, red: list[CommandRun]) -> list[str]:
    """Return what the user should know before the first round."""
    guards = []
    for guard in red:
        last = next(
            (line for line in reversed(guard.output.splitlines()) if line.strip()), "it printed nothing"
        )
        if guard.timed_out:
            last = "it took longer than deadlines.guard"
        guards.append(
            f"guard is red on the baseline and will blame no candidate: {guard.command}: {one_line(last, 200)}"
        )
    return [*guards, *found.advice]
