"""The composition root of the daemon: lock, socket, log, runs, server, and a clean way out.

It binds and answers `daemon.info` first, with as little imported as that takes: no model, no git, no agent. `assembly`, which
picks the classes of runs and methods, is slow to import and comes while the socket answers. SIGTERM, SIGINT and SIGHUP suspend
all runs: the next daemon goes on with them.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import trio

from sid_daemon.about import About
from sid_daemon.clock import DeadlineClock
from sid_daemon.daemon_settings import DaemonSettings, read_daemon_settings
from sid_daemon.lean import import_pydantic, import_pygit2, let_code_go
from sid_daemon.log.logs import Logs, StandardError, configure
from sid_daemon.notify import Notifier
from sid_daemon.redaction import Redactor, secrets_of
from sid_daemon.rpc.listening import Listening, activated, bind
from sid_daemon.rpc.server import RpcServer
from sid_daemon.rpc.socket_keeper import keep_in_place
from sid_daemon.store.lock import StateLock
from sid_daemon.store.registry import Registry
from sid_protocol import locations
from sid_protocol.errors import Refused
from sid_protocol.log_levels import LogLevel

if TYPE_CHECKING:
    from sid_daemon.assembly import Assembly
    from sid_daemon.rpc.connection import Call
    from sid_daemon.runs.host import Host
    from sid_daemon.tools import Tools

log = structlog.get_logger("sid")
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
"""Parameters of glibc's `mallopt`, from its `malloc.h`."""
_LARGE = 64 << 10
_SWITCH_S = 0.0005
_SETTLE_S = 5.0
"""After that those who started the daemon have had their answers."""
_LEAST_FILES, _MOST_FILES = 64, 1 << 16
"""Open files: fewer are too few to start anything with, and nothing needs more."""


def emit(level: LogLevel, event: str, /, **fields: Any) -> None:
    """Log one record."""
    getattr(log, level)(event, **fields)


def run_daemon(*, idle_exit_s: float | None = None, ready_fd: int | None = None) -> None:
    """Run the daemon until it is asked to leave.

    Args:
        idle_exit_s: Leave so long after the last run and client; None stays.
        ready_fd: Descriptor to which `ready` is written once the socket answers.

    Raises:
        SettingsInvalid: `sid.toml` is wrong.
        Refused: another daemon uses the state directory or the socket; or too few files may be open.
        StoreError: the state directory cannot be used.
    """
    _share_memory()
    _take_descriptors()
    _dump_no_core()
    home = os.environ["HOME"]
    state_dir = Path(locations.state_dir(os.environ, home))
    settings = read_daemon_settings(Path(locations.config_path(os.environ, home)))
    os.umask(0o077)
    lock = StateLock(str(state_dir))
    try:
        notifier = Notifier.take(os.environ, os.getpid())
        listening = activated(os.environ, os.getpid()) or bind(locations.socket_path(os.environ, home), lock)
        try:
            daemon = _Daemon(settings, state_dir, lock, listening, notifier, idle_exit_s, ready_fd)
            trio.run(daemon.run, clock=DeadlineClock())
        finally:
            listening.close()
            notifier.close()
    finally:
        lock.release()


