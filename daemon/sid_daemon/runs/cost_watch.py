"""Has it on record what turns cost while they go on, so that a daemon's death forgets no call that was paid for.

The conductor runs one. What a turn costs comes with its end; only a turn that has no end needs these reports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from sid_actors.actor import WorkRegistry
from sid_protocol.events import TurnPaid
from sid_protocol.records import Cost


class CostWatch:
    """The costs of one run's turns.

    Args:
        works: What is at work.
        report: Takes an event for the core.
    """

    def __init__(self, works: WorkRegistry, report: Callable[[TurnPaid], Awaitable[None]]) -> None:
        self._works = works
        self._report = report
        self._told: dict[str, Cost] = {}
        self._changed = trio.Event()
        works.on_cost = self._note

    def _note(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Report each cost that has grown, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            now = {key: work.activity.cost for key, work in self._works.works.items()}
            grown = {key: cost for key, cost in now.items() if cost != self._told.get(key, Cost())}
            self._told = now
            for key, cost in grown.items():
                await self._report(TurnPaid(target=key, cost=cost))
