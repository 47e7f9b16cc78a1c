"""A run's purse: who wants to call a model asks here first, and says here what the call cost.

Held by the composition root, one a run, shared by all its turns. The rule is `sid_protocol.purse`; this waits
for calls in flight where only their settling tells whether the next one fits. It ends no run: it raises
`BudgetSpent`, and the core does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from sid_actors.watching.activity import ActivityLog
from sid_protocol.errors import BudgetSpent
from sid_protocol.purse import WARN_AT, Amount, Ask, Granted, Ledger, Spent, decide, shares
from sid_protocol.settings import Budget

Warn = Callable[[str, float, float, float], None]
"""Takes the limit's key, the share that is used up, what is spent, and the limit."""


@dataclass(slots=True)
class Reservation:
    """An amount set aside for one call; `actual` is what is settled when the call has ended."""

    amount: Amount
    output: int
    actual: Amount = field(default_factory=lambda: Amount(calls=1))


@dataclass(slots=True)
class Purse:
    """What one run may spend.

    Attributes:
        ledger: What it has spent and reserved.
        warn: Called once for each limit and share of `WARN_AT` that is passed.
    """

    ledger: Ledger = field(default_factory=Ledger)
    warn: Warn = lambda *_: None
    _told: dict[str, float] = field(default_factory=dict)
    _settled: trio.Event = field(default_factory=trio.Event)

    async def reserve(
        self, ask: Ask, budget: Budget, iteration: int, activity: ActivityLog | None = None
    ) -> Reservation:
        """Set aside what a call may cost at most, waiting for calls in flight where it must.

        Raises:
            BudgetSpent: it does not fit, whatever the calls in flight cost.
        """
        while True:
            self.ledger = self.ledger.in_round(iteration)
            verdict = decide(self.ledger, budget, ask)
            if isinstance(verdict, Granted):
                amount = ask.amount(verdict.output)
                self.ledger = self.ledger.reserve(amount)
                return Reservation(amount, verdict.output)
            if isinstance(verdict, Spent):
                raise BudgetSpent(verdict.key, verdict.why)
            if activity is not None:
                activity.doing = "waiting for the budget: calls in flight have it reserved"
            await self._settled.wait()

    @contextmanager
    def settling(self, reservation: Reservation, budget: Budget) -> Iterator[Reservation]:
        """Settle a reservation with its `actual` at the end, however the call ends."""
        try:
            yield reservation
        finally:
            self.ledger = self.ledger.settle(reservation.amount, reservation.actual)
            self._settled.set()
            self._settled = trio.Event()
            self._warn(budget)

    def _warn(self, budget: Budget) -> None:
        for key, (spent, limit) in shares(self.ledger, budget).items():
            passed = max((share for share in WARN_AT if limit and spent >= share * limit), default=0.0)
            name = f"{key} of {limit}" if key != "usd_per_round" else f"{key} {self.ledger.iteration}"
            if passed > self._told.get(name, 0.0):
                self._told[name] = passed
                self.warn(key, passed, spent, limit)
