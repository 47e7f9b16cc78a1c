"""Where requests to set up and to start come in: goal, benchmark, harness and trust, or nothing runs.

`init` checks everything before it writes anything, and writes the track only once the benchmark has run on the
baseline. `start` checks trust again, by whatever hand the settings were changed since.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from sid_daemon.clock import now_iso
from sid_daemon.core.state import RunState
from sid_daemon.ids import new_run_id
from sid_daemon.layout import AGENT_SETTINGS, DATABASE
from sid_daemon.replay.tracks import check_kind, free_topic, make_track, recorded_run
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import CLOSE_LIMIT_S, RunStore
from sid_daemon.setup import gate, takeover
from sid_daemon.setup.baseline import advice_of, calibrate, created_event, record_creation, report_of
from sid_daemon.setup.drafting import (
    Draft,
    OpenSite,
    Site,
    checked_config,
    default_branch,
    draft_of,
    find_root,
    trusts,
    write_config,
)
from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import AlreadyRunning, NoSuchRun, Refused
from sid_protocol.events import RoundsAsked
from sid_protocol.ids import goal_slug, improve_branch, topic_slug
from sid_protocol.locations import shell_word, track_command
from sid_protocol.params import InitParams, ReplayParams, StartParams
from sid_protocol.settings import (
    Settings,
    trust_digest,
)
from sid_protocol.status import InitResult, ReplayResult, StartResult


class Intake:
    """The gate of one daemon.

    Args:
        host: Its runs.
        open_site: Opens repositories.
    """

    def __init__(self, host: Host, open_site: OpenSite) -> None:
        self._host = host
        self.open_site = open_site
        self._locks: dict[str, trio.Lock] = {}

    @asynccontextmanager
    async def _at(self, repo: str, root: str | None, topic: str | None) -> AsyncIterator[Site]:
        """Open a repository for one request at a time: set-up measures in one place, and a start must not meet it."""
        site = await self.open_site(repo, root, topic_slug(topic or ""))
        async with self._locks.setdefault(site.info.common_dir, trio.Lock()):
            try:
                yield site
            finally:
                with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
                    await site.close()

    async def init(self, params: InitParams) -> InitResult:
        """Set a track up, or tell what is missing.

        Raises:
            GitError: the repository cannot be worked on.
            SettingsInvalid: a setting is wrong.
            Refused: the benchmark fails on the baseline, or jobs cannot be contained.
            AlreadyRunning: the run is active.
        """
        async with self._at(params.repo, params.root, params.topic) as site:
            return await self._init(site, params)

    async def _init(self, site: Site, params: InitParams) -> InitResult:
        repo = site.info.top
        root = await trio.to_thread.run_sync(find_root, repo, params.topic, params.root)
        known = next((run for run in await self._host.runs() if run.root == str(root)), None)
        if known is not None:
            await _refuse_anothers(known, site)
            if not params.dry_run:
                await self._host.restore(known)
        draft = await trio.to_thread.run_sync(draft_of, root, params, default_branch(site.info))
        settings = draft.settings
        if settings.agent_backend == "replay":
            return await make_track(self._host, site.info, draft, dry_run=params.dry_run)
        commit = await site.target_commit(settings.target_branch)
        sealed, editable = await site.sealed(commit, settings)
        trusted = params.trust or await self._host.is_trusted(repo, trust_digest(settings))
        missing = gate.missing_flags(draft.objective, settings, trusted=trusted)
        if not editable and settings.benchmark_command:
            missing.append("--scope")
        notes = [await site.check(settings), site.estimate(settings)]
        result = InitResult(
            run_id=None,
            root=str(root),
            missing=missing,
            repo=repo,
            topic=draft.topic,
            sealed=list(sealed),
            trusted=trusted,
            trusts=trusts(settings),
            goal=gate.score_goal(draft.objective, params),
            notes=[note for note in notes if note],
        )
        if missing or params.dry_run:
            return result
        await self._host.recovered.wait()
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
        try:
            present = await self._present(store, draft)
            if present is not None:
                await self._refuse_copied(present.run_id, draft.root)
                earlier = None
                slug = present.goal_slug if not draft.fresh_goal else goal_slug(draft.objective)
            head = await site.improve_head(slug) or commit
            branch = improve_branch(slug) if head != commit else None
            runs, found = await calibrate(site, head, draft.settings, branch=branch)
            red = await site.guards_red(head, draft.settings)
            await site.exclude_ours()  # before there is anything to be kept out
            await trio.to_thread.run_sync(write_config, draft)
            if present is not None:
                await site.give_up_round(present)
            await site.make_branch(slug, draft.settings.target_branch)
            run_id = present.run_id if present else new_run_id()
            created = created_event(run_id, site, draft, slug, head, runs, found, earlier)
            store.copy_path = self._host.copy_path(run_id)
            if store.is_closed:
                await store.open()
            await record_creation(store, present, created, earlier)
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
        notes = [*result.notes, *(earlier.notes if earlier else ()), *advice_of(found, red)]
        return result.model_copy(
            update={"run_id": run_id, "baseline": report, "notes": notes, "took_over": earlier is not None}
        )

    async def _present(self, store: RunStore, draft: Draft) -> RunState | None:
        if not await trio.Path(draft.root / DATABASE).exists():
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
        await self._host.recovered.wait()
        async with self._at(params.repo, params.root, params.topic) as site:
            return await self._start(site, params)

    async def _start(self, site: Site, params: StartParams) -> StartResult:
        repo = site.info.top
        root = await trio.to_thread.run_sync(find_root, repo, params.topic, params.root)
        run = await self._run_at(site, root)
        if run is not None and await self._host.restore(run):
            self._host.emit("warning", "restored_from_copy", run_id=run.run_id, root=run.root)
        if run is not None and await trio.to_thread.run_sync(_has_files_alone, root):
            run = None  # the journal is lost with its copy: what its views tell is taken over
        read = await trio.to_thread.run_sync(checked_config, root, repo)
        await self.check_settings(run, repo, root, read.settings)
        mode = await trio.to_thread.run_sync(takeover.active_mode, Path(repo), time.time())
        if mode is not None and "/.omc/" in f"{root}/":
            raise Refused(
                f"mode {mode} is active in {repo}", hint="end it, or wait until it is 30 minutes old"
            )
        if read.settings.agent_backend != "replay":
            await site.check(read.settings)
            await site.target_commit(read.settings.target_branch)
        if run is None:
            run = await self._take_over(site, params)
            await site.close()  # the run is about to have a pool of its own there
        resumed = self._host.take_resumed(run.run_id)
        if resumed is not None:
            if params.rounds is not None:
                await resumed.submit(RoundsAsked(rounds=params.rounds))
            return StartResult(run_id=run.run_id, resumed=True, status=resumed.state.status)
        state = await self._host.start(run, read.settings, rounds=params.rounds, info=site.info)
        return StartResult(run_id=run.run_id, resumed=state.starts > 1, status=state.status)

    async def replay(self, params: ReplayParams) -> ReplayResult:
        """Make a recorded run again, in a track of its own, and start it.

        Raises:
            AlreadyRunning: the repository has an active run.
            NoSuchRun: there is no such run, or no recording of it.
            Refused: the track of the replay is taken.
            StoreError: the recording cannot be read, or was changed.
        """
        await self._host.recovered.wait()
        if params.repo is None:
            run = await self._host.find(params.run, params.topic)
            recorded, repo = run.run_id, run.repo
        else:
            recorded, repo = await recorded_run(self._host, params.run), params.repo
        info = (await self.open_site(repo, params.root, "")).info
        await self._host.refuse_while_busy(info.common_dir)
        topic = params.into
        if topic is None:
            topic = await trio.to_thread.run_sync(free_topic, info.top, recorded)
        made = await self.init(
            InitParams(
                repo=info.top,
                topic=topic,
                root=params.root,
                backend="replay",
                set={"replay_from": recorded},
            )
        )
        started = await self.start(StartParams(repo=info.top, topic=made.topic, root=made.root))
        return ReplayResult(**started.model_dump(), replay_of=recorded, root=made.root, topic=made.topic)

    async def check_settings(self, run: KnownRun | None, repo: str, root: Path, settings: Settings) -> None:
        """Refuse settings that do not fit the run, or that the user has not confirmed; a replay runs nothing.

        Raises:
            Refused: nothing may run with these settings here.
            SettingsInvalid: the run is no replay.
        """
        if run is not None:
            async with self._host.opened(run) as (state, _):
                check_kind(state, settings)
        if settings.agent_backend != "replay":
            await self.check_trust(repo, root, settings)

    async def check_trust(self, repo: str, root: Path, settings: Settings) -> None:
        """Refuse settings that the user has not confirmed.

        Raises:
            Refused: nothing may run with these settings here.
        """
        if not await self._host.is_trusted(repo, trust_digest(settings)):
            raise Refused(
                f"{repo} is not trusted with its present settings",
                hint=f"look at them and confirm: {track_command('init', repo, str(root), '--trust')}",
                data={"trusts": trusts(settings)},
            )

    async def _run_at(self, site: Site, root: Path) -> KnownRun | None:
        """Return the registered run of a root; a root that came back without the registry is entered anew."""
        runs = await self._host.runs()
        known = next((run for run in runs if run.root == str(root)), None)
        if known is not None:
            await _refuse_anothers(known, site)
            return known
        if await trio.Path(root / DATABASE).exists():
            store = RunStore(root, self._host.copy_path("new"))
            state = await store.open()
            await store.close()
            if state is not None:
                await self._refuse_copied(state.run_id, root)
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
                f"no track is set up in {site.info.top}",
                hint=f"set it up: {track_command('init', site.info.top, str(root))}",
            )
        return None

    async def _refuse_copied(self, run_id: str, root: Path) -> None:
        """Refuse a track that was copied with its database: two tracks would go by one run id, and share its copy.

        Raises:
            Refused: the track that it is a copy of is still there.
        """
        for run in await self._host.runs():
            if run.run_id != run_id or run.root == str(root):
                continue
            if await trio.to_thread.run_sync(_is_another_file, Path(run.root) / DATABASE, root / DATABASE):
                raise Refused(
                    f"{root} is a copy of the track of run {run_id} in {run.root}",
                    hint=f"give it a run of its own, with its history: rm {shell_word(str(root / DATABASE))}*, then again",
                )

    async def _take_over(self, site: Site, params: StartParams) -> KnownRun:
        """Make a run of a track that another tool has made; its settings are trusted already."""
        made = await self._init(site, InitParams(repo=params.repo, topic=params.topic, root=params.root))
        if made.run_id is None:
            raise Refused(
                f"the track in {made.root} is not complete: {', '.join(made.missing)}",
                hint=f"complete it: {track_command('init', made.repo, made.root, *made.missing)}",
            )
        return await self._host.find(made.run_id)


async def _refuse_anothers(run: KnownRun, site: Site) -> None:
    """Refuse a root that holds a track of another repository, unless that one was moved to where this one is.

    Raises:
        Refused: the other repository is still there.
    """
    if run.common_dir != site.info.common_dir and await trio.Path(run.common_dir).exists():
        raise Refused(
            f"{run.root} holds run {run.run_id} of {run.repo}", hint="give --root a folder of its own"
        )


def _is_another_file(there: Path, here: Path) -> bool:
    return there.exists() and not there.samefile(here)


def _has_files_alone(root: Path) -> bool:
    return not (root / DATABASE).exists() and (root / AGENT_SETTINGS).is_file()
