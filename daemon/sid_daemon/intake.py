"""Where requests to set up and to start come in: goal, benchmark, harness and trust, or nothing runs.

`init` checks everything before it writes anything, and writes the track only once the benchmark has run on the
baseline. `start` checks trust again, by whatever hand the settings were changed since.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import trio
from pydantic import JsonValue

from sid_actors.repository import RepoInfo
from sid_actors.workbench.base import BenchRun
from sid_daemon import config, gate, takeover
from sid_daemon.clock import now_iso
from sid_daemon.core import calibration
from sid_daemon.core.calibration import Calibrated, Calibration
from sid_daemon.core.run import step
from sid_daemon.core.selection import RunResult
from sid_daemon.core.state import RunState
from sid_daemon.goal import read_families, read_objective, read_rules, render_goal, render_harness
from sid_daemon.host import CLOSE_LIMIT_S, Host
from sid_daemon.ids import new_run_id
from sid_daemon.runstore import RunStore
from sid_daemon.store.registry import KnownRun
from sid_daemon.store.views import Projection, project
from sid_protocol.errors import AlreadyRunning, NoSuchRun, Refused
from sid_protocol.events import CarriedOver, RoundsAsked, RunCreated
from sid_protocol.ids import goal_slug, topic_slug
from sid_protocol.locations import track_root
from sid_protocol.params import InitParams, StartParams
from sid_protocol.settings import (
    TRUSTED_KEYS,
    Settings,
    check_family_count,
    parse_settings,
    trust_digest,
)
from sid_protocol.status import BaselineReport, InitResult, StartResult


class Site(Protocol):
    """A repository as set-up needs it; the composition root provides the real one."""

    info: RepoInfo

    async def target_commit(self, branch: str) -> str:
        """Return the commit of a branch; raises `GitError` where there is none."""

    async def improve_head(self, slug: str) -> str | None:
        """Return the head of an improvement branch, or None where it is missing."""

    async def sealed(self, commit: str, settings: Settings) -> tuple[tuple[str, ...], bool]:
        """Return the sealed paths of a commit, and whether anything editable is left in scope."""

    async def check(self, settings: Settings) -> str:
        """Return how jobs will be contained; raises `Refused` or `UsageError` where they cannot run."""

    async def measure(self, commit: str, settings: Settings) -> BenchRun:
        """Run the benchmark once on a commit."""

    async def guards_red(self, commit: str, settings: Settings) -> list[str]:
        """Return the guard commands that fail on a commit."""

    async def make_branch(self, slug: str, target_branch: str) -> None:
        """Create the improvement branch if it is missing, and keep our folders out of `git status`."""

    async def close(self) -> None:
        """Remove what measuring left."""


class OpenSite(Protocol):
    """Opens a repository for set-up."""

    async def __call__(self, path: str, root: str | None, topic: str) -> Site:
        """Look at a repository; raises `GitError` where it cannot be worked on."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What `init` is about to make."""

    root: Path
    topic: str
    raw: dict[str, JsonValue]
    settings: Settings
    objective: str
    harness: str
    fresh_goal: bool


