"""A repository as set-up sees it: git, the seal and the benchmark behind `intake.Site`.

Made by the composition root for one `init` or `start`, and closed after it. It decides nothing.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import trio

from sid_actors.backends.command.turnstile import Turnstile, processors
from sid_actors.backends.command.visible import check_agent_command
from sid_actors.backends.model.anthropic_api import Service
from sid_actors.backends.model.keys import read_key
from sid_actors.git import refs
from sid_actors.git.master import GitMaster
from sid_actors.git.repository import RepoInfo, discover
from sid_actors.git.trees import open_repository
from sid_actors.standstill import Standstill
from sid_actors.workbench.base import BenchRun, CommandRun, Company
from sid_actors.workbench.benchmark import LocalBench
from sid_actors.workbench.checkouts.bulk import delete
from sid_actors.workbench.checkouts.submodules import check_submodules
from sid_actors.workbench.checks.detectors import check_names
from sid_actors.workbench.checks.seal import editable
from sid_actors.workbench.checks.sealed_commit import seal_of, tracked_files
from sid_actors.workbench.machine import MachineLock
from sid_actors.workbench.sandbox.probe import probe_bwrap
from sid_actors.workbench.scores.scoring import check_format
from sid_actors.workbench.shared import check_paths
from sid_daemon.core.state import RunState
from sid_daemon.forecast import estimate_line
from sid_daemon.tools import Tools
from sid_protocol.errors import GitError, Refused, SettingsInvalid
from sid_protocol.ids import side_ref
from sid_protocol.locations import track_root
from sid_protocol.settings import Settings

BACKENDS = ("local", "command", "anthropic")


class Machine:
    """What this machine can do, found out once a daemon.

    Args:
        lock: The machine's benchmark lock.
        service: What all runs share of a model service.
        tools: Its interpreters.
    """

    def __init__(self, lock: MachineLock, service: Service | None = None, tools: Tools | None = None) -> None:
        self.lock = lock
        self.tools = tools or Tools()
        self.standstill = Standstill()
        self.turnstile = Turnstile(processors() + 1)
        self.service = service or Service()
        self.sandbox_fault: str | None = None
        self._probed = trio.Event()

    async def probe(self) -> None:
        """Find out whether bubblewrap works here, by running it."""
        self.sandbox_fault = await probe_bwrap()
        self._probed.set()

    async def known(self) -> None:
        """Wait until the probe is done; the first runs after a start may come before it."""
        await self._probed.wait()

    def contained(self, settings: Settings) -> bool:
        """Say whether jobs run in the sandbox with these settings."""
        return settings.sandbox != "off" and self.sandbox_fault is None

    def describe(self, settings: Settings) -> str:
        """Return how jobs are contained with these settings, one line; empty for the sandbox."""
        if self.contained(settings):
            return ""
        if settings.sandbox == "off":
            return "no sandbox: switched off in the settings; agents and benchmarks run as you"
        return f"no sandbox: {self.sandbox_fault}"

    def check(self, settings: Settings) -> None:
        """Refuse a back end that needs a sandbox where none works.

        Raises:
            Refused: with what helps.
        """
        if settings.sandbox != "off" and self.sandbox_fault and settings.agent_backend != "local":
            raise Refused(
                f"the {settings.agent_backend} back end needs a sandbox: {self.sandbox_fault}",
                hint="or accept the risk: sictl init --set 'sandbox=\"off\"' --trust",
            )
        if self.contained(settings):
            return
        for key, is_set, usual in (
            ("pairing duet", settings.measurement.pairing == "duet", "pairing sequential"),
            ("slots above 1", settings.measurement.slots > 1, "slots 1"),
        ):
            if is_set:
                raise Refused(
                    f"measurement.{key} needs a sandbox: runs at the same time must see the same path",
                    hint=f"sictl config set measurement.{usual}",
                )


class LocalSite:
    """One repository on this machine.

    Args:
        info: The repository.
        root: The track's root.
        machine: What this machine can do.
    """

    def __init__(self, info: RepoInfo, root: str, machine: Machine) -> None:
        self.info = info
        self.root = root
        self._machine = machine
        self._git = GitMaster(info)
        self._bench: LocalBench | None = None
        self._made: list[Path] = []

    async def target_commit(self, branch: str) -> str:
        """Return the commit of a branch; raises `GitError` where there is none."""

        def look() -> str | None:
            return refs.target(open_repository(self.info.common_dir), f"refs/heads/{branch}")

        commit = await trio.to_thread.run_sync(look)
        if commit is None:
            known = ", ".join(self.info.branches[:10])
            raise GitError(f"there is no branch {branch}", hint=f"set target_branch to one of: {known}")
        return commit

    async def improve_head(self, slug: str) -> str | None:
        """Return the head of an improvement branch, or None where it is missing."""

        def look() -> bool:
            repo = open_repository(self.info.common_dir)
            names = (f"refs/heads/improve/{slug}", side_ref(slug))
            return any(refs.target(repo, name) for name in names)

        return (await self._git.head(slug)).commit if await trio.to_thread.run_sync(look) else None

    async def sealed(self, commit: str, settings: Settings) -> tuple[tuple[str, ...], bool]:
        """Return the sealed paths of a commit, and whether anything editable is left in scope."""
        seal = await seal_of(self.info.common_dir, commit, settings)
        tracked = await tracked_files(self.info.common_dir, commit)
        return seal.shown, bool(editable(tracked, seal, settings.scope))

    async def check(self, settings: Settings) -> str:
        """Return how jobs will be contained; raises where they cannot run."""
        check_format(settings.benchmark_format)
        check_names(settings.detectors)
        if settings.agent_backend not in BACKENDS:
            raise SettingsInvalid(
                "agent_backend",
                f"a run that acts cannot go on by {settings.agent_backend}",
                hint=f"use one of: {', '.join(BACKENDS)}; sictl replay RUN starts a replay",
            )
        if settings.replay_from is not None:
            raise SettingsInvalid(
                "replay_from", "goes with agent_backend replay", hint="start a replay with: sictl replay RUN"
            )
        if settings.agent_command or settings.agent_backend != "command":
            await trio.to_thread.run_sync(check_agent_command, settings, self.info.top)
        if settings.agent_backend == "anthropic":
            await trio.to_thread.run_sync(read_key, settings, self.info.top)
        commit = await self.target_commit(settings.target_branch)
        await check_submodules(self.info.common_dir, commit)
        tracked = await tracked_files(self.info.common_dir, commit)
        home = os.environ.get("HOME", "/")
        await trio.to_thread.run_sync(check_paths, settings, self.info.top, tracked, home)
        await self._machine.known()
        self._machine.check(settings)
        return self._machine.describe(settings)

    def estimate(self, settings: Settings) -> str:
        """Return what models will cost, one line; empty without any."""
        return estimate_line(settings, self._machine.service.prices)

    async def measure(self, commit: str, settings: Settings) -> BenchRun:
        """Run the benchmark once on a commit."""
        company = Company(quiet=settings.measurement.quiet)
        return await self._made_bench(settings).measure(commit, 0, settings, company)

    async def guards_red(self, commit: str, settings: Settings) -> list[CommandRun]:
        """Return how the guard commands that fail on a commit ended."""
        bench = self._made_bench(settings)
        runs = [await bench.check(commit, command, 0, settings) for command in settings.guard_command]
        return [run for run in runs if not run.passed]

    def _made_bench(self, settings: Settings) -> LocalBench:
        if self._bench is None:
            folders = (Path(self.root), *Path(self.root).parents)
            self._made = [folder for folder in folders if not folder.exists()]
            self._bench = LocalBench(
                self.info,
                self.root,
                lock=self._machine.lock,
                sandboxed=self._machine.contained(settings),
                standstill=self._machine.standstill,
            )
        return self._bench

    async def give_up_round(self, state: RunState) -> None:
        """Archive the candidates of a round that was stopped and is taken back, and delete its branches."""
        executions = state.round.executions.values() if state.round else ()
        for one in executions:
            if one.commit is not None:
                await self._git.archive(state.topic, state.iteration, one.executor, one.commit)
            await self._git.delete_branch(state.topic, state.iteration, one.executor)

    async def exclude_ours(self) -> None:
        """Keep our folders out of `git status`."""
        await self._git.exclude_ours()

    async def make_branch(self, slug: str, target_branch: str) -> None:
        """Create the improvement branch if it is missing."""
        await self._git.ensure_branch(slug, target_branch)

    async def close(self) -> None:
        """Remove what measuring left; the pool of a run at work is not ours to touch."""
        if self._bench is None:
            return
        self._bench = None
        await delete(f"{self.root}/pool")
        await trio.to_thread.run_sync(_remove_empty, self._made)


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:  # deepest first
        with contextlib.suppress(OSError):  # not empty: a track has been set up
            folder.rmdir()


class OpenLocalSite:
    """Opens repositories on this machine.

    Args:
        machine: What it can do.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def __call__(self, path: str, root: str | None, topic: str) -> LocalSite:
        """Look at a repository; raises `GitError` where it cannot be worked on."""
        info = await discover(path)
        chosen = await trio.to_thread.run_sync(
            lambda: track_root(info.top, None if topic == "default" else topic, root, os.path.isdir)
        )
        return LocalSite(info, str(Path(chosen)), self._machine)
