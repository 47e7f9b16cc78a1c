"""Everything of a daemon that is slow to import: its runs, their gate, the methods that clients call.

Imported by `app` in a thread once the socket answers. The only place that picks concrete classes for them.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import trio

from sid_actors.backends.model.anthropic_api import Service
from sid_actors.jobs import scratch
from sid_actors.jobs.process import prepare_jobs, release_jobs
from sid_actors.workbench.machine import MachineLock, lock_path
from sid_actors.workbench.sandbox import etc
from sid_daemon import track_config
from sid_daemon.about import About
from sid_daemon.daemon_settings import DaemonSettings
from sid_daemon.log.logs import Logs
from sid_daemon.log.record import Emit
from sid_daemon.rpc.dispatcher import Dispatcher
from sid_daemon.rpc.lesson_methods import LessonMethods
from sid_daemon.rpc.log_methods import LogMethods
from sid_daemon.rpc.methods import Methods
from sid_daemon.rpc.node_methods import NodeMethods
from sid_daemon.rpc.reporting import LocalReports
from sid_daemon.runs.charts import Charts
from sid_daemon.runs.hands import MakeRunConductor
from sid_daemon.runs.host import Host
from sid_daemon.runs.log_recovery import tell_what_is_missing
from sid_daemon.setup.agents import SetupAgents
from sid_daemon.setup.intake import Intake
from sid_daemon.setup.site import Machine, OpenLocalSite
from sid_daemon.store.files import remove_unfinished
from sid_daemon.store.registry import KnownRun, Registry
from sid_daemon.tools import Tools
from sid_protocol.errors import AlreadyRunning, SidError, StoreError
from sid_protocol.events import RunFailed
from sid_protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a daemon is made of.

    Attributes:
        machine: What it can do.
        host: Its runs.
        dispatcher: Carries calls out.
        resume: Goes on with a run that was active when the last daemon ended.
        prepare_jobs: To be called in a thread before the first job; returns leftovers that were killed.
        release_jobs: To be called when no job runs any more.
    """

    machine: Machine
    host: Host
    dispatcher: Dispatcher
    resume: Callable[[KnownRun], Awaitable[None]]
    prepare_jobs: Callable[[], list[int]]
    release_jobs: Callable[[], None]


def assemble(
    settings: DaemonSettings,
    state_dir: Path,
    registry: Registry,
    logs: Logs,
    nursery: trio.Nursery,
    emit: Emit,
    shut_down: Callable[[bool], None],
    about: About,
    tools: Tools,
) -> Assembly:
    """Put a daemon together.

    Args:
        settings: The daemon's own.
        state_dir: Its state directory.
        registry: The open registry.
        logs: Its log.
        nursery: Where runs live.
        emit: Takes log records.
        shut_down: Asks the daemon to leave: `shut_down(now)`.
        about: What daemon it is.
        tools: The machine's interpreters.
    """
    service = Service(prices=settings.prices, learn=logs.redactor.learn)
    machine = Machine(MachineLock(lock_path(os.environ, str(state_dir))), service, tools)
    host = Host(
        registry,
        state_dir,
        MakeRunConductor(machine),
        Charts(machine.lock).want,
        emit,
        nursery,
        logs,
    )
    intake = Intake(host, OpenLocalSite(machine))
    handlers = {
        **Methods(host, intake, LocalReports(machine), shut_down, about).handlers(),
        **SetupAgents(OpenLocalSite(machine), machine, state_dir).handlers(),
        **LogMethods(host, logs.subscribers).handlers(),
        **LessonMethods(host).handlers(),
        **NodeMethods(machine).handlers(),
    }
    return Assembly(
        machine,
        host,
        Dispatcher(handlers, about.version),
        functools.partial(_resume, host, intake, emit, logs),
        functools.partial(_prepare, state_dir),
        release_jobs,
    )


def _prepare(state_dir: Path) -> list[int]:
    """Sweep what a killed daemon left, processes and temporary files, and prepare for the first job."""
    name = hashlib.sha256(str(state_dir).encode()).hexdigest()[:12]
    killed = prepare_jobs(name)  # first: they may be writing there
    scratch.sweep(name)
    for folder in (state_dir, *state_dir.glob("*/"), *state_dir.glob("copies/*/")):
        remove_unfinished(folder)
    etc.keep_copies(state_dir / "etc")
    return killed


async def _resume(host: Host, intake: Intake, emit: Emit, logs: Logs, run: KnownRun) -> None:
    """Go on with a run that was active when the last daemon ended; what hinders it is logged."""
    try:
        if await trio.Path(run.common_dir).is_dir() and await host.restore(run):
            emit("warning", "restored_from_copy", run_id=run.run_id, root=run.root)
        await tell_what_is_missing(host, logs, emit, run)
        settings = await _checked_settings(intake, run)
        await host.start(run, settings, rounds=None, again=True)
    except SidError as error:
        await _give_up(host, emit, run, error)


async def _give_up(host: Host, emit: Emit, run: KnownRun, error: SidError) -> None:
    """Note that a run that should be resumed cannot be: it has failed, until the user starts it again."""
    emit("error", "resume_failed", run_id=run.run_id, why=str(error))
    await host.remember(replace(run, active=False))
    try:
        await host.journal(run, RunFailed(reason=error.message, hint=error.hint))
    except (AlreadyRunning, StoreError) as lost:
        emit("warning", "failure_not_recorded", run_id=run.run_id, why=str(lost))


async def _checked_settings(intake: Intake, run: KnownRun) -> Settings:
    if not await trio.Path(run.root).is_dir():
        raise StoreError(f"{run.root} is gone", hint="bring the repository back, then start the run")
    read = await trio.to_thread.run_sync(track_config.read_config, Path(run.root))
    await intake.check_settings(run, run.repo, Path(run.root), read.settings)
    return read.settings
