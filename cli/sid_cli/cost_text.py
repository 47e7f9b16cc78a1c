"""What models cost, as text: a run's line, its roles as a table, a round's cells, and the forecast.

Pure, standard library alone, since `status` prints it before click is imported. Estimated money carries `~`; what is
not known says so and is never 0.
"""

from __future__ import annotations

from sid_cli.text import clean, duration, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]
HEADERS = ("COST", ">CALLS", ">IN", ">CACHED", ">OUT", ">USD", ">TIME")


def cost_parts(budget: Row, dot: str) -> list[str]:
    """Return what a run has cost: dollars, tokens in, cached and out, calls; then its time, where that is capped.

    Args:
        budget: Of its row.
        dot: What parts the figures.
    """
    wall = budget["wall_s"]
    capped = f"{duration(wall['spent'])} of {duration(wall['limit'])}" if wall["limit"] is not None else ""
    if budget["calls"]["spent"] is None and not budget["usd"]["spent"]:
        return ["no model", capped]
    usd = budget["usd"]["spent"]
    money = f"spent ~{_of(budget['usd'], '.2f')} USD" if usd is not None else "price unknown, tokens only"
    roles = budget.get("roles", ())
    came, cached, went = (_sum(roles, name) for name in ("input_tokens", "cached_tokens", "output_tokens"))
    tokens = f"{_of(budget['tokens'], ',.0f')} tokens"
    if came is not None:
        share = f" ({100 * (cached or 0) / came:.0f} % cached)" if came and cached is not None else ""
        tokens += f": {count(came)} in{share}, {count(went)} out"
    parts = [money, tokens, f"{_of(budget['calls'], '.0f')} calls"]
    return [f" {dot} ".join(parts), capped]


def forecast_text(budget: Row) -> str:
    """Return what a round will cost and how many the budget still has room for; empty without a model."""
    found = budget.get("forecast")
    if not found:
        return ""
    tokens = f"{count(found['round_tokens'])} tokens"
    usd = found["round_usd"]
    money = f"~{usd:.2f} USD, {tokens}" if usd is not None else f"{tokens} (no price known)"
    basis = "assumed, nothing measured yet" if found["basis"] == "assumed" else f"from {found['turns']} turns"
    told = f"a round takes {money} ({basis})"
    if usd is not None and found["unpriced"]:
        told += f", without {', '.join(clean(role) for role in found['unpriced'])}, of unknown price"
    if found["rounds_left"] is not None:
        told += f"; about {found['rounds_left']} rounds left in the budget"
    return told


def roles_table(roles: Sequence[Row], *, width: int | None) -> str:
    """Return a line a role and their sum; empty where no model was asked."""
    if not any(role.get("input_tokens") or role.get("output_tokens") or role.get("usd") for role in roles):
        return ""
    body = [_role(role) for role in roles]
    if len(roles) > 1:
        names = ("calls", "input_tokens", "cached_tokens", "output_tokens", "usd", "wall_s")
        body.append(_role({"role": "all", **{name: _sum(roles, name) for name in names}}))
    return table(HEADERS, body, width=width, flexible=0)


def _role(role: Row) -> tuple[str, ...]:
    tokens = [count(role.get(name)) for name in ("input_tokens", "cached_tokens", "output_tokens")]
    usd = "unknown" if role.get("usd") is None else f"{role['usd']:.4f}"
    return (clean(role["role"]), str(role["calls"]), *tokens, usd, duration(role.get("wall_s")))


def round_cost(entry: Row) -> str:
    """Return what models cost in a round: dollars, or tokens where the price is not known; empty without a model."""
    usd, tokens = entry.get("usd"), entry.get("tokens")
    return f"{usd:.2f} USD" if usd else f"{tokens:,} tok" if tokens else ""


def round_tokens(entry: Row) -> tuple[str, str, str]:
    """Return a round's tokens in, cached and out as cells."""
    came, cached, went = (entry.get(name) for name in ("input_tokens", "cached_tokens", "output_tokens"))
    return count(came), count(cached), count(went)


def count(value: float | None) -> str:
    """Return a number of tokens, short: `812`, `12.3 k`, `1.90 M`; `-` where it is not known."""
    if value is None:
        return "-"
    if value < 10_000:
        return f"{value:.0f}"
    return f"{value / 1e3:.1f} k" if value < 1_000_000 else f"{value / 1e6:.2f} M"


def _sum(roles: Sequence[Row], name: str) -> float | None:
    known = [role[name] for role in roles if role.get(name) is not None]
    return sum(known) if known else None


def _of(spend: Row, form: str) -> str:
    spent = "0" if spend["spent"] is None else format(spend["spent"], form)
    return spent if spend["limit"] is None else f"{spent} of {format(spend['limit'], form)}"