class Intake:
    """The gate of one daemon.

    Args:
        host: Its runs.
        open_site: Opens repositories.
    """

    def __init__(self, host: Host, open_site: OpenSite) -> None:
        self._host = host
        self._open_site = open_site

    async def init(self, params: InitParams) -> InitResult:
        """Set a track up, or tell what is missing.

        Raises:
            GitError: the repository cannot be worked on.
            SettingsInvalid: a setting is wrong.
            Refused: the benchmark fails on the baseline, or jobs cannot be contained.
            AlreadyRunning: the run is active.
        """
        site = await self._open_site(params.repo, params.root, topic_slug(params.topic or ""))
        try:
            return await self._init(site, params)
        finally:
            with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                await site.close()

    async def _init(self, site: Site, params: InitParams) -> InitResult:
        repo = site.info.top
        root = Path(await trio.to_thread.run_sync(find_root, repo, params.topic, params.root))
        draft = await trio.to_thread.run_sync(_draft, root, params, _default_branch(site.info))
        settings = draft.settings
        commit = await site.target_commit(settings.target_branch)
        sealed, editable = await site.sealed(commit, settings)
        trusted = params.trust or await self._host.is_trusted(repo, trust_digest(settings))
        missing = gate.missing_flags(draft.objective, settings, trusted=trusted)
        if not editable and settings.benchmark_command:
            missing.append("--scope")
        notes = [await site.check(settings)]
        result = InitResult(
            run_id=None,
            root=str(root),
            missing=missing,
            repo=repo,
            topic=draft.topic,
            sealed=list(sealed),
            trusted=trusted,
            trusts=_trusts(settings),
            goal=gate.score_goal(draft.objective, params),
            notes=[note for note in notes if note],
        )
        if missing or params.dry_run:
            return result
        await self._refuse_while_active(repo, root)
        return await self._make(site, draft, result, commit)

    async def _refuse_while_active(self, repo: str, root: Path) -> None:
        for run in await self._host.runs():
            if run.root == str(root) and run.run_id in self._host.active:
                raise AlreadyRunning(
                    f"run {run.run_id} is active in {repo}", hint=f"stop it first: sictl stop {run.run_id}"
                )

    async def _make(self, site: Site, draft: Draft, result: InitResult, commit: str) -> InitResult:
        repo, at = site.info.top, now_iso()
        await self._host.trust(repo, trust_digest(draft.settings), at)
        earlier = await trio.to_thread.run_sync(takeover.read_track, draft.root)
        slug = (earlier.goal_slug if earlier else "") or goal_slug(draft.objective)
        known = next((run for run in await self._host.runs() if run.root == str(draft.root)), None)
        store = RunStore(draft.root, self._host.copy_path(known.run_id if known else "new"))
        present = await self._present(store, draft)
        if present is not None:
            earlier = None
            slug = present.goal_slug if not draft.fresh_goal else goal_slug(draft.objective)
        try:
            head = await site.improve_head(slug) or commit
            runs, found = await calibrate(site, head, draft.settings)
            red = await site.guards_red(head, draft.settings)
            await trio.to_thread.run_sync(_write_config, draft)
            await site.make_branch(slug, draft.settings.target_branch)
            run_id = present.run_id if present else known.run_id if known else new_run_id()
            created = _created(run_id, site, draft, slug, head, runs, found, earlier)
            store.copy_path = self._host.copy_path(run_id)
            if store.is_closed:
                await store.open()
            await _record(store, present, created, earlier)
        finally:
            with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                await store.close()
        await self._host.remember(
            KnownRun(
                run_id=run_id,
                repo=repo,
                common_dir=site.info.common_dir,
                topic=draft.topic,
                root=str(draft.root),
                active=False,
                created_at=known.created_at if known else at,
            )
        )
        report = report_of(created)
        notes = [*result.notes, *(earlier.notes if earlier else ()), *_advice(found, red)]
        return result.model_copy(
            update={"run_id": run_id, "baseline": report, "notes": notes, "took_over": earlier is not None}
        )

    async def _present(self, store: RunStore, draft: Draft) -> RunState | None:
        if not await trio.Path(draft.root / "state" / "run.db").exists():
            return None
        return await store.open()

    async def start(self, params: StartParams) -> StartResult:
        """Start or resume the run of a track.

        Raises:
            NoSuchRun: there is no track.
            Refused: trust, the gate, or another mode is in the way.
            AlreadyRunning: the repository has an active run.
            SettingsInvalid: a setting is wrong.
        """
        site = await self._open_site(params.repo, params.root, topic_slug(params.topic or ""))
        try:
            repo = site.info.top
            root = Path(await trio.to_thread.run_sync(find_root, repo, params.topic, params.root))
            run = await self._run_at(site, root)
            read = await trio.to_thread.run_sync(_checked_config, root, repo)
            await self.check_trust(repo, read.settings)
            mode = await trio.to_thread.run_sync(takeover.active_mode, Path(repo), time.time())
            if mode is not None and "/.omc/" in f"{root}/":
                raise Refused(
                    f"mode {mode} is active in {repo}", hint="end it, or wait until it is 30 minutes old"
                )
            await site.check(read.settings)
            await site.target_commit(read.settings.target_branch)
            if run is None:
                run = await self._take_over(site, params)
        finally:
            with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                await site.close()
        resumed = self._host.take_resumed(run.run_id)
        if resumed is not None:
            if params.rounds is not None:
                await resumed.submit(RoundsAsked(rounds=params.rounds))
            return StartResult(run_id=run.run_id, resumed=True, status=resumed.state.status)
        await self._host.restore(run)
        state = await self._host.start(run, read.settings, rounds=params.rounds)
        return StartResult(run_id=run.run_id, resumed=state.starts > 1, status=state.status)

    async def check_trust(self, repo: str, settings: Settings) -> None:
        """Refuse settings that the user has not confirmed.

        Raises:
            Refused: nothing may run with these settings here.
        """
        if not await self._host.is_trusted(repo, trust_digest(settings)):
            raise Refused(
                f"{repo} is not trusted with its present settings",
                hint=f"look at them and confirm: sictl init {repo} --trust",
                data={"trusts": _trusts(settings)},
            )

    async def _run_at(self, site: Site, root: Path) -> KnownRun | None:
        """Return the registered run of a root; a root that came back without the registry is entered anew."""
        runs = await self._host.runs()
        known = next((run for run in runs if run.root == str(root)), None)
        if known is not None:
            return known
        if await trio.Path(root / "state" / "run.db").exists():
            store = RunStore(root, self._host.copy_path("new"))
            state = await store.open()
            await store.close()
            if state is not None:
                run = KnownRun(
                    run_id=state.run_id,
                    repo=site.info.top,
                    common_dir=site.info.common_dir,
                    topic=state.topic,
                    root=str(root),
                    active=False,
                    created_at=state.created_at,
                )
                await self._host.remember(run)
                return run
        if not await trio.Path(root / "config" / "settings.json").exists():
            raise NoSuchRun(
                f"no track is set up in {site.info.top}", hint=f"set it up: sictl init {site.info.top}"
            )
        return None

    async def _take_over(self, site: Site, params: StartParams) -> KnownRun:
        """Make a run of a track that another tool has made; its settings are trusted already."""
        made = await self._init(site, InitParams(repo=params.repo, topic=params.topic, root=params.root))
        if made.run_id is None:
            raise Refused(
                f"the track in {made.root} is not complete: {', '.join(made.missing)}",
                hint=f"complete it: sictl init {made.repo} {' '.join(made.missing)}",
            )
        return await self._host.find(made.run_id)


