"""The audit says what all merges together gained, whatever the machine did, and goes on after a crash as if none was."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from sid_daemon.core.longterm.audit import Audit, Audited, headline, next_ask
from sid_daemon.report.text import status_notes, summary_text
from sid_daemon.rpc.live_rows import actor_rows
from sid_protocol.commands import AnyCommand, Measure
from sid_protocol.events import AnyEvent, Recalibrated, RunStopped, StopRequested
from sid_protocol.settings import Settings
from tests.core import play as made
from tests.core.measured import run

STORED = TypeAdapter(Audit)
START = Audit(
    baseline_sha="b" * 40,
    head_sha="a1b2c3d" + "0" * 33,
    direction="higher_is_better",
    noisy=True,
    max_pairs=40,
    max_minutes=None,
    pass_fail=False,
    continuous=True,
    reference=100.0,
    seed=7,
    merges=3,
    summed=0.124,
    summed_score=13.0,
)


def play(audit: Audit, score, *, store: bool = False) -> tuple[Audited, list[str]]:
    """Answer until the audit is done; `score(arm, run)` is a score, "error" or "timeout"."""
    arms: list[str] = []
    while not isinstance(ask := next_ask(audit), Audited):
        arm, _ = ask
        audit = replace(audit, results=(*audit.results, run(arm, score(arm, len(arms)))))
        arms.append(arm)
        if store:
            audit = STORED.validate_json(STORED.dump_json(audit))
        assert len(arms) < 200
    return ask, arms


def noisy(gain: float, sd: float, seed: int = 1):
    dice = random.Random(seed)
    return lambda arm, _: (100 * (1 + gain) if arm == "A" else 100) * (1 + dice.gauss(0, sd))


def test_a_gain_is_told_with_its_interval_and_beside_the_sum_of_wins():
    found, arms = play(START, noisy(0.116, 0.005))

    low, high = found.interval or (None, None)
    assert low is not None
    assert high is not None
    assert low < 0.1098 < high
    assert high - low < 0.04
    assert len(arms) == 2 * found.n < 80
    assert headline(found).startswith("total since baseline +1")
    assert "audited at a1b2c3d, n=" in headline(found)
    assert headline(found).endswith("(sum of wins would say +12.4 %)")


def test_nothing_gained_is_not_called_a_gain():
    found, _ = play(START, noisy(0.0, 0.02))

    assert found.n == 40
    assert "since baseline ~ " in headline(found)


def test_a_deterministic_benchmark_is_run_once_an_arm():
    exact = replace(START, noisy=False, continuous=False)
    found, arms = play(exact, lambda arm, _: 110.0 if arm == "A" else 100.0)

    assert sorted(arms) == ["A", "baseline"]
    assert found.gain == pytest.approx(0.1)
    assert found.interval is None
    assert headline(found) == "total since baseline +10.0 % audited at a1b2c3d, one run each"


def test_a_difference_is_relative_to_the_baseline_on_record_and_so_is_the_sum_of_wins():
    crossing = replace(START, continuous=False, reference=-0.5, summed_score=1.31)
    scores = {"baseline": [-0.6] + [-0.5] * 40, "A": [0.8] * 41}
    found, _ = play(crossing, lambda arm, _: scores[arm].pop(0))

    assert found.gain == pytest.approx(2.6)
    assert headline(found).endswith("(sum of wins would say +262.0 %)")


def test_a_failed_run_voids_its_pair_and_two_in_one_pair_end_the_audit():
    steady = noisy(0.1, 0.005)
    found, arms = play(START, lambda arm, n: "error" if n == 3 else steady(arm, n))
    assert found.gain == pytest.approx(0.095, abs=0.02)
    assert found.n >= 7
    assert len(arms) in (2 * found.n + 1, 2 * found.n + 2)

    broken, _ = play(START, lambda arm, n: "timeout" if arm == "baseline" else 100.0)
    assert broken.gain is None
    assert "the benchmark fails on the baseline" in headline(broken)


def test_pairs_that_were_measured_before_the_benchmark_failed_count():
    found, _ = play(START, lambda arm, n: "error" if n >= 20 else noisy(0.05, 0.03, n)(arm, n))

    assert found.n == 10
    assert found.gain == pytest.approx(0.05, abs=0.03)
    told = headline(found)
    assert told.startswith("total since baseline ")
    assert "n=10 pairs" in told
    assert "; cut short: the benchmark fails on the " in told


def test_an_audit_that_is_stored_after_each_run_finds_the_same_bit_for_bit():
    assert play(START, noisy(0.05, 0.02), store=True) == play(START, noisy(0.05, 0.02))


def test_the_interval_holds_the_truth_although_it_says_when_to_stop():
    held = early = 0
    for seed in range(60):
        found, _ = play(replace(START, seed=seed, max_pairs=20), noisy(0.03, 0.0035, seed))
        low, high = found.interval or (None, None)
        held += (low is None or low <= 0.0296) and (high is None or high >= 0.0296)
        early += found.n < 20
    assert held >= 54
    assert early >= 50


# In a run


def improving(arm: str, iteration: int) -> float:
    """Return a score that each round's first candidate raises by 1."""
    return {"executor_1": 10.0 + iteration, "A": 9.0 + iteration, "baseline": 10.0}.get(arm, 1.0)


