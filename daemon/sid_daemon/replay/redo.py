"""Makes again in git what a recorded answer says was made: candidates' commits, merges, tags.

The replayer calls it, one answer at a time. It runs no agent, no benchmark, no guard and no hook, opens no worktree
and pushes nothing; it writes objects, the replay's own improvement branch, and its archive tags. What comes out must
be what was recorded, to the commit's id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import trio

from sid_actors.git import refs
from sid_actors.git.master import GitMaster
from sid_actors.git.rebuilding import Edit, Written, write_again
from sid_actors.git.repository import RepoInfo
from sid_actors.git.trees import has_commit, open_repository
from sid_daemon.core.state import RunState
from sid_daemon.replay.recorder import WITHHELD
from sid_daemon.replay.recording import Entry, Recording, file_content
from sid_daemon.runs.conductor import Salvaged
from sid_protocol.commands import (
    AdvanceBranch,
    AnyCommand,
    BuildMerge,
    CloseRound,
    PrepareRound,
    RunPlan,
)
from sid_protocol.errors import GitError, NotRecorded, ReplayDiverged
from sid_protocol.events import (
    AnyEvent,
    BranchAdvanced,
    MergeBuilt,
    MergeConflicted,
    RoundClosed,
    RoundPrepared,
)
from sid_protocol.ids import improve_branch
from sid_protocol.settings import Settings

OWN = ("agent_backend", "replay_from", "record", "auto_push", "auto_pr", "topic_slug")
"""Settings that are a replay's own. The cap on executors is not among them: what waits for what is as it was."""


class Redo:
    """The git side of one replay; stands where `Hands` stand in a run that acts.

    Args:
        info: The repository.
        recording: What is replayed.
        settings: Returns the replay's own settings.
    """

    def __init__(self, info: RepoInfo, recording: Recording, settings: Callable[[], Settings]) -> None:
        self._info = info
        self._recording = recording
        self._own = settings

    async def redo(self, state: RunState, command: AnyCommand, event: AnyEvent, entry: Entry) -> AnyEvent:
        """Make what an answer tells of, and return the answer as it is in this run.

        Raises:
            GitError: git failed.
            NotRecorded: what is needed was taken out of the recording, or never was in it.
            ReplayDiverged: something else came out.
        """
        match command, event:
            case PrepareRound(), RoundPrepared():
                return await self._prepare(state, event)
            case RunPlan(), _ if (commit := getattr(event, "commit", None)) is not None:
                await trio.to_thread.run_sync(self._write, command.base, str(commit), entry)
            case BuildMerge(), MergeBuilt() | MergeConflicted():
                await self._merge(command, event, entry)
            case AdvanceBranch(), BranchAdvanced():
                return await self._advance(state, command, event, entry)
            case CloseRound(), RoundClosed():
                return await self._close(state, command, event)
            case _:
                pass
        return event

    async def _prepare(self, state: RunState, event: RoundPrepared) -> RoundPrepared:
        """Take the round's settings, goal and ideas as they were; follow a branch that the user moved then."""
        master = GitMaster(self._info)
        head = await master.head(state.goal_slug)
        if event.head != state.head and head.commit == state.head:
            await trio.to_thread.run_sync(self._move, state.goal_slug, state.head, event.head)
            head = await master.head(state.goal_slug)
        settings = self.own(event.settings)
        return event.model_copy(
            update={"settings": settings, "head": head.commit, "on_side_ref": head.on_side_ref}
        )

    def own(self, recorded: Settings) -> Settings:
        """Return recorded settings with what is a replay's own."""
        own = self._own()
        return recorded.model_copy(update={key: getattr(own, key) for key in OWN})

    def _move(self, goal_slug: str, old: str, new: str) -> None:
        if not has_commit(self._info.common_dir, new):
            raise GitError(
                f"the improvement branch was moved by hand to {new[:12]}, which is not in the repository",
                hint="bring that commit back, then start the replay again",
            )
        repo = open_repository(self._info.common_dir)
        refs.move(repo, f"refs/heads/{improve_branch(goal_slug)}", old, new, "sid: replay")

    def _written(self, entry: Entry) -> tuple[Written, dict[str, bytes], bool]:
        """Return a recorded commit, the files that it brings, and whether a secret was taken out of one."""
        if entry.commit is None:
            raise NotRecorded(
                f"the recording of {self._recording.run_id} has no commit for {entry.question}",
                hint="it was no longer in the repository when it was to be recorded",
            )
        told: dict[str, Any] = self._recording.value(entry.commit)
        edits = tuple(Edit(**edit) for edit in told["edits"])
        contents: dict[str, bytes] = {}
        withheld = False
        for edit in edits:
            if edit.content is not None:
                value = self._recording.value(edit.content)
                withheld = withheld or value == WITHHELD
                contents[edit.content] = b"" if value == WITHHELD else file_content(value)
        return Written(told["id"], told["text"], edits), contents, withheld

    def _write(self, base: str, commit: str, entry: Entry) -> None:
        written, contents, withheld = self._written(entry)
        if withheld and has_commit(self._info.common_dir, commit):
            return
        if withheld:
            raise NotRecorded(
                f"a secret was taken out of the edits of {entry.question} when they were recorded",
                hint=f"replay it in a repository that has commit {commit[:12]}",
            )
        self._same(entry, "commit", commit, write_again(self._info.common_dir, written, base, contents))

    async def _merge(self, command: BuildMerge, event: MergeBuilt | MergeConflicted, entry: Entry) -> None:
        built = await GitMaster(self._info).build_merge(command.commit, command.onto)
        then = event.tree if isinstance(event, MergeBuilt) else f"a conflict in {', '.join(event.paths)}"
        now = built if isinstance(built, str) else f"a conflict in {', '.join(built.paths)}"
        self._same(entry, "merge", then, now)

    async def _advance(
        self, state: RunState, command: AdvanceBranch, event: BranchAdvanced, entry: Entry
    ) -> BranchAdvanced:
        """Commit the merge as the recorded run's user, at the recorded time."""
        written, _, _ = self._written(entry)
        name, address = written.identity or self._info.identity
        info = replace(self._info, user_name=name, user_email=address)
        commit, ref = await GitMaster(info).advance(
            state.goal_slug, command.onto, command.commit, command.tree, command.message, command.at
        )
        self._same(entry, "merge commit", event.commit, commit)
        return event.model_copy(update={"ref": ref})

    async def _close(self, state: RunState, command: CloseRound, event: RoundClosed) -> RoundClosed:
        """Archive the losers; nothing is pushed."""
        master = GitMaster(self._info)
        tags = {
            executor: await master.archive(state.topic, command.iteration, executor, commit)
            for executor, commit in command.losers
            if commit
        }
        return event.model_copy(update={"tags": tags, "notes": ()})

    def _same(self, entry: Entry, what: str, then: str, now: str) -> None:
        if then != now:
            raise ReplayDiverged(
                f"the {what} of {entry.question} is {now}, {self._recording.run_id} had {then}",
                hint="was a secret taken out of its text, or is this another version of sid?",
            )

    # Hands: nothing is at work, and nothing is left behind.

    def spec_for(self, command: AnyCommand) -> Any:
        """See `Hands.spec_for`; a replay has no actors."""
        raise LookupError(f"a replay carries out no {command.kind}")

    async def salvage(self, command: AnyCommand) -> Salvaged:  # noqa: ARG002 - the protocol's
        """See `Hands.salvage`."""
        return Salvaged()

    async def close(self, state: RunState) -> None:
        """See `Hands.close`."""

    def hurry(self) -> None:
        """See `Hands.hurry`."""
