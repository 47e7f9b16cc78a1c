"""A planner: one plan, one testable hypothesis, from a read-only view of the code.

Started by the run's composition root under the supervisor. It asks its back end once and reads the answer; it
never retries, and what its answer means is for the core.
"""

from __future__ import annotations

from dataclasses import dataclass

from sid_actors.backends.parse import parse_plan
from sid_actors.roles.role import Asked, RoleActor, ask
from sid_actors.watching.activity import ActivityLog
from sid_protocol.commands import DraftPlan
from sid_protocol.events import AgentFailed, PlanDrafted, WorkFailed


@dataclass(slots=True, kw_only=True, eq=False)
class Planner(RoleActor[DraftPlan, PlanDrafted | AgentFailed | WorkFailed]):
    """Turns one `DraftPlan` into exactly one event."""

    async def handle(
        self, message: DraftPlan, activity: ActivityLog
    ) -> PlanDrafted | AgentFailed | WorkFailed:
        """Ask once; return the answer as an event, or why there is none."""
        asked = await ask(self, message, activity, parse_plan)
        if not isinstance(asked, Asked):
            return asked
        return PlanDrafted(cause=message.id, plan=asked.record, cost=asked.cost, duration_s=asked.duration_s)
