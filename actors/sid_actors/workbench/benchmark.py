"""Runs the benchmark, guards and the hold-out: one command, in a clean checkout of exactly one tree.

The git-master's measuring and the set-up gate call it. It judges nothing: it hands back one run as it was. Every
arm sees the same path and the same environment; sealed files come from the trusted commit, whatever
the tree says; nothing of an earlier run is there. Benchmarks of one machine never overlap but where the user allows
it: they take turns by lock files, first come first served within this daemon. Those that do overlap have a checkout
each, all seen at the one path. Guards have a checkout of their own and do not wait for it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import trio

from sid_actors.git.repository import RepoInfo
from sid_actors.git.trees import changes, open_repository, tree_of, with_changes
from sid_actors.jobs.job import JobResult, JobSpec, JobStartError, Mount
from sid_actors.jobs.limits import blame, limits_of
from sid_actors.jobs.overload import room_in
from sid_actors.jobs.process import run_job
from sid_actors.standstill import AgentClock, Standstill
from sid_actors.workbench.base import ALONE, BenchRun, CommandRun, Company
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.checks.seal import SealRules
from sid_actors.workbench.checks.sealed_commit import known_seal
from sid_actors.workbench.machine import MachineLock
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import Toolchain, find_toolchain
from sid_actors.workbench.scores import searching
from sid_actors.workbench.scores.matching import Match
from sid_actors.workbench.scores.scoring import Score, ScoreFault, check_format, parse_score, within
from sid_actors.workbench.setup_store import SetupFailed
from sid_actors.workbench.shared import Prepared, Shared
from sid_protocol.errors import BenchmarkError
from sid_protocol.records import Category
from sid_protocol.settings import Settings

GUARD_OUTPUT_CHARACTERS = 4000
RAW_CHARACTERS = 16_000
TOKEN_VARIABLE = "SID_SCORE_TOKEN"  # noqa: S105 -- a name
_PASSED = ("HOME", "LANG", "USER", "TERM")
_SIGKILL = 9


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
        runs = [_unprepared(one) if isinstance(one, SetupFailed) else None for one in prepared]
        if any(runs):
            # Alone, the other would be measured on a quieter machine: this pair is void.
            why = SetupFailed("not run: the other run of its pair could not be prepared")
            first, second = (run or _unprepared(why) for run in runs)
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
        runs[index] = await _measured(job, settings)

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
            result = await _run(replace(job, merge_stderr=True, deadline_s=settings.deadlines.guard))
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
            return _unprepared(prepared)
        # Side by side all see the same path only in a sandbox.
        together = company.slots > 1 and self._is_enclosed(settings)
        turn = self._lock.shared(company.slots) if together else self._lock.held()
        async with turn, self._checkout() as checkout:
            await self._fill(checkout, tree, settings)
            job = await self._job(checkout.folder, prepared, command, iteration, settings)
            async with self._hush(company):
                return await _measured(job, settings)

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
                _with_trusted, self._info.common_dir, tree, self._trusted, SealRules.of(settings)
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


async def _run(job: JobSpec) -> JobResult:
    try:
        return await run_job(job)
    except JobStartError as error:
        raise BenchmarkError(f"the command could not be started: {error.message}", hint=error.hint) from error


async def _measured(job: JobSpec, settings: Settings) -> BenchRun:
    """Run a benchmark's job once and read its score."""
    # Fresh for each run: what was printed without it was not printed by this run's benchmark.
    token = secrets.token_hex(16) if settings.score_token else None
    if token:
        job = replace(job, env={**job.env, TOKEN_VARIABLE: token})
    load1 = os.getloadavg()[0]
    started_at = datetime.now(UTC).isoformat(timespec="microseconds")
    result = await _run(job)
    matched = await searching.matched(result, settings.benchmark_format)
    verdict = await trio.to_thread.run_sync(_judge, result, matched, job, settings, token)
    return BenchRun(
        score=verdict.score,
        status=verdict.status,
        category=verdict.category,
        why=verdict.why,
        sub_scores=verdict.sub_scores,
        raw=_capped(result),
        exit_code=result.exit_code,
        started_at=started_at,
        wall_s=result.wall_s,
        cpu_s=result.cpu_s,
        load1=load1,
    )


@dataclass(frozen=True, slots=True)
class _Verdict:
    score: float | None
    status: str
    category: Category | None
    why: str
    sub_scores: dict[str, float]


def _judge(
    result: JobResult,
    matched: Match | ScoreFault | None,
    job: JobSpec,
    settings: Settings,
    token: str | None,
) -> _Verdict:
    if result.over is not None:
        category: Category = "oom" if result.over.name == "memory_mb" else "logic_error"
        return _Verdict(None, "error", category, f"the benchmark was ended: {result.over.why}", {})
    if result.timed_out:
        why = f"the benchmark did not end within {settings.deadlines.benchmark:g} s"
        return _Verdict(None, "timeout", "timeout", why, {})
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
        return _Verdict(found.value, "success", None, "", found.sub_scores)
    said = result.stderr.last_line() or result.stdout.last_line() or ""
    category = found.category
    if category == "logic_error" and (result.signal == _SIGKILL or "MemoryError" in said):
        category = "oom"
    why = f"{found.why}: {said[:300]}" if said and category != "benchmark_parse_error" else found.why
    if category in ("oom", "logic_error") and (limit := blame(result, job.limits)):
        why = f"{why} ({limit})"
    return _Verdict(None, "error", category, why, {})


def _unprepared(error: SetupFailed) -> BenchRun:
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


def _with_trusted(common_dir: str, tree: str, trusted: str, rules: SealRules) -> str:
    """Return the tree with every sealed path as the trusted commit has it; a path that it lacks is gone."""
    seal = known_seal(common_dir, trusted, rules)
    repo = open_repository(common_dir)
    own = tree_of(repo, tree)
    differing = changes(repo, tree_of(repo, trusted), own)
    wanted = {c.path: c.old for c in differing if seal.holds(c.path, exists=c.old is not None)}
    return with_changes(repo, own, wanted) if wanted else own
