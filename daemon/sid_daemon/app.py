"""The composition root of the daemon: lock, socket, log, runs, server, and a clean way out.

The only place that picks concrete classes for a daemon. It binds and answers first; what is slow to import or to
probe comes while nobody waits for it. SIGTERM and SIGINT suspend all runs: the next daemon goes on with them.
"""

from __future__ import annotations

import hashlib
import math
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog
import trio

from sid_actors.backends.anthropic_api import Service
from sid_actors.process import prepare_jobs, release_jobs
from sid_actors.workbench.machine import MachineLock, lock_path
from sid_daemon import config
from sid_daemon.charts import Charts
from sid_daemon.daemon_settings import DaemonSettings, read_daemon_settings
from sid_daemon.hands import MakeRunHands
from sid_daemon.host import Host
from sid_daemon.intake import Intake
from sid_daemon.listening import Listening, activated, bind
from sid_daemon.log_methods import LogMethods
from sid_daemon.logs import Logs, StandardError, configure
from sid_daemon.methods import Methods
from sid_daemon.notify import Notifier
from sid_daemon.redaction import Redactor, secrets_of
from sid_daemon.reporting import LocalReports
from sid_daemon.rpc_server import RpcServer
from sid_daemon.site import Machine, OpenLocalSite
from sid_daemon.store.lock import StateLock
from sid_daemon.store.registry import KnownRun, Registry
from sid_protocol import __version__, locations
from sid_protocol.errors import SidError, StoreError
from sid_protocol.settings import Settings

log = structlog.get_logger("sid")


def emit(level: str, event: str, **fields: Any) -> None:
    """Log one record."""
    getattr(log, level)(event, **fields)


def run_daemon(*, idle_exit_s: float | None = None, ready_fd: int | None = None) -> None:
    """Run the daemon until it is asked to leave.

    Args:
        idle_exit_s: Leave so long after the last run and client; None stays.
        ready_fd: Descriptor to which `ready` is written once the socket answers.

    Raises:
        SettingsInvalid: `sid.toml` is wrong.
        Refused: another daemon uses the state directory or the socket.
        StoreError: the state directory cannot be used.
    """
    home = os.environ.get("HOME") or str(Path("~").expanduser())
    state_dir = Path(locations.state_dir(os.environ, home))
    settings = read_daemon_settings(Path(locations.config_path(os.environ, home)))
    os.umask(0o077)
    lock = StateLock(str(state_dir))
    try:
        notifier = Notifier.take(os.environ, os.getpid())
        listening = activated(os.environ, os.getpid()) or bind(locations.socket_path(os.environ, home), lock)
        try:
            trio.run(_Daemon(settings, state_dir, listening, notifier, idle_exit_s, ready_fd).run)
        finally:
            listening.close()
            notifier.close()
    finally:
        lock.release()


