"""What a round will cost: from turns as they usually are before the first call, from the run's own turns after it.

Used by `status` and by set-up. Pure; nothing is decided by it: what may be spent is the purse's to say. The assumed
turns are those of a small repository, so the first figure is an order of magnitude and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sid_actors.backends.base import Role
from sid_actors.backends.model.models import model_of
from sid_daemon.core.state import RunState, Spent
from sid_protocol.prices import Price, Usage, price_of
from sid_protocol.settings import Budget, Settings
from sid_protocol.status import ForecastRow

ASSUMED: Mapping[Role, Usage] = {
    "researcher": Usage(input=5_000, cache_read=110_000, cache_write=35_000, output=9_000),
    "planner": Usage(input=5_000, cache_read=60_000, cache_write=25_000, output=5_000),
    "architect": Usage(input=2_000, cache_read=20_000, cache_write=15_000, output=2_000),
    "critic": Usage(input=2_000, cache_read=20_000, cache_write=15_000, output=2_000),
    "executor": Usage(input=10_000, cache_read=500_000, cache_write=60_000, output=15_000),
}
"""One turn of each role, as long as nothing was measured."""


def forecast(
    settings: Settings, spent: Mapping[str, Spent], prices: Mapping[str, Price] | None = None
) -> ForecastRow | None:
    """Return what a round will cost; None where no model is known to answer.

    Args:
        settings: For the roles' models, how many there are of each, and the budget.
        spent: By role, so far.
        prices: The user's own.
    """
    tokens = usd = 0.0
    unpriced: list[str] = []
    turns = sum(one.turns for one in spent.values() if one.input_tokens)
    if settings.agent_backend != "anthropic" and not turns:
        return None
    for role in ASSUMED:
        count = 1 if role == "researcher" else settings.number_of_agents
        one_tokens, one_usd = _turn(role, settings, spent.get(role), prices)
        tokens += count * one_tokens
        usd += count * (one_usd or 0.0)
        if one_usd is None:
            unpriced.append(role)
    return ForecastRow(
        basis="measured" if turns else "assumed",
        turns=turns,
        round_tokens=round(tokens),
        round_usd=None if len(unpriced) == len(ASSUMED) else round(usd, 6),
        rounds_left=_rounds_left(settings.budget, spent, tokens, usd),
        unpriced=unpriced,
    )


def _turn(
    role: Role, settings: Settings, spent: Spent | None, prices: Mapping[str, Price] | None
) -> tuple[float, float | None]:
    """Return tokens and dollars of one turn of a role; dollars are None where the price is not known."""
    if spent is not None and spent.turns and spent.input_tokens:
        tokens = (spent.input_tokens + (spent.output_tokens or 0)) / spent.turns
        return tokens, None if spent.usd is None else spent.usd / spent.turns
    if settings.agent_backend != "anthropic":
        return 0.0, 0.0
    used = ASSUMED[role]
    price = price_of(model_of(role, settings.models), prices)
    return used.read + used.output, price.usd(used) if price else None


def _rounds_left(budget: Budget, spent: Mapping[str, Spent], tokens: float, usd: float) -> int | None:
    used_usd = sum(one.usd or 0.0 for one in spent.values())
    used = sum((one.input_tokens or 0) + (one.output_tokens or 0) for one in spent.values())
    shares = []
    if budget.usd is not None and usd:
        shares.append((budget.usd - used_usd) / usd)
    if budget.tokens is not None and tokens:
        shares.append((budget.tokens - used) / tokens)
    return max(0, math.floor(min(shares))) if shares else None


def of_run(state: RunState, prices: Mapping[str, Price] | None = None) -> ForecastRow | None:
    """Return the forecast of a run as it is now."""
    return forecast(state.settings, state.spent, prices)


def estimate_line(settings: Settings, prices: Mapping[str, Price] | None = None) -> str:
    """Return the estimate before a run's first call, one line; empty without a model.

    Args:
        settings: Of the run that is set up.
        prices: The user's own.
    """
    found = forecast(settings, {}, prices)
    if found is None:
        return ""
    tokens = f"{found.round_tokens / 1e6:.1f} M tokens"
    if found.round_usd is None:
        cost = f"{tokens}; no price is known, so only tokens are counted"
    else:
        whole = found.round_usd * settings.max_iterations
        cost = (
            f"~{found.round_usd:.2f} USD and {tokens}, ~{whole:.0f} USD for {settings.max_iterations} rounds"
        )
        if found.unpriced:
            cost += f", without {', '.join(found.unpriced)}, whose price is not known"
    limits = settings.budget
    capped = any(one is not None for one in (limits.usd, limits.tokens))
    advice = "" if capped else "; no cap is set: --set budget.usd=20"
    return f"estimate, before any call: a round takes {cost}{advice}"
