"""The git-master actor: merges, the improvement branch, and what a round leaves behind, one command at a time.

Started by the run's composition root under the supervisor; a run has one, and nothing else of the run writes refs.
It decides nothing: what is merged, when the branch moves and who lost is in the command. Each command may be
carried out again after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

from sid_actors.actor import Actor
from sid_actors.git.apply import open_pull_request, push
from sid_actors.git.master import Conflict, GitMaster
from sid_actors.git.refs import BranchMovedError
from sid_actors.track import Track
from sid_actors.watching.activity import ActivityLog
from sid_actors.work_failed import work_failed
from sid_actors.workbench.local import LocalWorkbench
from sid_protocol.commands import AdvanceBranch, BuildMerge, CloseRound
from sid_protocol.errors import SidError
from sid_protocol.events import (
    BranchAdvanced,
    BranchMoved,
    MergeBuilt,
    MergeConflicted,
    RoundClosed,
    WorkFailed,
)
from sid_protocol.ids import worktree_name

GitCommand = BuildMerge | AdvanceBranch | CloseRound
GitEvent = MergeBuilt | MergeConflicted | BranchAdvanced | BranchMoved | RoundClosed | WorkFailed


@dataclass(slots=True, kw_only=True, eq=False)
class GitActor(Actor[GitCommand, GitEvent]):
    """Turns one git command into exactly one event.

    Attributes:
        git: The repository's refs.
        workbench: Whose worktrees are removed when a round closes.
        track: For the settings and the topic.
        goal_slug: Whose improvement branch it is.
    """

    git: GitMaster
    workbench: LocalWorkbench
    track: Track
    goal_slug: str

    async def handle(self, message: GitCommand, activity: ActivityLog) -> GitEvent:
        """Carry one command out; a branch that somebody else moved is an outcome, other failures are told."""
        try:
            match message:
                case BuildMerge():
                    return await self._build(message)
                case AdvanceBranch():
                    return await self._advance(message)
                case CloseRound():
                    return await self._close(message, activity)
        except BranchMovedError as error:
            return BranchMoved(cause=message.id, expected=error.expected or "", actual=error.actual)
        except (SidError, OSError) as error:
            return work_failed(message.id, error)

    async def _build(self, message: BuildMerge) -> GitEvent:
        built = await self.git.build_merge(message.commit, message.onto)
        if isinstance(built, Conflict):
            return MergeConflicted(cause=message.id, paths=built.paths)
        return MergeBuilt(cause=message.id, tree=built)

    async def _advance(self, message: AdvanceBranch) -> GitEvent:
        commit, ref = await self.git.advance(
            self.goal_slug, message.onto, message.commit, message.tree, message.message, message.at
        )
        return BranchAdvanced(cause=message.id, commit=commit, ref=ref)

    async def _close(self, message: CloseRound, activity: ActivityLog) -> GitEvent:
        """Archive the losers, then remove worktrees and branches, then push what was won."""
        topic, iteration = self.track.topic, message.iteration
        tags = {
            executor: await self.git.archive(topic, iteration, executor, commit)
            for executor, commit in message.losers
            if commit
        }
        executors = [executor for executor, _ in message.losers]
        executors += [message.winner] if message.winner else []
        known = [worktree_name(topic, iteration, executor) for executor in executors]
        await self.workbench.worktrees.clean((), iteration, known)
        for executor in executors:
            await self.git.delete_branch(topic, iteration, executor)
        notes = await self._publish(message, activity) if message.merged else ()
        return RoundClosed(cause=message.id, tags=tags, notes=notes)

    async def _publish(self, message: CloseRound, activity: ActivityLog) -> tuple[str, ...]:
        """Push and ask for a pull request where the settings say so; return what was done."""
        settings = self.track.settings
        notes = []
        if settings.auto_push:
            activity.touch("push")
            notes.append(await push(self.git, self.goal_slug, settings.fork_url, message.head))
        if settings.auto_pr:
            activity.touch("pull request")
            title = f"sid: {self.goal_slug.replace('_', ' ')}"
            body = f"Measured improvements, up to round {message.iteration}."
            notes.append(
                await open_pull_request(
                    self.git, self.goal_slug, settings.target_branch, settings.upstream_url, title, body
                )
            )
        return tuple(notes)
