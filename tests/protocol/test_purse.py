"""Reservations keep a limit, whatever calls ask for and however little they cost in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sid_protocol.prices import PRICES, Price, Usage, price_of
from sid_protocol.purse import Amount, Ask, Granted, Ledger, Spent, Wait, decide
from sid_protocol.settings import Budget

asks = st.builds(
    lambda tokens, unit, most: Ask(
        fixed=Amount(usd=tokens * unit, tokens=tokens, calls=1),
        per_output_usd=unit,
        most=most,
        least=min(most, 10),
    ),
    tokens=st.integers(0, 500),
    unit=st.sampled_from([0.0, 0.001, 0.1]),
    most=st.integers(1, 500),
)


@given(st.lists(st.tuples(asks, st.floats(0, 1), st.booleans()), max_size=40))
def test_no_order_of_calls_passes_a_limit(steps: list[tuple[Ask, float, bool]]) -> None:
    budget = Budget(usd=20.0, tokens=3000, calls=12, usd_per_round=15.0)
    ledger, flight = Ledger().in_round(1), list[tuple[Amount, Amount]]()
    for ask, share, ends in steps:
        verdict = decide(ledger, budget, ask)
        if isinstance(verdict, Granted):
            worst, actual = ask.amount(verdict.output), ask.amount(int(share * verdict.output))
            ledger = ledger.reserve(worst)
            flight.append((worst, actual))
        assert not isinstance(verdict, Wait) or flight
        if ends and flight:
            ledger = ledger.settle(*flight.pop(0))
        total = ledger.spent + ledger.reserved
        assert total.tokens <= 3000
        assert total.calls <= 12
        assert total.usd <= 15.0 + 1e-9


def test_a_new_round_has_its_own_limit() -> None:
    ask = Ask(fixed=Amount(usd=1.0, calls=1), per_output_usd=0.0, most=10, least=1)
    budget = Budget(usd_per_round=1.5)
    ledger = Ledger().in_round(1).settle(Amount(), Amount(usd=1.0))
    assert isinstance(decide(ledger, budget, ask), Spent)
    assert isinstance(decide(ledger.in_round(2), budget, ask), Granted)


def test_prices_are_by_kind_of_token_and_the_users_go_first() -> None:
    usage = Usage(input=1_000_000, cache_read=1_000_000, cache_write=0, output=1_000_000)
    opus = price_of("claude-opus-4-5-20251101")
    assert opus is not None
    assert opus.usd(usage) == 5 + 0.5 + 25
    own = Price(input=1, output=1, cache_read=1, cache_write=1)
    assert price_of("claude-opus-4-5", {"claude-opus-4-5": own}) is own
    assert price_of("my-model") is None


def test_a_long_prompt_of_a_model_that_says_so_costs_more() -> None:
    haiku = PRICES["claude-haiku-5-5"]
    assert haiku.usd(Usage(input=200_000)) == 5 * 2 * haiku.usd(Usage(input=100_000))
