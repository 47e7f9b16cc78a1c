"""An executor: one approved plan, carried out by an agent in a worktree of its own, and committed.

Started by the run's composition root under the supervisor, one for each candidate that may run at a time. What
counts is what is left in the worktree, as the workbench finds it; what the agent says is kept as a summary.
It never retries and never measures. A red guard is mended on top of the candidate's own commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from sid_actors.backends.base import Answer
from sid_actors.prompts.fences import clipped
from sid_actors.roles.role import RoleActor, failed, make_turn
from sid_actors.track import Track
from sid_actors.watching.activity import ActivityLog
from sid_actors.workbench.base import Collected, Workbench
from sid_actors.workbench.local import candidate_message
from sid_protocol.commands import RunPlan
from sid_protocol.errors import SidError, WorktreeFull
from sid_protocol.events import AgentFailed, CandidateCommitted, CandidateRefused, WorkFailed

SUMMARY_LIMIT = 4000
"""Characters of an agent's own words that are kept with its candidate."""

Outcome = CandidateCommitted | CandidateRefused | AgentFailed | WorkFailed


@dataclass(slots=True, kw_only=True, eq=False)
class Executor(RoleActor[RunPlan, Outcome]):
    """Turns one `RunPlan` into exactly one outcome."""

    async def handle(self, message: RunPlan, activity: ActivityLog) -> Outcome:
        """Open the worktree, let the agent edit, check and commit what it left."""
        started = activity.clock.now()
        try:
            answer = await self._edited(message, activity)
            collected = await collect(self.workbench, self.track, message)
        except WorktreeFull as error:
            return CandidateRefused(
                cause=message.id,
                category="scope_error",
                what=error.message,
                cost=activity.cost,
                duration_s=activity.clock.now() - started,
            )
        except (SidError, OSError) as error:
            return failed(message, error, activity, started)
        return _outcome(message.id, answer, collected, activity.clock.now() - started)

    async def _edited(self, message: RunPlan, activity: ActivityLog) -> Answer:
        """Open the worktree and let the agent edit in it."""
        worktree = await self.workbench.open_worktree(
            message.iteration, message.executor, message.base, message.rework_of
        )
        activity.works_in(worktree)
        turn = await make_turn(
            message,
            self.track,
            worktree,
            shown=await self.workbench.shown_paths(worktree),
            sealed=await self.workbench.sealed_paths(worktree),
        )
        return await self.backend.answer(turn, activity)


def _outcome(
    cause: str, answer: Answer, collected: Collected, duration_s: float
) -> CandidateCommitted | CandidateRefused:
    if collected.commit is None or collected.refusal:
        category, what = collected.refusal or ("logic_error", "the agent left no change")
        return CandidateRefused(
            cause=cause,
            category=category,
            what=what,
            paths=collected.paths,
            commit=collected.commit,
            diff_stat=collected.diff_stat or None,
            cost=answer.cost,
            duration_s=duration_s,
            findings=collected.findings,
        )
    return CandidateCommitted(
        cause=cause,
        commit=collected.commit,
        diff_stat=collected.diff_stat,
        net_lines=collected.net_lines,
        paths=collected.paths,
        summary=clipped(answer.text, SUMMARY_LIMIT),
        findings=collected.findings,
        patch=collected.patch,
        tree=collected.tree,
        cost=answer.cost,
        duration_s=duration_s,
    )


async def collect(workbench: Workbench, track: Track, message: RunPlan) -> Collected:
    """Check and commit what is in a candidate's worktree; also for what a straggler left when it was killed.

    Raises:
        GitError: git failed.
    """
    return await workbench.collect(
        message.iteration,
        message.executor,
        message.base,
        candidate_message(message.plan.approach_family, message.plan.hypothesis),
        track.settings,
    )
