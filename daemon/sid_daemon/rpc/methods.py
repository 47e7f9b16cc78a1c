"""The RPC methods of runs: thin functions from checked parameters to results.

Each finds its run, asks the conductor, the store or git, and shapes the answer; the rules are elsewhere. Served
by `dispatcher`, put together by `assembly`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import trio

from sid_actors.watching.activity import what_they_wait_in
from sid_daemon import track_config, verifying
from sid_daemon.about import About
from sid_daemon.clock import now_iso
from sid_daemon.core.state import RunState
from sid_daemon.layout import ARCHIVE, CANDIDATES, PLANS, brief_path, history_path, of_round, report_path
from sid_daemon.report import text
from sid_daemon.rpc import live_rows, rows
from sid_daemon.rpc.row_cache import RowCache, RowFacts
from sid_daemon.rpc.setting_rows import setting, setting_before, setting_rows
from sid_daemon.runs.host import Host
from sid_daemon.runs.recorded_rounds import measured_runs, recorded_rounds
from sid_daemon.runs.runstore import RunStore
from sid_daemon.setup.intake import Intake
from sid_daemon.setup.recalibrating import recalibrate
from sid_daemon.store.documents import documents_as
from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import NotRunning, Refused, StoreError
from sid_protocol.events import ConfigChanged, RunPaused, RunResumed
from sid_protocol.params import (
    ApplyParams,
    CancelParams,
    ConfigParams,
    HistoryParams,
    IdeaParams,
    InitParams,
    NoParams,
    PlotParams,
    ReplayParams,
    RoundParams,
    RunParams,
    ShutdownParams,
    StartParams,
)
from sid_protocol.records import (
    BenchmarkResult,
    IterationHistory,
    MergeReport,
    Plan,
    ResearchBrief,
)
from sid_protocol.settings import TRUSTED_KEYS, parse_file
from sid_protocol.status import (
    ApplyResult,
    CalibrateResult,
    ConfigResult,
    DiffResult,
    Empty,
    ExportResult,
    HistoryResult,
    InitResult,
    PlotResult,
    ReplayResult,
    RoundResult,
    RunList,
    RunRow,
    RunStatusResult,
    SettingChange,
    StartResult,
    SummaryResult,
    VerifyResult,
)


class Reports(RowFacts, Protocol):
    """What methods need of git and of the chart; the composition root provides it."""

    async def diff(self, state: RunState) -> DiffResult:
        """Return what the improvement branch changes against the target branch."""

    async def apply(self, state: RunState, *, confirm: bool) -> ApplyResult:
        """Move the target branch, or tell what would be done."""

    async def plot(self, state: RunState, store: RunStore, form: str) -> PlotResult:
        """Draw the step chart."""


class Methods:
    """The methods of one daemon.

    Args:
        host: Its runs.
        intake: Its gate.
        reports: Git and charts.
        shut_down: Asks the daemon to leave: `shut_down(now)`.
        about: What daemon it is.
    """

    def __init__(
        self,
        host: Host,
        intake: Intake,
        reports: Reports,
        shut_down: Callable[[bool], None],
        about: About,
    ) -> None:
        self._host = host
        self._intake = intake
        self._reports = reports
        self._shut_down = shut_down
        self._about = about
        self._row_cache = RowCache(host, reports)

    def handlers(self) -> Mapping[str, Callable[[Any, Any], Awaitable[Any]]]:
        """Return method → what carries it out."""
        return {
            "daemon.info": self.info,
            "daemon.shutdown": self.shutdown,
            "run.init": self.init,
            "run.start": self.start,
            "run.replay": self.replay,
            "run.list": self.list,
            "run.status": self.status,
            "run.cancel": self.cancel,
            "run.pause": self.pause,
            "run.resume": self.resume,
            "run.history": self.history,
            "run.round": self.round,
            "run.idea": self.idea,
            "run.config": self.config,
            "run.diff": self.diff,
            "run.apply": self.apply,
            "run.plot": self.plot,
            "run.export": self.export,
            "run.verify": self.verify,
            "run.summary": self.summary,
            "run.calibrate": self.calibrate,
        }

    async def info(self, _params: NoParams, _call: object) -> Mapping[str, Any]:
        """`daemon.info`."""
        return self._about.info(len(self._host.active))

    async def shutdown(self, params: ShutdownParams, _call: object) -> Empty:
        """`daemon.shutdown`: answers at once, then leaves."""
        self._shut_down(params.now)
        return Empty()

    async def init(self, params: InitParams, _call: object) -> InitResult:
        """`run.init`."""
        return await self._intake.init(params)

    async def start(self, params: StartParams, _call: object) -> StartResult:
        """`run.start`."""
        return await self._intake.start(params)

    async def replay(self, params: ReplayParams, _call: object) -> ReplayResult:
        """`run.replay`."""
        return await self._intake.replay(params)

    async def list(self, _params: NoParams, _call: object) -> RunList:
        """`run.list`."""
        runs = await self._host.runs()
        listed = [await self._listed(run) for run in runs]
        order = {"running": 0, "paused": 1}
        return RunList(runs=sorted(listed, key=lambda row: order.get(row.status, 2)))

    async def _listed(self, run: KnownRun) -> RunRow:
        try:
            return await self._row(run)
        except StoreError as error:  # one that cannot be read hides no other
            return live_rows.lost_row(run, str(error))

    async def status(self, params: RunParams, _call: object) -> RunRow:
        """`run.status`."""
        return await self._row(await self._host.find(params.run, params.topic))

    async def _row(self, run: KnownRun) -> RunRow:
        conductor = self._host.live(run.run_id)
        if conductor is not None:
            waits = await what_they_wait_in({key: work.activity for key, work in conductor.works.items()})
            actors = live_rows.actor_rows(
                conductor.state, conductor.under_way, conductor.works, conductor.clock.now(), waits
            )
            return rows.run_row(
                conductor.state,
                actors=actors,
                sandbox=self._reports.sandbox(conductor.state),
                now=now_iso(),
                forecast=self._reports.forecast(conductor.state),
            )
        return await self._row_cache.row(run)

    async def cancel(self, params: CancelParams, _call: object) -> RunStatusResult:
        """`run.cancel`: answers after the run has stopped."""
        conductor = await self._host.conductor(await self._host.find(params.run, params.topic))
        await conductor.stop(now=params.now)
        return RunStatusResult(status=conductor.state.status)

    async def pause(self, params: RunParams, _call: object) -> RunStatusResult:
        """`run.pause`."""
        conductor = await self._host.conductor(await self._host.find(params.run, params.topic))
        if conductor.state.status == "running":
            await conductor.submit(RunPaused())
        return RunStatusResult(status="paused")

    async def resume(self, params: RunParams, _call: object) -> RunStatusResult:
        """`run.resume`."""
        conductor = await self._host.conductor(await self._host.find(params.run, params.topic))
        if conductor.state.status != "paused":
            raise NotRunning(f"run {conductor.state.run_id} is not paused", hint="it is running")
        await conductor.submit(RunResumed())
        return RunStatusResult(status="running")

    async def history(self, params: HistoryParams, _call: object) -> HistoryResult:
        """`run.history`."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, store):
            last = state.completed
            end = min(last, params.since + params.limit)
            found = [
                rows.round_summary(history, report, state.settings.benchmark_direction)
                async for history, report in recorded_rounds(store, params.since + 1, end)
            ]
            return HistoryResult(rounds=found, next=end if end < last else None)

    async def round(self, params: RoundParams, _call: object) -> RoundResult:
        """`run.round`: a recorded round, or the one under way."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, store):
            iteration = params.iteration or max(state.iteration, 1)
            history = await store.document(history_path(iteration))
            report = await store.document(report_path(iteration))
            brief = await store.document(brief_path(iteration))
            plans = await store.documents(of_round(ARCHIVE, iteration))
            plans = plans or await store.documents(of_round(PLANS, iteration))
            results = await store.documents(of_round(CANDIDATES, iteration))
            is_open = state.round is not None and state.round.iteration == iteration
            if history is None and not plans and brief is None and not is_open:
                raise _no_round(run, params.iteration, max(state.iteration, state.completed))
            told = IterationHistory.model_validate_json(history) if history else None
            merged = MergeReport.model_validate_json(report) if report else None
            direction = state.settings.benchmark_direction
            return RoundResult(
                summary=rows.round_summary(told, merged, direction)
                if told and merged
                else live_rows.open_round(state),
                brief=ResearchBrief.model_validate_json(brief) if brief else None,
                plans=documents_as(Plan, plans),
                results=documents_as(BenchmarkResult, results),
                history=told,
                merge_report=merged,
                tags=live_rows.tags_by_executor(merged, state.topic),
                runs=[rows.measured_run(one) for one in await measured_runs(store, iteration)],
            )

    async def idea(self, params: IdeaParams, _call: object) -> Empty:
        """`run.idea`."""
        run = await self._host.find(params.run, params.topic)
        await trio.to_thread.run_sync(track_config.append_idea, Path(run.root), params.text)
        return Empty()

    async def config(self, params: ConfigParams, _call: object) -> ConfigResult:
        """`run.config`: list, get or set."""
        run = await self._host.find(params.run, params.topic)
        root = Path(run.root)
        if not params.sets or params.key is None:
            raw = await trio.to_thread.run_sync(track_config.read_raw, root) or {}
            return ConfigResult(settings=setting_rows(parse_file(raw), raw, params.key))
        if self._host.live(run.run_id) is not None and params.key.split(".")[0] in TRUSTED_KEYS:
            raise Refused(
                f"{params.key} is covered by trust and the run is active",
                hint=f"stop it, then: {run.command('init', f'--set {params.key}=…', '--trust')}",
            )
        raw, changed = await trio.to_thread.run_sync(
            track_config.change_setting, root, params.key, params.value
        )
        settings = parse_file(changed)
        old, new = setting_before(raw, params.key), setting(settings, params.key)
        change = None
        if old != new:
            conductor = await self._host.take_in(
                run, ConfigChanged(field=params.key, old_value=old, new_value=new)
            )
            from_round = None if conductor is None else conductor.state.iteration + 1
            change = SettingChange(key=params.key, old=old, new=new, from_round=from_round)
        notes = []
        if change is not None and params.key.split(".")[0] in TRUSTED_KEYS:
            notes.append(
                f"{params.key} is covered by trust; confirm before the next start: {run.command('init', '--trust')}"
            )
        return ConfigResult(
            settings=setting_rows(settings, changed, params.key),
            changed=change,
            notes=notes,
        )

    async def diff(self, params: RunParams, _call: object) -> DiffResult:
        """`run.diff`."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, _):
            return await self._reports.diff(state)

    async def apply(self, params: ApplyParams, _call: object) -> ApplyResult:
        """`run.apply`."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, _):
            return await self._reports.apply(state, confirm=params.confirm)

    async def plot(self, params: PlotParams, _call: object) -> PlotResult:
        """`run.plot`."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, store):
            return await self._reports.plot(state, store, params.format)

    async def export(self, params: RunParams, _call: object) -> ExportResult:
        """`run.export`."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (_, store):
            files = await store.export()
        return ExportResult(root=run.root, files=[f"{run.root}/{path}" for path in files])

    async def verify(self, params: RunParams, _call: object) -> VerifyResult:
        """`run.verify`; once what a killed daemon could not write any more is written."""
        await self._host.recovered.wait()
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, store):
            lines = await verifying.disagreements(state, store)
            return VerifyResult(agrees=not lines, disagreements=lines, rounds=state.completed)

    async def calibrate(self, params: RunParams, _call: object) -> CalibrateResult:
        """`run.calibrate`."""
        return await recalibrate(self._host, self._intake, await self._host.find(params.run, params.topic))

    async def summary(self, params: RunParams, _call: object) -> SummaryResult:
        """`run.summary`."""
        run = await self._host.find(params.run, params.topic)
        async with self._host.opened(run) as (state, _):
            return SummaryResult(text=text.summary_text(state), fields=text.summary_fields(state))


def _no_round(run: KnownRun, iteration: int, last: int) -> Refused:
    if not last:
        return Refused(f"run {run.run_id} has no round yet", hint=f"start it: {run.command('start')}")
    return Refused(f"run {run.run_id} has no round {iteration}", hint=f"its rounds go from 1 to {last}")
