"""Sets a replay up: a track of its own, made from a recording instead of from flags and a benchmark.

Called by `intake`. Settings, goal, baseline and calibration are the recorded ones; the improvement branch is new and
begins where the recorded one began. Nothing of the repository is run, so trust is not asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from sid_actors.git import refs
from sid_actors.git.master import GitMaster
from sid_actors.git.repository import RepoInfo
from sid_actors.git.trees import has_commit, open_repository
from sid_daemon import track_config
from sid_daemon.clock import now_iso
from sid_daemon.core.state import RunState
from sid_daemon.goal import render_harness
from sid_daemon.ids import new_run_id
from sid_daemon.replay.recorder import recording_path
from sid_daemon.replay.recording import Recording
from sid_daemon.replay.replayer import recording_of
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import CLOSE_LIMIT_S, RunStore
from sid_daemon.setup.baseline import record_creation, report_of
from sid_daemon.setup.drafting import Draft, find_root
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
    recording = await recording_of(host, await recorded_run(host, draft.settings.replay_from))
    if await trio.Path(draft.root / "state").exists():
        raise Refused(f"{draft.root} holds a run already", hint="choose another topic for the replay")
    began = recording.event(recording.entries[0])
    if not isinstance(began, RunCreated):
        raise Refused(f"the recording of {recording.run_id} does not begin with its set-up", hint=HINT)
    if not await trio.to_thread.run_sync(has_commit, info.common_dir, began.baseline_commit):
        raise GitError(
            f"{info.top} does not have commit {began.baseline_commit[:12]}, with which the recording begins",
            hint="replay it in the repository in which it was recorded, or in a clone of it",
        )
    run_id = new_run_id()
    created = created_again(began, recording.run_id, run_id, info.top, draft.root, draft.topic)
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
        notes=[f"replays run {recording.run_id}: no agent and no benchmark is run"],
        baseline=report_of(created),
    )
    if not dry_run:
        await _write(host, info, draft.root, created, _first_round(recording))
    return result


async def recorded_run(host: Host, ref: str) -> str:
    """Return the id of the run that is meant; of a run that this daemon never had, the recording's name is its id.

    Raises:
        NoSuchRun: there is neither such a run nor such a recording.
    """
    if "/" not in ref and await trio.Path(recording_path(host.state_dir, ref)).exists():
        return ref
    return (await host.find(ref)).run_id


def created_again(
    began: RunCreated, recorded: str, run_id: str, repo: str, root: Path, topic: str
) -> RunCreated:
    """Return the event that makes a replay: the recorded one, in a track of its own.

    Its settings are those of the recorded run, but that it replays, pushes nothing and records nothing.

    Args:
        began: The event that made the recorded run.
        recorded: The recorded run's id.
        run_id: The replay's id.
        repo: The repository.
        root: The replay's root.
        topic: Its topic.
    """
    own: dict[str, Any] = {"agent_backend": "replay", "replay_from": recorded, "topic_slug": topic}
    off = {"record": False, "auto_push": False, "auto_pr": False}
    return began.model_copy(
        update={
            "run_id": run_id,
            "repo": repo,
            "root": str(root),
            "topic": topic,
            "goal_slug": f"{began.goal_slug}_{topic.replace('-', '_')}",
            "settings": began.settings.model_copy(update=own | off),
            "replay_of": recorded,
        }
    )


async def _write(
    host: Host,
    info: RepoInfo,
    root: Path,
    created: RunCreated,
    first: RoundPrepared | None,
) -> None:
    await trio.to_thread.run_sync(_make_branch, info.common_dir, created)
    await trio.to_thread.run_sync(_write_config, root, created.settings, first)
    await GitMaster(info).exclude_ours()
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


def _write_config(root: Path, settings: Settings, first: RoundPrepared | None) -> None:
    track_config.write_raw(root, settings.model_dump(mode="json"))
    track_config.write_text(root, "goal.md", first.goal if first else "")
    families = tuple((name, "a family of the recorded run") for name in first.families) if first else ()
    track_config.write_text(root, "harness.md", render_harness(first.rules if first else (), families))
    track_config.write_text(root, "idea.md", "")


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
    while (find_root(repo, name, None) / "state").exists():
        number += 1
        name = f"{wanted}-{number}"
    return name