class _Daemon:
    def __init__(
        self,
        settings: DaemonSettings,
        state_dir: Path,
        listening: Listening,
        notifier: Notifier,
        idle_exit_s: float | None,
        ready_fd: int | None,
    ) -> None:
        self._settings = settings
        self._state_dir = state_dir
        self._listening = listening
        self._notifier = notifier
        self._idle_exit_s = idle_exit_s
        self._ready_fd = ready_fd
        self._leave = trio.Event()
        self._leave_now = False
        self._ready = trio.Event()

    async def run(self) -> None:
        """Serve until asked to leave."""
        registry = await trio.to_thread.run_sync(Registry, self._state_dir / "sid.db")
        logs = Logs(
            self._state_dir / "logs",
            Redactor(secrets_of(os.environ)),
            # Whoever started us with a ready pipe keeps our stderr in a file that nobody rotates.
            stderr=None if self._ready_fd is not None else StandardError.of_this_process(os.environ),
            file_bytes=self._settings.log_file_mb << 20,
            keep=self._settings.log_files,
        )
        configure(logs, self._settings.log_level)
        try:
            async with trio.open_nursery() as writing:
                await writing.start(logs.run)
                async with trio.open_nursery() as nursery:
                    await self._serve(registry, logs, nursery)
                    nursery.cancel_scope.cancel()
                writing.cancel_scope.cancel()
        finally:
            release_jobs()
            logs.close()
            registry.close()

    async def _serve(self, registry: Registry, logs: Logs, nursery: trio.Nursery) -> None:
        prefix = hashlib.sha256(str(self._state_dir).encode()).hexdigest()[:12]
        service = Service(
            prices={name: one.price for name, one in self._settings.prices.items()}, learn=logs.redactor.learn
        )
        machine = Machine(MachineLock(lock_path(os.environ, str(self._state_dir))), service)
        host = Host(registry, self._state_dir, MakeRunHands(machine), Charts(machine.lock), emit, nursery)
        intake = Intake(host, OpenLocalSite(machine))
        methods = Methods(
            host, intake, LocalReports(machine), self._shut_down, __version__, self._listening.path
        )
        following = LogMethods(host, logs.subscribers)
        server = RpcServer(
            {**methods.handlers(), **following.handlers()},
            log,
            version=__version__,
            connections=self._settings.connections,
        )
        nursery.start_soon(self._notifier.watchdog)
        nursery.start_soon(self._on_signals)
        await nursery.start(server.serve, self._listening)
        self._tell_ready()
        swept = await trio.to_thread.run_sync(prepare_jobs, prefix)
        if swept:
            emit("warning", "leftovers_killed", processes=len(swept))
        await machine.probe()
        if machine.sandbox_fault is not None:
            emit("warning", "no_sandbox", why=machine.sandbox_fault)
        emit("info", "daemon_started", version=__version__, pid=os.getpid())
        for run in await host.crashed_runs():
            await resume(host, intake, run)
        host.recovered.set()
        if self._idle_exit_s is not None:
            nursery.start_soon(self._leave_when_idle, host, server, self._idle_exit_s)
        await self._leave.wait()
        self._notifier.stopping("runs are suspended")
        emit("info", "daemon_leaving", runs=len(host.active), now=self._leave_now)
        await host.suspend_all(now=self._leave_now)
        logs.stop()
        await server.finish()

    def _tell_ready(self) -> None:
        self._notifier.ready("ready")
        if self._ready_fd is not None:
            try:
                os.write(self._ready_fd, b"ready\n")
            finally:
                os.close(self._ready_fd)
                self._ready_fd = None

    def _shut_down(self, now: bool) -> None:  # noqa: FBT001 - one argument that says itself
        self._leave_now = self._leave_now or now
        self._leave.set()

    async def _on_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                self._shut_down(now=self._leave.is_set())

    async def _leave_when_idle(self, host: Host, server: RpcServer, limit_s: float) -> None:
        while True:
            idle = not host.active and not server.clients
            with trio.move_on_after(limit_s if idle else math.inf) as scope:
                async with trio.open_nursery() as either:
                    either.start_soon(_then_cancel, host.changed.wait, either)
                    either.start_soon(_then_cancel, server.clients_changed, either)
            if scope.cancelled_caught and not host.active and not server.clients:
                self._leave.set()
                return


async def _then_cancel(wait: Callable[[], Awaitable[None]], nursery: trio.Nursery) -> None:
    await wait()
    nursery.cancel_scope.cancel()


async def resume(host: Host, intake: Intake, run: KnownRun) -> None:
    """Go on with a run that was active when the last daemon ended; what hinders it is logged."""
    try:
        if await trio.Path(run.common_dir).is_dir() and await host.restore(run):
            emit("warning", "restored_from_copy", run_id=run.run_id, root=run.root)
        settings = await _trusted_settings(intake, run)
        await host.start(run, settings, rounds=None, again=True)
    except SidError as error:
        await host.forget_active(run, error)


async def _trusted_settings(intake: Intake, run: KnownRun) -> Settings:
    if not await trio.Path(run.root).is_dir():
        raise StoreError(f"{run.root} is gone", hint="bring the repository back, then start the run")
    read = await trio.to_thread.run_sync(config.read_config, Path(run.root))
    await intake.check_trust(run.repo, read.settings)
    return read.settings
