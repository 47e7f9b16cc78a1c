"""The critic: its judgement of one plan; the core's rules bind above it.

Started by the run's composition root under the supervisor. It asks its back end once and reads the answer; it
never retries, and what its answer means is for the core.
"""

from __future__ import annotations

from dataclasses import dataclass

from sid_actors.backends.parse import parse_judgement
from sid_actors.roles.role import Asked, RoleActor, ask
from sid_actors.watching.activity import ActivityLog
from sid_protocol.commands import JudgePlan
from sid_protocol.events import AgentFailed, PlanJudged, WorkFailed


@dataclass(slots=True, kw_only=True, eq=False)
class Critic(RoleActor[JudgePlan, PlanJudged | AgentFailed | WorkFailed]):
    """Turns one `JudgePlan` into exactly one event."""

    async def handle(
        self, message: JudgePlan, activity: ActivityLog
    ) -> PlanJudged | AgentFailed | WorkFailed:
        """Ask once; return the answer as an event, or why there is none."""
        asked = await ask(self, message, activity, parse_judgement)
        if not isinstance(asked, Asked):
            return asked
        return PlanJudged(cause=message.id, review=asked.record, cost=asked.cost, duration_s=asked.duration_s)
