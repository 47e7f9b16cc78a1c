"""Sets a replay up: a track of its own, made from a recording instead of from flags and a benchmark.

Called by `intake`. Settings, goal, baseline and calibration are the recorded ones; the improvement branch is new and
begins where the recorded one began. Nothing of the repository is run, so trust is not asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from pydantic import JsonValue

from sid_actors import refs
from sid_actors.git_master import GitMaster
from sid_actors.repository import RepoInfo
from sid_actors.trees import has_commit, open_repository
from sid_daemon import config
from sid_daemon.baseline import record_creation, report_of
from sid_daemon.clock import now_iso
from sid_daemon.core.run import step
from sid_daemon.core.state import ENDED, RunState
from sid_daemon.goal import render_harness
from sid_daemon.host import Host
from sid_daemon.ids import new_run_id
from sid_daemon.replay.recording import Recording
from sid_daemon.replay.replayer import recording_of
from sid_daemon.runstore import CLOSE_LIMIT_S, RunStore
from sid_daemon.setup import Draft, find_root
from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import GitError, Refused, SettingsInvalid
from sid_protocol.events import RoundPrepared, RunCreated
from sid_protocol.ids import improve_branch
from sid_protocol.settings import Settings
from sid_protocol.status import InitResult

HINT = "start a replay with: sictl replay RUN"


async def make_track(host: Host, info: RepoInfo, draft: Draft, *, dry_run: bool) -> InitResult:
    """Make a track that replays the run which `replay_from` names; it is not started.

    Raises:
        GitError: the commit that the recording begins with is not in the repository.
        NoSuchRun: there is no such run, or no recording of it.
        Refused: the track has a run already.
        SettingsInvalid: `replay_from` is missing.
        StoreError: the recording cannot be read, or was changed.
    """
    if draft.settings.replay_from is None:
        raise SettingsInvalid("replay_from", "is missing: which run is to be replayed?", hint=HINT)
    recorded = await host.find(draft.settings.replay_from)
    recording = await recording_of(host, recorded.run_id)
    if await trio.Path(draft.root / "state").exists():
        raise Refused(f"{draft.root} holds a run already", hint="choose another topic for the replay")
    began = recording.event(recording.entries[0])
    if not isinstance(began, RunCreated):
        raise Refused(f"the recording of {recorded.run_id} does not begin with its set-up", hint=HINT)
    if not await trio.to_thread.run_sync(has_commit, info.common_dir, began.baseline_commit):
        raise GitError(
            f"{info.top} does not have commit {began.baseline_commit[:12]}, with which the recording begins",
            hint="replay it in the repository in which it was recorded, or in a clone of it",
        )
    run_id = new_run_id()
    raw = own_settings(began.settings, recorded.run_id, draft.topic)
    created = began.model_copy(
        update={
            "run_id": run_id,
            "repo": info.top,
            "root": str(draft.root),
            "topic": draft.topic,
            "goal_slug": f"{began.goal_slug}_{draft.topic.replace('-', '_')}",
            "settings": Settings.model_validate(raw),
            "replay_of": recorded.run_id,
        }
    )
    result = InitResult(
        run_id=None if dry_run else run_id,
        root=str(draft.root),
        missing=[],
        repo=info.top,
        topic=draft.topic,
        sealed=[],
        trusted=True,
        trusts={},
        goal=[],
        notes=[f"replays run {recorded.run_id}: no agent and no benchmark is run"],
        baseline=report_of(created),
    )
    if not dry_run:
        await _write(host, info, draft.root, created, raw, _first_round(recording))
    return result


async def _write(
    host: Host,
    info: RepoInfo,
    root: Path,
    created: RunCreated,
    raw: dict[str, JsonValue],
    first: RoundPrepared | None,
) -> None:
    await trio.to_thread.run_sync(_write_config, root, raw, first)
    master = GitMaster(info)
    await master.exclude_ours()
    await trio.to_thread.run_sync(_make_branch, info.common_dir, created)
    store = RunStore(root, host.copy_path(created.run_id))
    try:
        await store.open()
        await record_creation(store, None, created, None)
    finally:
        with trio.move_on_after(CLOSE_LIMIT_S, shield=True):
            await store.close()
    await host.remember(
        KnownRun(
            run_id=created.run_id,
            repo=info.top,
            common_dir=info.common_dir,
            topic=created.topic,
            root=str(root),
            active=False,
            created_at=now_iso(),
        )
    )


def own_settings(recorded: Settings, run_id: str, topic: str) -> dict[str, Any]:
    """Return a replay's settings: those of the recorded run, but that it replays, pushes nothing and records nothing."""
    own = {"agent_backend": "replay", "replay_from": run_id, "topic_slug": topic}
    off = {"record": False, "auto_push": False, "auto_pr": False}
    return {**recorded.model_dump(mode="json"), **own, **off}


def _write_config(root: Path, raw: dict[str, JsonValue], first: RoundPrepared | None) -> None:
    config.write_raw(root, raw)
    config.write_text(root, "goal.md", first.goal if first else "")
    families = tuple((name, "a family of the recorded run") for name in first.families) if first else ()
    config.write_text(root, "harness.md", render_harness(first.rules if first else (), families))
    config.write_text(root, "idea.md", "")


def _make_branch(common_dir: str, created: RunCreated) -> None:
    repo = open_repository(common_dir)
    ref = f"refs/heads/{improve_branch(created.goal_slug)}"
    if (present := refs.target(repo, ref)) is not None:
        raise Refused(
            f"the branch {improve_branch(created.goal_slug)} is there already, at {present[:12]}",
            hint="choose another topic for the replay, or delete the branch",
        )
    refs.move(repo, ref, None, created.baseline_commit, "sid: replay from its baseline")


def _first_round(recording: Recording) -> RoundPrepared | None:
    for entry in recording.entries:
        if entry.kind == "round_prepared":
            event = recording.event(entry)
            return event if isinstance(event, RoundPrepared) else None
    return None


def rounds_of(recording: Recording) -> int | None:
    """Return how many rounds a replay may have at most; None where the recorded run ended by itself.

    A run that was stopped, or that failed between its answers, is replayed up to its last whole round; one that was
    started for so many rounds, as many.
    """
    state: RunState | None = None
    first = 0
    for entry in recording.entries:
        state, _ = step(state, recording.event(entry))
        first = state.completed if entry.kind == "run_created" else first
    if state is None:
        return None
    if state.rounds_until is not None:
        return max(1, state.rounds_until - first)
    by_itself = state.status in ENDED and recording.entries[-1].kind != "run_failed"
    return None if by_itself else max(1, state.completed - first)


def check_kind(state: RunState, settings: Settings) -> None:
    """Refuse settings with which a replay would act, or with which a run that acts would replay.

    Raises:
        Refused: a replay cannot go on with agents.
        SettingsInvalid: only `sictl replay` makes a replay.
    """
    replays = settings.agent_backend == "replay"
    if state.replay_of is not None and not replays:
        raise Refused(
            f"run {state.run_id} replays {state.replay_of} and cannot go on with agents",
            hint="set up a track of its own: sictl init --topic NAME",
        )
    if replays and state.replay_of is None:
        raise SettingsInvalid("agent_backend", "this run was not made to replay another", hint=HINT)


def free_topic(repo: str, run_id: str) -> str:
    """Return a topic of which the repository has no track yet, for a replay of a run; blocks."""
    wanted, number = f"replay-{run_id[:6]}", 1
    name = wanted
    while Path(find_root(repo, name, None), "state").exists():
        number += 1
        name = f"{wanted}-{number}"
    return name