def find_root(repo: str, topic: str | None, root: str | None) -> str:
    """Return the root of a track, existing or new."""
    return track_root(repo, topic, root, lambda path: Path(path).is_dir())


def _default_branch(info: RepoInfo) -> str:
    if "main" in info.branches:
        return "main"
    return info.head_branch or info.branches[0]


def _trusts(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json", include=set(TRUSTED_KEYS))


def _draft(root: Path, params: InitParams, default_branch: str) -> Draft:
    present = config.read_raw(root)
    raw = gate.merged_settings(present, params, default_branch)
    settings = parse_settings(raw)
    goal_text = config.read_text(root, "goal.md") or ""
    known = read_objective(goal_text)
    objective = (params.objective or "").strip() or known
    harness = config.read_text(root, "harness.md")
    if harness is None or params.rule or params.family:
        rules = (*read_rules(harness or ""), *params.rule)
        families = (*read_families(harness or ""), *gate.families_of(params))
        harness = render_harness(tuple(dict.fromkeys(rules)), tuple(dict.fromkeys(families)))
    check_family_count(settings, tuple(name for name, _ in read_families(harness)))
    return Draft(
        root=root,
        topic=topic_slug(params.topic or str(raw.get("topic_slug", ""))),
        raw=raw,
        settings=settings,
        objective=objective,
        harness=harness,
        fresh_goal=bool(params.objective) and objective != known,
    )


def _write_config(draft: Draft) -> None:
    config.write_raw(draft.root, draft.raw)
    if draft.fresh_goal or config.read_text(draft.root, "goal.md") is None:
        goal = gate.goal_of(draft.settings, draft.objective)
        config.write_text(draft.root, "goal.md", render_goal(goal))
    config.write_text(draft.root, "harness.md", draft.harness)
    if config.read_text(draft.root, "idea.md") is None:
        config.write_text(draft.root, "idea.md", "")


def _checked_config(root: Path, repo: str) -> config.Config:
    read = config.read_config(root)
    if not read.settings.benchmark_command.strip():
        raise Refused(f"{repo} has no benchmark", hint=f"name one: sictl init {repo} --benchmark CMD --trust")
    return read


async def calibrate(site: Site, commit: str, settings: Settings) -> tuple[list[BenchRun], Calibrated]:
    """Measure the baseline as often as the measuring core asks for.

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
            raise Refused(
                f"the benchmark fails on the baseline: {run.why}",
                hint=f"make it work by hand first: {settings.benchmark_command}",
                data={"status": run.status, "category": run.category, "output": run.raw[-2000:]},
            )
        runs.append(run)
        result = RunResult(ask.arm, run.score, run.sub_scores, "success", run.cpu_s, run.wall_s)
        state = calibration.on_run(state, result)
    return runs, ask


def _created(
    run_id: str,
    site: Site,
    draft: Draft,
    slug: str,
    head: str,
    runs: list[BenchRun],
    found: Calibrated,
    earlier: takeover.Track | None,
) -> RunCreated:
    carried: CarriedOver | None = earlier.carried if earlier else None
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
        calibration={
            "history": asdict(found.history),
            "cv": found.cv,
            "sd_pair": found.sd_pair,
            "run_timeout_s": found.run_timeout_s,
            "advice": found.advice,
        },
        carried_over=carried,
    )


async def _record(
    store: RunStore, present: RunState | None, created: RunCreated, earlier: takeover.Track | None
) -> None:
    after, _ = step(present, created)
    projection = project(present, created, after)
    if earlier is not None:
        entries = tuple(("tracking/raw_data.json", entry) for entry in earlier.raw_entries)
        projection = Projection(
            documents={**earlier.documents, **projection.documents},
            entries=(*entries, *projection.entries),
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


def _advice(found: Calibrated, red: list[str]) -> list[str]:
    guards = [f"guard is red on the baseline and will blame no candidate: {command}" for command in red]
    return [*guards, *found.advice]