def _share_memory() -> None:
    """Let all threads take memory from one place, and give large pieces back at once.

    glibc gives threads places of their own, none of which shrinks: over hundreds of rounds each worker thread does the largest
    job once, and the daemon holds that much for every one of them. It also learns to keep large pieces, such as a snapshot's
    text, of which each is a little larger than the one before and fits nowhere.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def _take_descriptors() -> None:
    """Allow ourselves as many open files as the system does: the usual 1,024 are fewer than clients and jobs together need.

    Raises:
        Refused: that is too few to start anything with.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if allowed < _LEAST_FILES:
        raise Refused(
            f"{allowed} open files are too few for a daemon",
            hint=f"allow at least {_LEAST_FILES}: ulimit -n 4096",
        )
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _dump_no_core() -> None:
    """Leave no memory behind in a crash: the key of a model service is in it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


class _Daemon:
    def __init__(
        self,
        settings: DaemonSettings,
        state_dir: Path,
        lock: StateLock,
        listening: Listening,
        notifier: Notifier,
        idle_exit_s: float | None,
        ready_fd: int | None,
    ) -> None:
        self._settings = settings
        self._state_dir = state_dir
        self._lock = lock
        self._listening = listening
        self._notifier = notifier
        self._idle_exit_s = idle_exit_s
        self._ready_fd = ready_fd
        self._leave = trio.Event()
        self._leave_now = False
        self._ready = trio.Event()
        self._about = About(state_dir, listening.path)
        self._assembled = trio.Event()
        self._parts: Assembly

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
            if self._assembled.is_set():
                self._parts.release_jobs()
            logs.close()
            registry.close()

    async def _serve(self, registry: Registry, logs: Logs, nursery: trio.Nursery) -> None:
        server = RpcServer(self._carry_out, log, connections=self._settings.connections)
        nursery.start_soon(self._notifier.watchdog)
        nursery.start_soon(self._on_signals)
        await nursery.start(server.serve, self._listening)
        self._tell_ready()
        with _letting_others_in():
            make_tools = await trio.to_thread.run_sync(_import_tools)
            nursery.start_soon((tools := make_tools()).begin)
            assemble = await trio.to_thread.run_sync(_import_the_rest)
        self._parts = parts = assemble(
            self._settings,
            self._state_dir,
            registry,
            logs,
            nursery,
            emit,
            self._shut_down,
            self._about,
            tools,
        )
        self._assembled.set()
        await self._recover(parts)
        nursery.start_soon(_settle)
        if self._listening.is_owned:
            nursery.start_soon(keep_in_place, self._listening, self._lock, server.listen_anew, emit)
        host = parts.host
        if self._idle_exit_s is not None:
            nursery.start_soon(self._leave_when_idle, host, server, self._idle_exit_s)
        await self._leave.wait()
        self._notifier.stopping("runs are suspended")
        emit("info", "daemon_leaving", runs=len(host.active), now=self._leave_now)
        await host.suspend_all(now=self._leave_now)
        logs.stop()
        await server.finish()

    async def _recover(self, parts: Assembly) -> None:
        """Look what this machine can do, and go on with the runs of the daemon before."""
        machine, host = parts.machine, parts.host
        swept = await trio.to_thread.run_sync(parts.prepare_jobs)
        if swept:
            emit("warning", "leftovers_killed", processes=len(swept))
        await machine.probe()
        if machine.sandbox_fault is not None:
            emit("warning", "no_sandbox", why=machine.sandbox_fault)
        emit("info", "daemon_started", version=self._about.version, pid=os.getpid())
        for run in await host.crashed_runs():
            await parts.resume(run)
        host.recovered.set()

    async def _carry_out(self, name: str, params: Any, call: Call) -> Any:
        """Carry a call out; all but the first question of every client waits until there are methods."""
        if not self._assembled.is_set():
            if name == "daemon.info" and not params:
                return self._about.info(0)
            await self._assembled.wait()
        return await self._parts.dispatcher.carry_out(name, params, call)

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
        # A terminal that is closed asks the daemon in it to leave, unless it was started to outlive it (nohup).
        outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        hangup = () if outlives else (signal.SIGHUP,)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, *hangup) as signals:
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


def _import_tools() -> type[Tools]:
    """Import what asks for interpreters, in a thread: they answer while the rest is imported."""
    from sid_daemon.tools import Tools

    return Tools


def _import_the_rest() -> Callable[..., Assembly]:
    """Import all that is left, in a thread."""
    import_pydantic()
    import_pygit2()
    from sid_daemon.assembly import assemble

    return assemble


@contextmanager
def _letting_others_in() -> Iterator[None]:
    """Let the loop have its turn often while a thread computes: it waits for one each time it reads, writes or is woken."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


async def _settle() -> None:
    """Make a daemon that has started one that stays.

    What it has loaded is looked through for garbage once, now that nobody waits for it, and never again: that would hold the
    loop up for 100 ms at a time. Without this once, what is measured against it later would be looked through far more often.
    """
    await trio.sleep(_SETTLE_S)
    gc.collect()
    gc.freeze()
    gc.enable()
    await trio.to_thread.run_sync(let_code_go)


async def _then_cancel(wait: Callable[[], Awaitable[None]], nursery: trio.Nursery) -> None:
    await wait()
    nursery.cancel_scope.cancel()
