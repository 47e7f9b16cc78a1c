"""How much a run may still spend: reservations before a call, what it really cost after it; pure.

The model back end holds one ledger a run. A call is granted only if the worst that it can cost fits beside
everything that is spent and everything that is reserved, so a limit is never passed, however many calls are in
flight. Money and tokens have one shape: a part that is fixed (the prompt) and a part for each token of output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sid_protocol.settings import Budget

WARN_AT = (0.5, 0.8)
"""Shares of a limit at which the user is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Dollars, tokens and calls."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            usd=self.usd + other.usd, tokens=self.tokens + other.tokens, calls=self.calls + other.calls
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            usd=max(0.0, self.usd - other.usd),
            tokens=self.tokens - other.tokens,
            calls=self.calls - other.calls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a call may cost.

    Attributes:
        fixed: What it costs without any output.
        per_output_usd: Dollars of one token of output; 0 where the price is not known.
        most: Tokens of output that are wanted.
        least: Tokens of output below which the call is no use.
    """

    fixed: Amount
    per_output_usd: float
    most: int
    least: int

    def amount(self, output: int) -> Amount:
        """Return what it costs at most with so much output."""
        return self.fixed + Amount(usd=output * self.per_output_usd, tokens=output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What a run has spent and reserved.

    Attributes:
        spent: Settled, over the whole run.
        reserved: Of calls in flight.
        round_usd: Settled dollars of the round.
        iteration: The round.
    """

    spent: Amount = Amount()
    reserved: Amount = Amount()
    round_usd: float = 0.0
    iteration: int = 0

    def in_round(self, iteration: int) -> Ledger:
        """Return the ledger in a round: a new one has spent nothing yet."""
        return self if iteration == self.iteration else replace(self, iteration=iteration, round_usd=0.0)

    def reserve(self, amount: Amount) -> Ledger:
        """Set an amount aside."""
        return replace(self, reserved=self.reserved + amount)

    def settle(self, reserved: Amount, actual: Amount) -> Ledger:
        """Put what a call really cost in the place of what was set aside for it."""
        return replace(
            self,
            reserved=self.reserved - reserved,
            spent=self.spent + actual,
            round_usd=self.round_usd + actual.usd,
        )


@dataclass(frozen=True, slots=True)
class Granted:
    """The call may be made, with at most so much output."""

    output: int


@dataclass(frozen=True, slots=True)
class Wait:
    """It may fit once calls in flight are settled."""


@dataclass(frozen=True, slots=True)
class Spent:
    """It does not fit: the limit under `budget` that is used up, and the words for it."""

    key: str
    why: str


def decide(ledger: Ledger, budget: Budget, ask: Ask) -> Granted | Wait | Spent:
    """Decide about a call.

    Args:
        ledger: In the call's round.
        budget: The limits.
        ask: What it may cost.
    """
    free, alone = ask.most, ask.most
    for key, limit, spent, reserved, fixed, unit in _limits(ledger, budget, ask):
        free = min(free, _output(limit - spent - reserved - fixed, unit))
        fits = _output(limit - spent - fixed, unit)
        if fits < ask.least:
            return Spent(key, f"budget.{key}: {spent:g} of {limit:g} used, and the next call does not fit")
        alone = min(alone, fits)
    if free >= alone:
        return Granted(free)
    return Wait()


def _limits(
    ledger: Ledger, budget: Budget, ask: Ask
) -> Iterator[tuple[str, float, float, float, float, float]]:
    """Yield key, limit, spent, reserved, fixed cost and cost for each token of output, of each limit that is set."""
    spent, reserved, fixed = ledger.spent, ledger.reserved, ask.fixed
    unit = ask.per_output_usd
    if budget.usd is not None:
        yield "usd", budget.usd, spent.usd, reserved.usd, fixed.usd, unit
    if budget.usd_per_round is not None:
        yield "usd_per_round", budget.usd_per_round, ledger.round_usd, reserved.usd, fixed.usd, unit
    if budget.tokens is not None:
        yield "tokens", budget.tokens, spent.tokens, reserved.tokens, fixed.tokens, 1
    if budget.calls is not None:
        yield "calls", budget.calls, spent.calls, reserved.calls, fixed.calls, 0


def _output(left: float, unit: float) -> int:
    """Return how many tokens of output fit into what is left; below zero where not even the rest does."""
    if left < 0:
        return -1
    return math.floor(left / unit) if unit else 1 << 40


def shares(ledger: Ledger, budget: Budget) -> dict[str, tuple[float, float]]:
    """Return `(spent, limit)` of each limit that is set, by its key under `budget`."""
    nothing = Ask(fixed=Amount(), per_output_usd=0.0, most=0, least=0)
    return {key: (spent, limit) for key, limit, spent, _, _, _ in _limits(ledger, budget, nothing)}
