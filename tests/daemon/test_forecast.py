"""What a round will cost: assumed before the first call, measured from then on, and never a price that is not known."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sid_daemon.core.state import Spent
from sid_daemon.forecast import ASSUMED, estimate_line, forecast, of_run
from sid_daemon.report.text import cost_lines
from sid_daemon.rpc.rows import round_summary, run_row
from sid_protocol.prices import Price
from sid_protocol.records import IterationHistory, MergeReport
from sid_protocol.settings import Budget, Settings
from tests.core.play import played

MODEL = Settings(agent_backend="anthropic", number_of_agents=2, benchmark_command="b", max_iterations=2)
TURN = Spent(calls=4, input_tokens=9_000, output_tokens=1_000, usd=0.5, turns=2)


def test_before_the_first_call_a_round_is_estimated_from_the_models_prices() -> None:
    found = forecast(MODEL, {})

    assert found is not None
    assert (found.basis, found.turns, found.rounds_left, found.unpriced) == ("assumed", 0, None, [])
    tokens = {role: used.read + used.output for role, used in ASSUMED.items()}
    assert found.round_tokens == tokens["researcher"] + 2 * (sum(tokens.values()) - tokens["researcher"])
    assert found.round_usd is not None
    line = estimate_line(MODEL)
    assert line.startswith(f"estimate, before any call: a round takes ~{found.round_usd:.2f} USD and ")
    assert line.endswith(" for 2 rounds; no cap is set: --set budget.usd=20")
    assert "no cap" not in estimate_line(MODEL.model_copy(update={"budget": Budget(usd=5.0)}))


def test_the_users_price_and_model_count_and_an_unknown_price_is_said() -> None:
    own = Price(input=1.0, output=1.0, cache_read=1.0, cache_write=1.0)
    unknown = MODEL.model_copy(update={"models": {"default": "made-up"}})
    mixed = MODEL.model_copy(update={"models": {"executor": "made-up"}})

    priced = forecast(unknown, {}, {"made-up": own})
    assert priced is not None
    assert priced.round_usd == pytest.approx(priced.round_tokens / 1e6)
    assert "no price is known, so only tokens are counted" in estimate_line(unknown)
    assert "without executor, whose price is not known" in estimate_line(mixed)


def test_from_the_first_turns_on_the_runs_own_figures_count() -> None:
    known = {str(role): TURN for role in ASSUMED}
    budget = Budget(usd=10.0, tokens=1_000_000)
    found = forecast(MODEL.model_copy(update={"budget": budget}), known)

    assert found is not None
    assert (found.basis, found.turns, found.round_tokens, found.round_usd) == ("measured", 10, 45_000, 2.25)
    assert found.rounds_left == 3  # (10 - 2.5) / 2.25; tokens would do for more
    partly = forecast(MODEL, {"planner": TURN})
    assert partly is not None
    assert partly.round_tokens > 45_000  # what was not measured yet is assumed


@pytest.mark.parametrize("backend", ["local", "command"])
def test_without_a_model_there_is_nothing_to_tell(backend: str) -> None:
    settings = MODEL.model_copy(update={"agent_backend": backend})

    assert forecast(settings, {"planner": Spent(calls=1, turns=1)}) is None
    assert estimate_line(settings) == ""


def test_a_program_that_reports_its_tokens_is_forecast_from_them_alone() -> None:
    settings = MODEL.model_copy(update={"agent_backend": "command", "agent_command": "x"})
    found = forecast(settings, {"executor": TURN})

    assert found is not None
    assert (found.round_tokens, found.round_usd) == (10_000, 0.5)


def test_every_round_has_its_cost_by_role_and_the_run_is_their_sum() -> None:
    play = played(MODEL)
    rounds = [
        IterationHistory.model_validate_json(play.files[f"state/iteration_history/round_{number}.json"])
        for number in (1, 2)
    ]
    report = MergeReport.model_validate_json(play.files["state/merge_reports/round_1.json"])
    summary = round_summary(rounds[0], report)

    assert {one.role: one.turns for one in rounds[0].costs} == {
        "researcher": 1,
        "planner": 2,
        "architect": 2,
        "critic": 2,
        "executor": 2,
    }
    assert (summary.input_tokens, summary.output_tokens, summary.cached_tokens) == (900, 90, None)
    assert sum(one.input_tokens or 0 for one in summary.roles) == 900
    run = {one.role: one for one in run_row(play.now, forecast=of_run(play.now)).budget.roles}
    for role, one in run.items():
        of_rounds = [cost for past in rounds for cost in past.costs if cost.role == role]
        assert one.input_tokens == sum(cost.input_tokens or 0 for cost in of_rounds)
        assert one.wall_s == sum(cost.wall_s for cost in of_rounds)
    assert json.loads(rounds[0].model_dump_json())["costs"][0]["role"] == "researcher"


def test_a_price_that_is_not_known_is_no_zero() -> None:
    play = played(MODEL)
    some = {"planner": TURN, "executor": Spent(calls=1, input_tokens=5, output_tokens=5, wall_s=3.0, turns=1)}
    lines = cost_lines(replace(play.now, spent=some))
    assert lines[0].startswith(
        "Cost: 0.5000 USD and what has no known price, 9,005 tokens in (0 cached), 1,005 out"
    )
    assert (
        lines[2]
        == "  executor: price unknown, tokens only, 5 tokens in (0 cached), 5 out, 1 calls, 3 s of agents"
    )