def audits(play: made.Play) -> list[dict]:
    """Return the audits on record, oldest first."""
    events = [json.loads(one) for one in play.entries.get("tracking/events.json", ())]
    return [one for one in events if one["event_type"] == "audit"]


def asked(play: made.Play) -> list[str]:
    return [one.arm for one in play.dispatched if isinstance(one, Measure) and one.stage == "audit"]


def test_head_and_baseline_are_compared_every_so_many_merges_and_at_the_end():
    settings = Settings.model_validate(
        {"number_of_agents": 1, "max_iterations": 5, "measurement": {"audit_every": 2}}
    )
    play = made.played(settings, score=improving)

    assert play.now.status == "max_iterations"
    assert [one["details"]["merges"] for one in audits(play)] == [2, 4, 5]
    assert sorted(asked(play)) == ["A"] * 3 + ["baseline"] * 3
    last = audits(play)[-1]["details"]
    assert (last["baseline_sha"], last["head_sha"]) == (made.BASE, play.now.head)
    assert last["n"] == 1


def rising(start: float, step: float, other: float) -> dict[str, Any]:
    """Return a world whose first candidate raises the score by a step a round; every other has one score."""

    def score(arm: str, iteration: int) -> float:
        return {"executor_1": start + step * iteration, "A": start + step * (iteration - 1)}.get(arm, other)

    def answer(command: AnyCommand) -> AnyEvent | None:
        if not isinstance(command, Measure) or command.stage != "audit":
            return None
        return made.measured(start if command.arm == "baseline" else start + step * command.iteration)

    return {"score": score, "answer": answer}


def test_wins_across_zero_add_up_to_what_the_audit_measures():
    settings = Settings(number_of_agents=1, max_iterations=3)
    begun = made.created(settings, baseline_samples=(-5.0,) * 3, baseline_score=-5.0)
    play = made.played(settings, begun, **rising(-5.0, 3.5, -99.0))

    last = audits(play)[-1]["details"]
    assert last["gain"] == pytest.approx(2.1)
    assert last["sum_of_wins"] == pytest.approx(2.1)


@pytest.mark.parametrize(("other", "gain"), [(1.5, math.log(1.5)), (-1.5, 0.5)])
def test_gains_are_ratios_only_where_every_score_of_the_run_was_positive(other: float, gain: float):
    settings = Settings(number_of_agents=2, max_iterations=2)
    play = made.played(settings, **rising(10.0, 2.5, other))

    assert audits(play)[-1]["details"]["gain"] == pytest.approx(gain)


