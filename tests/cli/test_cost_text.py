"""What models cost, as people read it: by run, role and round; what is not known is never 0."""

from __future__ import annotations

from typing import Any

from sid_cli.cost_text import cost_parts, count, forecast_text, roles_table, round_tokens

ROLE: dict[str, Any] = {
    "role": "planner",
    "calls": 12,
    "input_tokens": 1_900_000,
    "cached_tokens": 1_349_000,
    "output_tokens": 88_000,
    "usd": 4.123456,
    "wall_s": 75.0,
}


def budget(**more: Any) -> dict[str, Any]:
    spend = {"spent": None, "limit": None}
    known = {
        "usd": {"spent": 4.12, "limit": 20.0},
        "tokens": {"spent": 1_988_000, "limit": None},
        "calls": {"spent": 12, "limit": None},
        "wall_s": spend,
        "roles": [ROLE],
    }
    return {**known, **more}


def test_a_run_says_money_tokens_in_cached_and_out_and_calls() -> None:
    assert cost_parts(budget(), "|")[0] == (
        "spent ~4.12 of 20.00 USD | 1,988,000 tokens: 1.90 M in (71 % cached), 88.0 k out | 12 calls"
    )
    unknown = budget(usd={"spent": None, "limit": 20.0})
    assert cost_parts(unknown, "|")[0].startswith("price unknown, tokens only | 1,988,000 tokens")
    nothing = budget(usd={"spent": None, "limit": None}, calls={"spent": None, "limit": None}, roles=[])
    assert cost_parts(nothing, "|")[0] == "no model"


def test_roles_are_a_table_with_their_sum() -> None:
    free = {**ROLE, "role": "critic", "usd": None, "cached_tokens": None}
    lines = roles_table([ROLE, free], width=None).splitlines()

    assert lines[0].split() == ["COST", "CALLS", "IN", "CACHED", "OUT", "USD", "TIME"]
    assert lines[1].split()[:8] == ["planner", "12", "1.90", "M", "1.35", "M", "88.0", "k"]
    assert "unknown" in lines[2]
    assert lines[3].split()[:2] == ["all", "24"]
    assert roles_table([{**ROLE, "input_tokens": None, "output_tokens": None, "usd": 0.0}], width=None) == ""


def test_a_forecast_says_what_it_rests_on() -> None:
    found = {
        "basis": "measured",
        "turns": 12,
        "round_tokens": 180_000,
        "round_usd": 0.42,
        "rounds_left": 9,
        "unpriced": ["executor"],
    }
    assert forecast_text(budget(forecast=found)) == (
        "a round takes ~0.42 USD, 180.0 k tokens (from 12 turns), without executor, of unknown price; "
        "about 9 rounds left in the budget"
    )
    assumed = {**found, "basis": "assumed", "round_usd": None, "rounds_left": None}
    assert forecast_text(budget(forecast=assumed)) == (
        "a round takes 180.0 k tokens (no price known) (assumed, nothing measured yet)"
    )
    assert forecast_text(budget()) == ""


def test_tokens_are_short_and_the_unknown_is_no_number() -> None:
    assert [count(value) for value in (None, 0, 812, 12_345, 1_900_000)] == [
        "-",
        "0",
        "812",
        "12.3 k",
        "1.90 M",
    ]
    assert round_tokens({"input_tokens": 5, "cached_tokens": None}) == ("5", "-", "-")
