"""The bench actor: one benchmark run, or one round of guards, for each command.

Started by the run's composition root under the supervisor: one for the benchmark and one for the guards, which do not
wait for each other, and one a candidate where benchmarks may run side by side. It hands on what was measured as it
was: whether a score is good, and what follows from a red guard, is for the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from sid_actors.actor import Actor
from sid_actors.track import Track
from sid_actors.watching.activity import ActivityLog
from sid_actors.work_failed import work_failed
from sid_actors.workbench.base import Bench, BenchRun, Company
from sid_protocol.commands import Measure, RunGuards
from sid_protocol.errors import SidError
from sid_protocol.events import GuardResult, GuardsDone, RunMeasured, WorkFailed
from sid_protocol.settings import Settings


@dataclass(slots=True, kw_only=True, eq=False)
class BenchActor(Actor[Measure | RunGuards, RunMeasured | GuardsDone | WorkFailed]):
    """Turns one `Measure` or `RunGuards` into exactly one event.

    Attributes:
        bench: Where commands run.
        track: For the settings of the current round.
        baseline: The commit that the run began with; a guard that is red there blames no candidate.
    """

    bench: Bench
    track: Track
    baseline: str
    _baseline_passes: dict[str, bool] = field(default_factory=dict)

    async def handle(
        self, message: Measure | RunGuards, activity: ActivityLog
    ) -> RunMeasured | GuardsDone | WorkFailed:
        """Run what is asked for; where it cannot be run at all, say what to mend."""
        try:
            match message:
                case Measure():
                    activity.touch(f"benchmark of {message.arm}")
                    return await self._measure(message)
                case RunGuards():
                    return await self._guard(message, activity)
        except (SidError, OSError) as error:
            return work_failed(message.id, error)

    async def _measure(self, message: Measure) -> RunMeasured:
        settings = _limited(self.track.settings, message.limit_s)
        company = Company(message.slots, message.quiet)
        if message.beside is not None:
            run, other = await self.bench.measure_both(
                message.tree, message.beside_tree, message.iteration, settings, company
            )
            beside = _event(message, message.beside, message.beside_tree, other)
            return _event(message, message.arm, message.tree, run).model_copy(update={"beside": beside})
        run_once = self.bench.holdout if message.stage == "holdout" else self.bench.measure
        run = await run_once(message.tree, message.iteration, settings, company)
        return _event(message, message.arm, message.tree, run)

    async def _guard(self, message: RunGuards, activity: ActivityLog) -> GuardsDone:
        """Run the guards in order until one is red that is green on the baseline."""
        started = trio.current_time()
        results: list[GuardResult] = []
        excused: list[str] = []
        for command in self.track.settings.guard_command:
            activity.touch(f"guard: {command}")
            run = await self.bench.check(message.commit, command, message.iteration, self.track.settings)
            output = f"{run.output}\n[it did not end in time]".lstrip() if run.timed_out else run.output
            results.append(GuardResult(command=command, passed=run.passed, output=output))
            if run.passed:
                continue
            if await self._passes_baseline(command, message.iteration):
                break
            excused.append(command)
        return GuardsDone(
            cause=message.id,
            results=tuple(results),
            baseline_red=tuple(excused),
            duration_s=trio.current_time() - started,
        )

    async def _passes_baseline(self, command: str, iteration: int) -> bool:
        known = self._baseline_passes.get(command)
        if known is None:
            run = await self.bench.check(self.baseline, command, iteration, self.track.settings)
            known = self._baseline_passes[command] = run.passed
        return known


def _event(message: Measure, arm: str, tree: str, run: BenchRun) -> RunMeasured:
    return RunMeasured(
        cause=message.id,
        iteration=message.iteration,
        arm=arm,
        tree=tree,
        stage=message.stage,
        block=message.block,
        score=run.score,
        status=run.status,
        category=run.category,
        why=run.why,
        sub_scores=run.sub_scores,
        raw=run.raw,
        exit_code=run.exit_code,
        started_at=run.started_at,
        wall_s=run.wall_s,
        cpu_s=run.cpu_s,
        load1=run.load1,
    )


def _limited(settings: Settings, limit_s: float | None) -> Settings:
    """Return settings whose benchmark deadline is no longer than a limit."""
    if limit_s is None or limit_s >= settings.deadlines.benchmark:
        return settings
    deadlines = settings.deadlines.model_copy(update={"benchmark": limit_s})
    return settings.model_copy(update={"deadlines": deadlines})