def test_another_init_takes_neither_the_baseline_from_the_audit_nor_the_wins_before_it():
    settings = Settings(number_of_agents=1, max_iterations=1)
    play = made.played(settings, **rising(10.0, 2.5, 1.0))
    play.world.settings = settings.model_copy(update={"max_iterations": 2})
    play.feed(made.created(play.world.settings, baseline_commit=play.now.head, baseline_score=12.5))
    play.start()
    play.run()

    last = audits(play)[-1]["details"]
    assert (last["baseline_sha"], last["head_sha"]) == (made.BASE, play.now.head)
    assert last["gain"] == pytest.approx(math.log(1.5))
    assert (last["sum_of_wins"], last["merges"]) == (pytest.approx(math.log(1.5)), 2)


def test_a_run_that_won_nothing_is_not_audited():
    settings = Settings(number_of_agents=1, max_iterations=2)
    assert asked(made.played(settings)) == []


def test_a_stop_does_not_wait_for_an_audit_and_the_next_start_goes_on_with_it():
    settings = Settings(number_of_agents=1, max_iterations=1)
    play = made.Play(made.World(settings, score=improving))
    play.start()
    play.run(until=lambda now: len(asked(now)) == 2)
    assert play.now.audit is not None
    assert len(play.now.audit.results) == 1

    play.feed(StopRequested())
    play.feed(RunStopped())
    assert play.state
    assert play.state.status == "user_stopped"
    play.start()
    play.run()

    assert play.now.status == "max_iterations"
    assert len(audits(play)) == 1
    assert len(asked(play)) == 3  # the one that was under way is run again, the one before it is not


def test_a_new_calibration_takes_effect_and_keeps_what_was_shown():
    play = made.Play(made.World(Settings(number_of_agents=1)))
    again: AnyEvent = Recalibrated(
        commit=made.BASE,
        samples=(10.0, 10.2, 9.9, 10.1, 10.0),
        score=10.0,
        deterministic=False,
        calibration={"history": {"aa_gaps": [0.02], "sessions": [[10.0, 10.2]]}, "run_timeout_s": 90.0},
    )
    play.feed(again)
    assert play.now.is_noisy
    assert play.now.run_timeout_s == 90.0
    assert play.now.history.sessions == ((10.0, 10.2),)

    play.feed(Recalibrated(commit=made.BASE, samples=(11.0,) * 3, score=11.0, deterministic=True))
    assert not play.now.is_noisy
    assert play.now.best_score == 11.0
    told = [json.loads(one) for one in play.entries["tracking/events.json"]]
    assert told[-1]["details"]["old_value"] == {"mode": "noisy", "best_score": 10.0}


def test_a_benchmark_broken_on_the_incumbent_ends_the_run_after_three_rounds_and_says_so():
    settings = Settings.model_validate(
        {"number_of_agents": 1, "circuit_breaker_threshold": 9, "measurement": {"mode": "noisy"}}
    )
    for score in (lambda arm, _: None if arm == "A" else 11.0, lambda *_: None):
        play = made.played(settings, score=score)

        assert play.now.status == "circuit_breaker"
        assert play.now.completed == 3
        assert "fails on the improvement branch itself" in (play.now.reason or "")
    results = [json.loads(text) for name, text in play.files.items() if "benchmark_results" in name]
    assert {one["failure_analysis"]["category"] for one in results} == {"infrastructure"}


def test_status_shows_who_is_at_work_between_two_rounds_and_what_the_last_audit_found():
    play = made.Play(made.World(Settings(number_of_agents=1, max_iterations=1), score=improving))
    play.start()
    play.run(until=lambda now: len(asked(now)) == 2)

    rows = actor_rows(play.now, play.now.outstanding, {}, 0.0)
    assert [(row.id, row.state) for row in rows] == [("bench", "waiting")]
    assert any("audit under way: 1 runs" in note for note in status_notes(play.now))

    play.run()
    assert any(note.startswith("total since baseline ") for note in status_notes(play.now))
    assert "Audit: total since baseline " in summary_text(play.now)
