"""Runs the benchmark, guards and the hold-out: one command, in a clean checkout of exactly one tree.

The git-master's measuring and the set-up gate call it. It judges nothing: it hands back one run as it was. Every
arm sees the same path and the same environment; sealed files come from the trusted commit, whatever
the tree says; nothing of an earlier run is there. Benchmarks of one machine never overlap but where the user allows
it: they take turns by lock files, first come first served within this daemon. Those that do overlap have a checkout
each, all seen at the one path. Guards have a checkout of their own and do not wait for it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import trio

from sid_actors.git.repository import RepoInfo
from sid_actors.jobs.job import JobSpec, Mount
from sid_actors.jobs.limits import blame, limits_of
from sid_actors.jobs.overload import room_in
from sid_actors.standstill import AgentClock, Standstill
from sid_actors.workbench.base import ALONE, BenchRun, CommandRun, Company
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.checks.seal import SealRules
from sid_actors.workbench.checks.sealed_commit import resealed
from sid_actors.workbench.machine import MachineLock
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import Toolchain, find_toolchain
from sid_actors.workbench.scores.run import run_benchmark, run_command, unprepared
from sid_actors.workbench.scores.scoring import check_format
from sid_actors.workbench.setup_store import SetupFailed
from sid_actors.workbench.shared import Prepared, Shared
from sid_protocol.errors import BenchmarkError
from sid_protocol.settings import Settings

GUARD_OUTPUT_CHARACTERS = 4000
_PASSED = ("HOME", "LANG", "USER", "TERM")


class LocalBench:
    """Implements `Bench` on this machine.

    Args:
        info: The repository.
        root: The track's root; the checkouts lie in its pool.
        lock: The machine's lock, shared by all runs of the daemon.
        trusted: The commit whose sealed files every measured tree gets; None: each tree's own.
        sandboxed: Whether bubblewrap works here; `settings.sandbox` can still turn it off.
        standstill: Whose agents stand still where quiet is asked for; shared by all runs of the daemon.
        clock: That of the run's own agents, who do not.
    """

    def __init__(
        self,
        info: RepoInfo,
        root: str,
        *,
        lock: MachineLock,
        trusted: str | None = None,
        sandboxed: bool = True,
        standstill: Standstill | None = None,
        clock: AgentClock | None = None,
    ) -> None:
        self._info = info
        self._standstill = standstill or Standstill()
        self._clock = clock
        self._lock = lock
        self._trusted = trusted
        self._sandboxed = sandboxed
        self._shared = Shared(info, root, lock=lock, sandboxed=sandboxed)
        self._seen = f"{root}/pool/bench"
        self._benches = [PlainCheckout(info.common_dir, self._seen)]
        self._guard = PlainCheckout(info.common_dir, f"{root}/pool/guard")
        self._in_use: set[int] = set()
        self._guard_turn = trio.Lock()
        self._toolchains: dict[tuple[str, str, str], Toolchain] = {}  # by program, PATH and HOME

    async def measure(
        self, tree: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> BenchRun:
        """See `Bench.measure`."""
        return await self._score(tree, settings.benchmark_command, iteration, settings, company)

    async def measure_both(
        self, tree: str, beside: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> tuple[BenchRun, BenchRun]:
        """See `Bench.measure_both`."""
        if not self._is_enclosed(settings):
            raise BenchmarkError(
                "two runs at once see the same path only in a sandbox",
                hint="sictl config set measurement.pairing sequential",
            )
        prepared = [await self._prepare(one, settings) for one in (tree, beside)]
        runs = [unprepared(one) if isinstance(one, SetupFailed) else None for one in prepared]
        if any(runs):
            # Alone, the other would be measured on a quieter machine: this pair is void.
            why = SetupFailed("not run: the other run of its pair could not be prepared")
            first, second = (run or unprepared(why) for run in runs)
            return first, second
        command = settings.benchmark_command
        async with self._lock.held(), self._checkout() as left, self._checkout() as right:
            jobs = []
            for checkout, one, ready in zip((left, right), (tree, beside), prepared, strict=True):
                await self._fill(checkout, one, settings)
                if not isinstance(ready, SetupFailed):
                    jobs.append(await self._job(checkout.folder, ready, command, iteration, settings))
            async with self._hush(company), trio.open_nursery() as nursery:
                for index, job in enumerate(jobs):
                    nursery.start_soon(self._run_into, runs, index, job, settings)
        first, second = (run for run in runs if run is not None)
        return first, second

    async def _run_into(
        self, runs: list[BenchRun | None], index: int, job: JobSpec, settings: Settings
    ) -> None:
        runs[index] = await run_benchmark(job, settings)

    def _is_enclosed(self, settings: Settings) -> bool:
        return self._sandboxed and settings.sandbox != "off"

    async def holdout(
        self, tree: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> BenchRun:
        """Run the hold-out command once, as `measure` runs the benchmark.

        Raises:
            BenchmarkError: there is none, or it could not be run at all.
            GitError: the checkout failed.
        """
        return await self._score(tree, settings.holdout_command or "", iteration, settings, company)

    async def check(self, tree: str, command: str, iteration: int, settings: Settings) -> CommandRun:
        """See `Bench.check`."""
        prepared = await self._prepare(tree, settings)
        if isinstance(prepared, SetupFailed):
            return CommandRun(command=command, passed=False, output=prepared.message, timed_out=False)
        async with self._guard_turn:
            await self._fill(self._guard, tree, settings)
            job = await self._job(self._guard.folder, prepared, command, iteration, settings)
            result = await run_command(replace(job, merge_stderr=True, deadline_s=settings.deadlines.guard))
        passed = result.exit_code == 0 and not result.timed_out and result.over is None
        output = result.stdout.text().strip()[-GUARD_OUTPUT_CHARACTERS:]
        if not passed and (limit := blame(result, job.limits)):
            output = f"{output}\n[{limit}]".lstrip()
        return CommandRun(command=command, passed=passed, output=output, timed_out=result.timed_out)

    async def _score(
        self, tree: str, command: str, iteration: int, settings: Settings, company: Company
    ) -> BenchRun:
        check_format(settings.benchmark_format)
        if not command.strip():
            raise BenchmarkError("there is no benchmark command", hint="sictl init --benchmark CMD")
        prepared = await self._prepare(tree, settings)
        if isinstance(prepared, SetupFailed):
            return unprepared(prepared)
        # Side by side all see the same path only in a sandbox.
        together = company.slots > 1 and self._is_enclosed(settings)
        turn = self._lock.shared(company.slots) if together else self._lock.held()
        async with turn, self._checkout() as checkout:
            await self._fill(checkout, tree, settings)
            job = await self._job(checkout.folder, prepared, command, iteration, settings)
            async with self._hush(company):
                return await run_benchmark(job, settings)

    async def _toolchain(self, program: str, path: str, home: str) -> Toolchain:
        """Find what a program needs, once: asking the interpreters of a PATH takes up to a second."""
        asked = (program, path, home)
        if asked not in self._toolchains:
            programs = [program] if program else []
            self._toolchains[asked] = await trio.to_thread.run_sync(
                lambda: find_toolchain(path, home=home, programs=programs)
            )
        return self._toolchains[asked]

    def _hush(self, company: Company) -> AbstractAsyncContextManager[None]:
        """Let the agents of other runs stand still, if this run is to have quiet; with the machine's lock held."""
        return self._standstill.around(self._clock) if company.quiet else nullcontext()

    @asynccontextmanager
    async def _checkout(self) -> AsyncIterator[PlainCheckout]:
        """Lend a checkout for one run; whoever asks has a turn of the machine, so there are few."""
        number = next(n for n in range(len(self._benches) + 1) if n not in self._in_use)
        if number == len(self._benches):
            self._benches.append(PlainCheckout(self._info.common_dir, f"{self._seen}_{number + 1}"))
        self._in_use.add(number)
        try:
            yield self._benches[number]
        finally:
            self._in_use.discard(number)

    async def _prepare(self, tree: str, settings: Settings) -> Prepared | SetupFailed:
        """Run the set-up; one that fails for other lock files than the trusted ones is the candidate's doing."""
        try:
            return await self._shared.prepare(tree, settings)
        except SetupFailed as error:
            failed = error
        command = settings.setup_command or ""
        if self._trusted is None or await self._shared.same_setup(tree, self._trusted, command):
            raise failed
        return failed

    async def _fill(self, checkout: PlainCheckout, tree: str, settings: Settings) -> None:
        sealed = tree
        if self._trusted is not None and self._trusted != tree:
            sealed = await trio.to_thread.run_sync(
                resealed, self._info.common_dir, tree, self._trusted, SealRules.of(settings)
            )
        await checkout.fill(sealed)

    async def _job(
        self,
        folder: str,
        prepared: Prepared,
        command: str,
        iteration: int,
        settings: Settings,
    ) -> JobSpec:
        """Return the job of a command in a checkout; all of the benchmark's are seen where the first is."""
        home = os.environ.get("HOME", "/")
        path = os.environ.get("PATH", "/usr/bin:/bin")
        seen = folder if folder == self._guard.folder else self._seen
        shown = await self._shared.show(folder, prepared, settings, benchmark=True, seen=seen)
        sandbox = None
        if self._is_enclosed(settings):
            program = next(iter(command.split()), "")
            toolchain = await self._toolchain(program, path, home)
            path = toolchain.path
            sandbox = Sandbox(
                workdir=seen,
                writable=(),
                readable=toolchain.readable,
                sealed=(),
                network=settings.benchmark_network,
                home=home,
                mounts=(*shown, Mount(seen, writable=True, source=folder)),
            )
        passed = {name: value for name in _PASSED if (value := os.environ.get(name)) is not None}
        return JobSpec(
            argv=("/bin/sh", "-c", command),
            cwd=seen,
            env={
                **passed,
                "PATH": path,
                "SID_ITERATION": str(iteration),
                # what runs in a checkout must not find the repository around it
                "GIT_CEILING_DIRECTORIES": str(Path(seen).parent),
            },
            deadline_s=settings.deadlines.benchmark,
            limits=limits_of(settings.limits),
            sandbox=sandbox,
            room=room_in(folder, settings.limits),
        )
