"""Calibrates a run's benchmark again, at the user's wish: on the head of its improvement branch.

Called by the method `run.calibrate`. Like set-up, it needs trust and a benchmark that works; unlike it, baseline,
counters and history stay. Refused while the run is active, whose own sessions measure the head all the time.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Protocol

import trio

from sid_daemon import track_config
from sid_daemon.core.measuring.calibration import Calibrated
from sid_daemon.core.measuring.evidence import findable_gains
from sid_daemon.core.measuring.words import NOISY_MIN_EFFECT
from sid_daemon.core.state import RunState
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import CLOSE_LIMIT_S
from sid_daemon.setup.baseline import calibrate, calibration_of
from sid_daemon.setup.drafting import OpenSite
from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import AlreadyRunning
from sid_protocol.events import Recalibrated
from sid_protocol.settings import Settings
from sid_protocol.status import CalibrateResult


class Gate(Protocol):
    """What stands before anything that runs in a repository."""

    open_site: OpenSite

    async def check_trust(self, repo: str, root: Path, settings: Settings) -> None:
        """Refuse settings that the user has not confirmed."""


async def recalibrate(host: Host, gate: Gate, run: KnownRun) -> CalibrateResult:
    """Measure the head anew and take what is found as the benchmark's mode, noise and score.

    Raises:
        AlreadyRunning: the run is active.
        GitError: the repository cannot be worked on.
        Refused: trust is missing, or the benchmark fails.
        StoreError: the run's database is missing or damaged.
    """
    refuse_while_active(host, run)
    site = await gate.open_site(run.repo, run.root, run.topic)
    try:
        settings = (await trio.to_thread.run_sync(track_config.read_config, Path(run.root))).settings
        await gate.check_trust(run.repo, Path(run.root), settings)
        await site.check(settings)
        async with host.opened(run) as (state, _):
            head = await site.improve_head(state.goal_slug) or state.head
        runs, found = await calibrate(site, head, settings)
    finally:
        with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
            await site.close()
    event = Recalibrated(
        commit=head,
        samples=found.scores,
        score=found.scores[0] if found.baseline is None else found.baseline,
        deterministic=found.mode == "deterministic",
        calibration=calibration_of(runs, found),
    )
    before, after = await host.journal(run, event)
    return _result(run, before, after, found)


def refuse_while_active(host: Host, run: KnownRun) -> None:
    """Refuse what would disturb a run at work.

    Raises:
        AlreadyRunning: it is active.
    """
    if host.live(run.run_id) is not None:
        raise AlreadyRunning(
            f"run {run.run_id} is active and measures its head itself",
            hint=f"stop it first: sictl stop {run.run_id}",
        )


def _result(run: KnownRun, before: RunState, after: RunState, found: Calibrated) -> CalibrateResult:
    mean = abs(statistics.fmean(found.scores))
    noisy = after.is_noisy
    least = after.settings.measurement.min_effect
    gains = findable_gains(found.sd_pair, NOISY_MIN_EFFECT if least is None else least)
    notes = list(found.advice)
    if noisy and found.mode == "deterministic":
        notes.append("noisy all the same: one tree gave two scores once in this run, or the settings say so")
    if after.best_score != before.best_score:
        notes.append(f"best score is now {after.best_score!r}, before {before.best_score!r}")
    return CalibrateResult(
        run_id=run.run_id,
        mode="noisy" if noisy else "deterministic",
        samples=list(found.scores),
        score=after.best_score,
        score_before=before.best_score,
        spread_pct=round(100 * (max(found.scores) - min(found.scores)) / mean, 3) if mean else 0.0,
        sd_pair=found.sd_pair if noisy else None,
        findable=gains if noisy else None,
        run_s=found.run_s,
        run_timeout_s=after.run_timeout_s,
        notes=notes,
    )
