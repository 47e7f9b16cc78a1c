"""The researcher: one brief a round from a read-only view of the code.

Started by the run's composition root under the supervisor. It asks its back end once and reads the answer; it
never retries, and what its answer means is for the core.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sid_actors.backends.parse import parse_brief
from sid_actors.roles.role import Asked, RoleActor, ask
from sid_actors.watching.activity import ActivityLog
from sid_protocol.commands import Research
from sid_protocol.events import AgentFailed, BriefDone, WorkFailed


@dataclass(slots=True, kw_only=True, eq=False)
class Researcher(RoleActor[Research, BriefDone | AgentFailed | WorkFailed]):
    """Turns one `Research` into exactly one event."""

    async def handle(self, message: Research, activity: ActivityLog) -> BriefDone | AgentFailed | WorkFailed:
        """Ask once; return the answer as an event, or why there is none."""
        read = partial(parse_brief, families=self.track.families)
        asked = await ask(self, message, activity, read)
        if not isinstance(asked, Asked):
            return asked
        return BriefDone(cause=message.id, brief=asked.record, cost=asked.cost, duration_s=asked.duration_s)
