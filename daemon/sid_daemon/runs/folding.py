"""A batch of events, folded: what the run is after them, what is written and what is told of them.

Called by whoever writes a journal: the conductor of an active run, `Host.journal` for any other. Pure; writing and
telling are the caller's, in this order: durable first, then visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.log.event_records import log_records
from sid_daemon.log.record import LogRecord
from sid_daemon.store.views import Projection, project
from sid_protocol.events import AnyEvent, RoundClosed


@dataclass(frozen=True, slots=True)
class Folded:
    """What comes of a batch of events.

    Attributes:
        state: The run after them.
        events: They, with their time.
        projection: The contract files that they change.
        records: What the log tells of them.
    """

    state: RunState
    events: list[AnyEvent]
    projection: Projection
    records: list[LogRecord]

    @property
    def snapshot(self) -> RunState | None:
        """The state to be kept whole: after each recorded round."""
        return self.state if any(isinstance(event, RoundClosed) for event in self.events) else None

    def __add__(self, later: Folded) -> Folded:
        """Return this batch and the one that was folded onto it as one."""
        return Folded(
            later.state,
            [*self.events, *later.events],
            self.projection + later.projection,
            [*self.records, *later.records],
        )


def fold_batch(state: RunState, events: Sequence[AnyEvent], at: str) -> Folded:
    """Fold events that were received together.

    Args:
        state: The run before them.
        events: They, in order.
        at: When they were received, ISO 8601.
    """
    projection = Projection()
    records: list[LogRecord] = []
    dated = []
    for event in events:
        one = event.model_copy(update={"at": at})
        after, _ = step(state, one)
        projection += project(state, one, after)
        records.extend(log_records(state, one, after))
        dated.append(one)
        state = after
    return Folded(state, dated, projection, records)
