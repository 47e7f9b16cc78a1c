"""Who may run beside a benchmark, and how long it may take then: of every run that whole rounds ask for."""

from __future__ import annotations

from typing import Any

from sid_protocol.commands import Measure
from sid_protocol.settings import Settings, parse_settings
from tests.core.play import Play, World, created

USUAL = {"run_timeout_s": 60.0}
GOOD = {"A": 10.0, "baseline": 10.0, "executor_1": 12.0}


def settings(**measurement: Any) -> Settings:
    return parse_settings(
        {
            "benchmark_command": "x",
            "benchmark_format": "number",
            "max_iterations": 2,
            "holdout_command": "y",
            "measurement": {"slots": 4, "audit_every": 1, **measurement},
        }
    )


def measured(
    wanted: Settings, *, score: Any = lambda arm, _: GOOD.get(arm, 9.0), **event: Any
) -> list[Measure]:
    """Return every run that a whole run of two rounds asks for."""
    play = Play(World(wanted, score=score), created(wanted, **event))
    play.start()
    play.run()
    assert play.status == "max_iterations"
    return [command for command in play.dispatched if isinstance(command, Measure)]


def slots_by_stage(commands: list[Measure]) -> dict[str, set[int]]:
    return {
        stage: {one.slots for one in commands if one.stage == stage}
        for stage in sorted({one.stage for one in commands})
    }


def test_runs_that_are_compared_by_value_may_have_others_beside_them() -> None:
    found = slots_by_stage(measured(settings()))
    assert found == {"audit": {4}, "check": {4}, "holdout": {1}, "merge": {4}, "smoke": {4}}


def test_runs_that_are_compared_by_evidence_are_alone() -> None:
    found = slots_by_stage(measured(settings(mode="noisy", min_pairs=8)))
    assert found == {stage: {1} for stage in ("audit", "confirm", "holdout", "screen", "smoke", "warmup")}


def test_a_benchmark_that_gave_one_tree_two_scores_is_alone_from_then_on() -> None:
    scores = iter(range(1, 100_000))
    found = measured(settings(max_pairs=8), score=lambda arm, _: GOOD.get(arm, 9.0) + next(scores) / 1000)
    turned = next(index for index, one in enumerate(found) if one.stage == "calibrate")
    assert {one.slots for one in found[:turned]} == {4}
    assert {one.slots for one in found[turned:]} == {1}


def test_quiet_is_asked_for_where_a_run_is_evidence() -> None:
    noisy = measured(settings(mode="noisy", min_pairs=8, quiet=True))
    assert {one.stage for one in noisy if not one.quiet} == {"smoke"}
    exact = measured(settings(quiet=True))
    assert {one.stage for one in exact if one.quiet} == {"holdout"}
    assert not any(one.quiet for one in measured(settings(mode="noisy", min_pairs=8)))


def test_a_run_among_others_may_take_as_many_times_as_long_as_alone() -> None:
    assert {one.limit_s for one in measured(settings(), calibration=USUAL) if one.slots > 1} == {240.0}
    assert {one.limit_s for one in measured(settings(mode="noisy"), calibration=USUAL)} == {60.0}
    assert {one.limit_s for one in measured(settings(run_timeout=90), calibration=USUAL)} == {90.0}


def test_more_certainty_asks_for_more_pairs() -> None:
    def pairs(alpha: float) -> int:
        return sum(one.stage == "confirm" for one in measured(settings(mode="noisy", alpha=alpha)))

    assert pairs(0.2) < pairs(0.01) < pairs(0.0001)


def test_a_benchmark_that_turns_out_noisy_is_run_as_often_as_at_set_up() -> None:
    for runs in (3, 7):
        scores = iter(range(1, 100_000))
        found = measured(
            settings(max_pairs=8, calibration_runs=runs),
            score=lambda arm, _, rising=scores: GOOD.get(arm, 9.0) + next(rising) / 1000,
        )
        assert sum(one.stage == "calibrate" for one in found) == runs
