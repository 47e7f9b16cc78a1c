"""Set-up: three equal runs are deterministic, anything else is noisy, and the noise has a price."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter

from sid_daemon.core.measuring.calibration import Calibrated, Calibration, next_ask, on_run
from sid_daemon.core.measuring.words import AskRun, RunResult

STORED = TypeAdapter(Calibration)


def calibrate(scores, *, walls=None, cpus=None, **changes) -> tuple[Calibrated, int]:
    state = Calibration(**{"direction": "higher_is_better", **changes})
    for count, score in enumerate(scores):
        ask = next_ask(state)
        if isinstance(ask, Calibrated):
            return ask, count
        assert ask == AskRun("A", "calibrate", serial=count)
        result = (
            RunResult("A", None, {}, "error", why="boom: no such file")
            if score is None
            else RunResult(
                "A",
                score,
                {"memory": 10.0 + count},
                "success",
                cpus[count] if cpus else None,
                walls[count] if walls else 0.5,
            )
        )
        state = STORED.validate_json(STORED.dump_json(on_run(state, result)))
    found = next_ask(state)
    assert isinstance(found, Calibrated)
    return found, len(scores)


def test_three_equal_runs_are_deterministic_and_enough():
    found, runs = calibrate([42.5] * 5)
    assert runs == 3
    assert (found.mode, found.baseline, found.cv, found.advice) == ("deterministic", 42.5, 0.0, ())
    assert found.history.aa_gaps == ()
    assert found.history.guard_baseline == {"memory": 11.0}


def test_anything_else_is_noisy_and_told_what_the_noise_costs():
    found, runs = calibrate([100.0, 101.0, 100.0, 99.5, 100.5])
    assert runs == 5
    assert (found.mode, found.baseline) == ("noisy", 100.0)
    assert found.history.sessions == ((100.0, 101.0, 100.0, 99.5, 100.5),)
    assert len(found.history.aa_gaps) == 4
    assert found.sd_pair == pytest.approx(1.4826 * math.log(101 / 100), rel=0.05)
    assert found.spread == pytest.approx(0.015, abs=0.001)
    assert found.advice == (
        "noise 1.5 % a pair: gains of 1.0 % are found 1 time in 2, of 2.1 % nearly always, with 40 pairs",
    )


def test_a_failing_incumbent_ends_the_set_up_with_its_own_words():
    found, runs = calibrate([1.0, None, 1.0])
    assert runs == 2
    assert found.failed is not None
    assert found.failed.why == "boom: no such file"
    assert calibrate([math.nan, 1.0])[0].failed is not None


def test_the_user_may_insist_on_noisy_and_cannot_insist_on_a_fiction():
    assert calibrate([7.0] * 5, mode="noisy")[0].mode == "noisy"
    assert calibrate([7.0] * 5, mode="deterministic")[0].mode == "deterministic"
    found, _ = calibrate([7.0, 8.0, 7.0, 7.0, 7.0], mode="deterministic")
    assert found.mode == "noisy"
    assert "set to be deterministic" in " ".join(found.advice)


def test_a_noisy_clock_is_advised_to_count_cpu_time():
    scores = [100.0, 120.0, 95.0, 130.0, 105.0]
    found, _ = calibrate(scores, walls=scores, cpus=[50.0, 50.1, 49.9, 50.0, 50.2])
    assert "CPU time" in found.advice[-1]
    assert "runs differ by 13.3 % of their mean" in found.advice[1]
    assert found.run_timeout_s == 390
    assert found.run_s == 105
    quiet, _ = calibrate([1.0, 1.1, 1.0, 1.1, 1.0], walls=[0.1] * 5)
    assert quiet.run_timeout_s == 60


@pytest.mark.parametrize("scores", [[0.0, 1.0, 1.0, 0.0, 1.0], [-2.0, 3.0, -1.0, 0.0, 1.0]])
def test_scores_of_zero_and_less_have_a_noise_too(scores):
    found, _ = calibrate(scores, pass_fail=scores[0] == 0)
    assert found.mode == "noisy"
    assert all(math.isfinite(gap) for gap in found.history.aa_gaps)
    assert not found.history.all_positive
    assert found.integer


def test_only_runs_of_the_incumbent_are_taken_and_none_too_many():
    state = Calibration("higher_is_better")
    with pytest.raises(ValueError, match="no run of executor_1 is outstanding"):
        on_run(state, RunResult("executor_1", 1.0, {}, "success"))
    for _ in range(3):
        state = on_run(state, RunResult("A", 1.0, {}, "success"))
    with pytest.raises(ValueError, match="no run of A is outstanding"):
        on_run(state, RunResult("A", 1.0, {}, "success"))


def test_scores_around_zero_are_told_to_have_no_shares():
    found, _ = calibrate([-0.2, 0.4, 0.1, -0.3, 0.2])

    assert "both sides of zero" in found.advice[1]
    assert not any("of their mean" in line for line in found.advice)
