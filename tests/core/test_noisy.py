"""A round on a noisy benchmark: what is merged, what is not, and what odd benchmarks lead to."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.measurement.rules import Ours
from benchmarks.measurement.worlds import MODELS, World, gaussian
from sid_daemon.core.describe import describe
from sid_daemon.core.measuring.selection import next_ask
from sid_daemon.core.measuring.words import (
    Ask,
    AskMerge,
    AskRun,
    Candidate,
    GuardRule,
    Policy,
    RunResult,
    Selection,
    SelectionHistory,
    Verdict,
)
from tests.core.measured import STORED, Bench, Table, run, selection

KNOWN = SelectionHistory(aa_gaps=(0.01,) * 8, sessions=((100.0, 100.1, 99.9, 100.0, 100.2),))


def noisy(smokes, **changes) -> Selection:
    return selection(smokes, **{"history": KNOWN, "mode": "noisy", **changes})


def gauss(truths: dict[str, float], sd: float = 0.01, seed: int = 1):
    """A benchmark with these true scores and a relative noise."""
    dice = random.Random(seed)
    return lambda ask: truths[ask.arm] * math.exp(dice.gauss(0, sd))


# A candidate that is plainly 5 % better, at a noise that hides nothing.
CLEAR = {"A": 100.0, "executor_1": 105.0, "merged": 105.0}


def test_a_clear_gain_is_screened_confirmed_and_merged():
    bench = Bench(gauss({**CLEAR, "executor_2": 100.0}, 0.002))
    verdict = bench.judge(noisy([104.0, 100.0]))
    assert (verdict.status, verdict.winner, verdict.reason) == ("merged", "executor_1", None)
    assert verdict.pairs == 8  # the fewest that can show anything at one percent
    told = Counter(bench.told())
    assert told["A warmup"] == told["merged warmup"] == 1
    assert told["A screen"] == 4
    assert told["A confirm"] == told["merged confirm"] == 8
    assert verdict.gain == pytest.approx(math.log(1.05), abs=0.003)
    low, high = ends(verdict)
    assert low < (verdict.gain or 0) < high
    assert (verdict.p or 1) <= 0.01
    assert verdict.score_after == pytest.approx(105, rel=0.003)
    assert verdict.best_score == verdict.score_after
    assert verdict.best_interval is not None
    assert verdict.history.sessions == (tuple(r.score for r in merged_runs(bench)),)
    assert verdict.measurement is not None
    assert verdict.measurement["n_pairs"] == 8
    assert re.fullmatch("(AB|BA){8}", str(verdict.measurement["order"]))


def ends(verdict: Verdict) -> tuple[float, float]:
    low, high = verdict.interval or (None, None)
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def merged_runs(bench: Bench) -> list[RunResult]:
    fed = bench.states[-1].fed
    asked = zip(bench.asks, fed, strict=True)
    return [
        result
        for ask, result in asked
        if isinstance(ask, AskRun)
        and isinstance(result, RunResult)
        and (ask.arm, ask.stage) == ("merged", "confirm")
    ]


def test_without_a_gain_the_branch_stays_and_the_incumbent_is_estimated_anew():
    table = {"A": 90.0, "executor_1": 90.0, "executor_2": 90.0, "merged": 90.0}
    verdict = Bench(gauss(table, 0.01, seed=4)).judge(noisy([100.0, 100.0]))
    assert verdict.winner is None
    assert verdict.status == "no_improvement"
    assert verdict.best_score == pytest.approx(90, rel=0.02)  # not the 100 that was remembered
    assert len(verdict.history.sessions) == 2


def test_the_smoke_run_decides_nothing():
    truths = {**CLEAR, "executor_2": 100.0}
    low, high = noisy([1.0, 900.0]), noisy([900.0, 1.0])
    one, other = (Bench(gauss(truths, 0.002)).judge(state) for state in (low, high))
    assert one.winner == other.winner == "executor_1"
    assert one.gain == other.gain


@pytest.mark.parametrize("direction", ["higher_is_better", "lower_is_better"])
@pytest.mark.parametrize("best", [100.0, -100.0])
def test_either_direction_and_either_sign(direction, best):
    better = 1.05 if (direction == "higher_is_better") == (best > 0) else 0.95
    truths = {"A": best, "executor_1": best * better, "executor_2": best, "merged": best * better}
    state = noisy([best, best], best=best, direction=direction)
    verdict = Bench(gauss(truths, 0.002)).judge(state)
    assert verdict.winner == "executor_1"
    assert (verdict.gain or 0) == pytest.approx(0.05, abs=0.005)
    worse = {**truths, "executor_1": best / better, "merged": best / better}
    assert Bench(gauss(worse, 0.002)).judge(state).winner is None


def test_scores_around_zero_are_judged_by_differences():
    dice = random.Random(3)
    means = {"A": 0.0, "executor_1": 3.0, "merged": 3.0}
    verdict = Bench(lambda ask: means[ask.arm] + dice.gauss(0, 1)).judge(noisy([0.5], best=0.1))
    assert verdict.winner == "executor_1"
    assert math.isfinite(verdict.gain or math.nan)


def test_a_score_of_zero_in_mid_confirm_neither_fails_nor_counts_as_failure():
    table: Table = {
        "A": 100.0,
        "executor_1": 105.0,
        "merged": [105.0, 105.5, 0.0, 104.5, *[105.0] * 30],
    }
    verdict = Bench(table).judge(noisy([105.0]))
    assert verdict.winner == "executor_1"
    assert verdict.measurement is not None
    assert verdict.measurement["void_pairs"] == 0
    assert not verdict.history.all_positive


def test_counts_are_judged_by_differences():
    dice = random.Random(5)
    means = {"A": 40, "executor_1": 36, "merged": 36}
    state = noisy([36], best=40, direction="lower_is_better")
    verdict = Bench(lambda ask: float(means[ask.arm] + dice.randint(-1, 1))).judge(state)
    assert verdict.winner == "executor_1"
    assert verdict.gain == pytest.approx(0.1, abs=0.02)


def test_counts_stay_counts_where_their_median_is_half_of_one():
    means = {"A": 40.0, "executor_1": 36.0, "merged": 36.0}
    verdict = Bench(means).judge(noisy([36], best=40.5, direction="lower_is_better"))
    assert verdict.gain == pytest.approx(4 / 40.5)
    assert verdict.history.all_whole


def test_a_flaky_test_made_reliable_is_merged_and_the_reverse_is_not():
    def flaky(rates, seed):
        dice = random.Random(seed)
        return lambda ask: float(dice.random() < rates[ask.arm])

    wins = [
        Bench(flaky({"A": bad, "executor_1": good, "merged": good}, seed)).judge(
            noisy([1.0], best=1.0, pass_fail=True)
        )
        for bad, good in ((0.1, 1.0), (1.0, 0.1))
        for seed in range(12)
    ]
    assert sum(one.winner is not None for one in wins[:12]) >= 10
    assert not any(one.winner for one in wins[12:])


def test_a_failing_candidate_is_retried_once_then_out():
    table: Table = {
        **CLEAR,
        "executor_1": ["error", *[105.0] * 9],
        "executor_2": [100.0, "timeout"],
        "executor_3": [math.nan],
    }
    bench = Bench(table)
    verdict = bench.judge(noisy([100.0, 100.0, 100.0, "error"]))
    assert verdict.winner == "executor_1"
    found = {arm: (one.status, one.category) for arm, one in verdict.outcomes.items()}
    assert found["executor_2"] == ("timeout", "timeout")
    assert found["executor_3"] == ("error", "benchmark_parse_error")
    assert found["executor_4"] == ("error", "logic_error")
    assert bench.told().count("executor_3 screen") == 2


def test_when_every_candidate_fails_there_is_no_winner():
    verdict = Bench({"A": 100.0, "executor_1": "error"}).judge(noisy([100.0, "error"]))
    assert (verdict.status, verdict.reason) == ("no_winner", "no candidate gave a valid score")
    assert not verdict.incumbent_broken


@pytest.mark.parametrize("stage", ["warmup", "screen", "confirm"])
def test_an_incumbent_that_fails_twice_ends_the_round_and_blames_nobody(stage):
    def answer(ask: Ask):
        broken = isinstance(ask, AskRun) and ask.arm == "A" and ask.stage == stage
        return "error" if broken else CLEAR[ask.arm]

    bench = Bench(answer)
    verdict = bench.judge(noisy([105.0]))
    assert (verdict.status, verdict.reason) == ("no_winner", "benchmark broken on the incumbent")
    assert verdict.incumbent_broken
    assert verdict.history.broken_rounds == 1
    assert verdict.outcomes["executor_1"].status == "success"
    assert bench.told().count(f"A {stage}") == 2


def test_a_candidate_that_failed_before_the_incumbent_did_is_not_blamed_either():
    table: Table = {"A": [100.0, 100.0, 100.0, "error"], "executor_1": 101.0, "executor_2": "error"}
    verdict = Bench(table).judge(noisy([100.0, 100.0]))
    assert verdict.incumbent_broken
    assert {one.status for one in verdict.outcomes.values()} == {"success"}


def test_more_warm_up_runs_are_made_in_every_arm_and_count_for_nothing():
    table: Table = {**CLEAR, "A": [1.0, 1.0, 100.0], "merged": [1.0, 1.0, 105.0], "executor_2": "timeout"}
    bench = Bench(table)
    verdict = bench.judge(noisy([105.0, 100.0], warmup_runs=2))
    told = Counter(bench.told())
    assert told["A warmup"] == told["merged warmup"] == 2
    assert told["executor_1 warmup"] == 1  # its smoke run was the first
    assert verdict.winner == "executor_1"
    assert verdict.outcomes["executor_2"].status == "timeout"


def test_a_failed_run_voids_its_pair_and_the_pair_is_repeated():
    table: Table = {**CLEAR, "A": [100.0] * 7 + ["timeout"] + [100.0] * 30}
    bench = Bench(table)
    verdict = bench.judge(noisy([105.0]))
    assert verdict.winner == "executor_1"
    assert verdict.measurement is not None
    assert verdict.measurement["void_pairs"] == 1
    assert verdict.pairs == 8


@pytest.mark.parametrize(("failure", "category"), [("error", "infrastructure"), ("timeout", "timeout")])
def test_a_merged_tree_that_fails_twice_in_a_pair_is_rejected(failure, category):
    table: Table = {**CLEAR, "merged": [105.0, 105.0, failure]}
    verdict = Bench(table).judge(noisy([105.0]))
    assert verdict.status == "no_improvement"
    assert (verdict.outcomes["executor_1"].status, verdict.outcomes["executor_1"].category) == (
        failure,
        category,
    )


def test_a_merged_tree_that_crashes_now_and_then_is_rejected_though_faster():
    table: Table = {**CLEAR, "merged": itertools.cycle([105.0, 105.5, 104.9, "error"])}
    verdict = Bench(table).judge(noisy([105.0], min_pairs=20))
    assert verdict.winner is None
    assert verdict.outcomes["executor_1"].status == "error"
    both: Table = {
        **CLEAR,
        "A": itertools.cycle([100.0, 100.0, "error"]),
        "merged": itertools.cycle([105.0, 105.0, "error"]),
    }
    assert Bench(both).judge(noisy([105.0])).outcomes["executor_1"].status == "success"


def test_after_a_conflict_the_next_in_line_stands():
    truths = {"A": 100.0, "executor_1": 105.0, "executor_2": 103.0, "merged": 103.0}
    bench = Bench(gauss(truths, 0.002), conflicts=["executor_1"])
    verdict = bench.judge(noisy([105.0, 103.0]))
    assert verdict.winner == "executor_2"
    assert verdict.outcomes["executor_1"].why == "merge conflict"
    alone = Bench(gauss(truths, 0.002), conflicts=["executor_1", "executor_2"]).judge(noisy([105.0, 103.0]))
    assert alone.status == "no_improvement"
    assert "merge conflict" in (alone.reason or "")


def test_only_one_finalist_a_round_is_tested():
    truths = {"A": 100.0, "executor_1": 101.0, "executor_2": 101.0, "merged": 100.0}
    for seed in range(6):
        bench = Bench(gauss(truths, 0.01, seed))
        bench.judge(noisy([100.0, 100.0]))
        assert sum(isinstance(ask, AskMerge) for ask in bench.asks) <= 1


def test_far_behind_is_a_regression_and_the_best_is_kept():
    truths = {"A": 100.0, "executor_1": 70.0, "executor_2": 80.0}
    bench = Bench(gauss(truths, 0.002))
    verdict = bench.judge(noisy([100.0, 100.0]))
    assert bench.told().count("executor_1 screen") == 1
    assert bench.told().count("executor_2 screen") == 3
    assert verdict.status == "no_winner"
    assert (verdict.reason or "").startswith("all candidates screened out as regressions: best -22.3 %")
    assert {one.status for one in verdict.outcomes.values()} == {"regression"}
    assert verdict.regressions_detected


def test_the_best_is_not_dropped_and_so_no_regression_within_the_tolerance():
    truths = {"A": 100.0, "executor_1": 97.0, "executor_2": 96.0}
    quiet = SelectionHistory(aa_gaps=(0.0002,) * 8, sessions=KNOWN.sessions)
    state = noisy([97.0, 96.0], history=quiet, tolerance=0.05, tolerance_absolute=False)
    verdict = Bench(gauss(truths, 0.0002)).judge(state)
    assert [one.status for one in verdict.outcomes.values()] == ["success", "regression"]
    assert verdict.status == "no_improvement"
    assert (verdict.reason or "").startswith("no gain seen in the screen: best -3.")


def test_blocks_halve_the_field_in_shuffled_orders():
    truths = {"A": 100.0, "merged": 104.0} | {f"executor_{k}": 100.0 + k / 2 for k in range(1, 9)}
    bench = Bench(gauss(truths, 0.001))
    bench.judge(noisy([100.0] * 8))
    blocks: dict[int, list[str]] = {}
    for ask in bench.asks:
        if isinstance(ask, AskRun) and ask.stage == "screen":
            blocks.setdefault(ask.block, []).append(ask.arm)
    assert [len(blocks[k]) for k in (1, 2, 3, 4)] == [9, 9, 5, 3]
    assert blocks[1] != blocks[2]
    assert set(blocks[4]) == {"A", "executor_8", "executor_7"}


def test_quick_screens_once():
    bench = Bench(gauss(CLEAR, 0.002))
    assert bench.judge(noisy([105.0], screen_blocks=1)).winner == "executor_1"
    assert bench.told().count("A screen") == 1


def test_the_coins_of_a_confirm_stage_are_fair():
    orders = ""
    for seed in range(30):
        verdict = Bench(gauss(CLEAR, 0.002, seed)).judge(noisy([105.0], seed=seed))
        assert verdict.measurement is not None
        orders += str(verdict.measurement["order"])[::2]
    assert 0.38 < orders.count("A") / len(orders) < 0.62


def test_a_stage_without_an_end_says_what_it_would_need():
    truths = {"A": 100.0, "executor_1": 103.0, "merged": 100.3}
    figure = r"-?[\d.]+"
    long = Bench(gauss(truths, 0.008, seed=2)).judge(noisy([101.0], beta=1e-6))
    assert re.fullmatch(
        rf"inconclusive after 40 pairs: \+{figure} % \[{figure}, {figure}\]; needs >= {figure} % at this noise",
        long.reason or "",
    )
    assert long.status == "no_improvement"
    assert long.pairs == 40
    assert long.outcomes["executor_1"].status == "success"
    hopeless = Bench(gauss({**truths, "merged": 100.0}, 0.008, seed=2)).judge(noisy([101.0]))
    assert re.fullmatch(rf"gain below {figure} %", hopeless.reason or "")
    assert hopeless.pairs < 40
    calm = Bench(gauss({**truths, "merged": 100.0}, 0.0005, seed=2)).judge(noisy([101.0]))
    assert calm.reason == "gain below 0.5 %"


def test_time_may_end_a_confirm_stage_harmlessly():
    # A run takes 2 s: 40 s are 10 pairs.
    truths = {"A": 100.0, "executor_1": 101.0, "merged": 100.9}
    verdict = Bench(gauss(truths, 0.01, seed=8)).judge(noisy([100.0], max_minutes=40 / 60, futility_sd=0.0))
    assert verdict.pairs == 10
    assert (verdict.reason or "").startswith("inconclusive after 10 pairs")
    assert (verdict.reason or "").endswith("; max_minutes 0.666667 is up")


def latency(worse: float, sd: float = 0.002):
    dice = random.Random(11)

    def answer(ask: Ask) -> RunResult:
        late = 50.0 * (1 + worse if ask.arm == "merged" else 1)
        score = CLEAR[ask.arm] * math.exp(dice.gauss(0, 0.002))
        return run(ask.arm, score, latency=late * math.exp(dice.gauss(0, sd)))

    return answer


def test_a_guard_shown_worse_refuses_what_is_faster():
    rule = GuardRule("latency", "lower_is_better", 0.05)
    verdict = Bench(latency(0.10)).judge(noisy([105.0], guards=(rule,)))
    assert verdict.winner is None
    outcome = verdict.outcomes["executor_1"]
    assert (outcome.status, outcome.category) == ("regression", "regression")
    assert re.fullmatch(r"guard latency: -\d.*", outcome.why or "")
    assert verdict.regressions_detected
    assert Bench(latency(0.01)).judge(noisy([105.0], guards=(rule,))).winner == "executor_1"
    assert Bench(latency(0.10)).judge(noisy([105.0])).winner == "executor_1"
    missing = GuardRule("accuracy")
    refused = Bench(latency(0.0)).judge(noisy([105.0], guards=(missing,)))
    assert refused.outcomes["executor_1"].why == "guard accuracy: not reported"
    assert refused.outcomes["executor_1"].guard_failed


def test_the_fast_lane_takes_three_pairs_and_says_so():
    bench = Bench(gauss(CLEAR, 0.002))
    verdict = bench.judge(noisy([105.0], fast_lane=True))
    assert verdict.winner == "executor_1"
    assert (verdict.pairs, verdict.p, verdict.fast) == (3, None, True)
    assert "merged (fast)" in describe(verdict)
    lately = Bench(gauss(CLEAR, 0.002)).judge(noisy([105.0], fast_lane=True, screen_blocks=1))
    assert lately.pairs == 4  # three pairs give three gaps of the incumbent, one too few
    unknown = SelectionHistory(aa_gaps=(0.01,) * 2)
    few = noisy([105.0], fast_lane=True, screen_blocks=1, history=unknown)
    assert Bench(gauss(CLEAR, 0.002)).judge(few).pairs == 6
    loud = SelectionHistory(aa_gaps=(0.01,) * 7 + (0.2,))
    assert Bench(gauss(CLEAR, 0.002)).judge(noisy([105.0], fast_lane=True, history=loud)).pairs == 8


@pytest.mark.parametrize(("after", "wins"), [(100.0, True), (90.0, False)])
def test_a_would_be_merge_must_survive_the_hold_out(after, wins):
    answers = {**CLEAR, "holdout A": 100.0, "holdout merged": after}
    bench = Bench(answers)
    verdict = bench.judge(noisy([105.0], holdout=True))
    assert (verdict.winner == "executor_1") is wins
    assert bench.told()[-2:] == ["holdout A", "holdout merged"]
    assert verdict.outcomes["executor_1"].status == ("success" if wins else "regression")


def test_a_simplification_is_merged_if_shown_no_worse():
    entries = (
        Candidate("executor_1", run("executor_1", 100.0), -20),
        Candidate("executor_2", run("executor_2", 100.0), 4),
    )
    truths = {"A": 100.0, "executor_1": 99.8, "executor_2": 101.0, "merged": 99.8}
    state = noisy(entries, accept="non_inferior", tolerance=0.02)
    verdict = Bench(gauss(truths, 0.004)).judge(state)
    assert verdict.winner == "executor_1"
    assert verdict.outcomes["executor_2"].why == "no fewer lines"
    assert ends(verdict)[0] > -0.02
    worse = {**truths, "executor_1": 99.0, "merged": 95.0}
    assert Bench(gauss(worse, 0.004)).judge(state).winner is None
    longer = noisy(entries[1:], accept="non_inferior", tolerance=0.02)
    assert Bench(gauss(truths, 0.004)).judge(longer).reason == "no candidate has fewer lines"


def test_duet_names_the_arm_that_runs_beside():
    bench = Bench(gauss(CLEAR, 0.002))
    assert bench.judge(noisy([105.0], pairing="duet")).winner == "executor_1"
    pairs = [ask for ask in bench.asks if isinstance(ask, AskRun) and ask.stage == "confirm"]
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        assert first.beside == second.arm
        assert second.beside is None
    assert not any(ask.beside for ask in bench.asks if isinstance(ask, AskRun) and ask.stage != "confirm")


def test_the_best_score_has_no_interval_under_six_runs():
    truths = {"A": 100.0, "executor_1": 90.0}
    verdict = Bench(gauss(truths, 0.002)).judge(noisy([90.0], history=SelectionHistory()))
    assert verdict.best_interval is None
    again = Bench(gauss(truths, 0.002, 2)).judge(noisy([90.0], history=verdict.history, iteration=2))
    assert again.best_interval is not None
    assert len(again.history.sessions) == 2
    third = Bench(gauss(truths, 0.002, 3)).judge(noisy([90.0], history=again.history, iteration=3))
    assert third.history.sessions[0] == again.history.sessions[1]


# ------------------------------------------------------------------------------ the state and its replays


def test_a_decision_stored_at_any_moment_goes_on_as_if_nothing_had_happened():
    truths = {**CLEAR, "executor_2": 100.0}
    through = Bench(gauss(truths, 0.01, seed=6), store=True)
    straight = Bench(gauss(truths, 0.01, seed=6))
    state = noisy([105.0, 100.0])
    assert through.judge(state) == straight.judge(state)
    assert through.asks == straight.asks
    for number, stored in enumerate(through.states[:-1]):
        assert stored == straight.states[number]
        assert next_ask(stored) == straight.asks[number]
        assert STORED.validate_python(STORED.dump_python(stored)) == stored


SCORES = st.one_of(
    st.floats(90, 110),
    st.sampled_from([100.0, 0.0, -5.0, 1e-300, 1e300, math.nan, math.inf, "error", "timeout"]),
)


@given(
    smokes=st.lists(SCORES, max_size=5),
    dice=st.randoms(use_true_random=False),
    odd=st.floats(0, 0.6),
    mode=st.sampled_from(["noisy", "deterministic"]),
    conflicts=st.sets(st.sampled_from(["executor_1", "executor_2", "executor_3"])),
    accept=st.sampled_from(["improve", "non_inferior"]),
    best=st.sampled_from([None, 100.0, 0.0, -3.0]),
)
@settings(max_examples=60)
def test_whatever_the_benchmark_does_a_round_ends_with_an_outcome_for_everybody(
    smokes, dice, odd, mode, conflicts, accept, best
):
    junk = [0.0, -5.0, 1e300, math.nan, math.inf, "error", "timeout"]

    def answer(ask: Ask):
        return dice.choice(junk) if dice.random() < odd else dice.uniform(95, 105)

    state = selection(
        tuple(
            Candidate(f"executor_{k}", run(f"executor_{k}", smoke), dice.choice([-2, 3]))
            for k, smoke in enumerate(smokes, 1)
        ),
        best=best,
        mode=mode,
        accept=accept,
        max_pairs=12,
        fast_lane=True,
    )
    bench = Bench(answer, conflicts=conflicts, most=200, store=True)
    verdict = bench.judge(state)
    assert set(verdict.outcomes) == {one.arm for one in state.candidates}
    assert (verdict.winner is None) == (verdict.status != "merged") == (verdict.reason is not None)
    assert verdict.winner not in conflicts
    for outcome in verdict.outcomes.values():
        assert (outcome.category is None) == (outcome.status == "success")
        if outcome.status == "success":
            assert math.isfinite(outcome.benchmark_score or 0)
    assert "nan" not in describe(verdict)
    assert verdict.best_score is None or math.isfinite(verdict.best_score)


# --------------------------------------------------------------- what it must reach, with fixed seeds and few rounds


def campaign(
    noise, gains: list[float], campaigns: int, rounds: int, **changes
) -> tuple[list[Verdict], list[bool]]:
    """Play rounds against worlds with a known truth; returns the verdicts, and whether the best one won."""
    verdicts, right = [], []
    for seed in range(campaigns):
        world = World(noise, seed)
        rule = Ours(Policy("higher_is_better", "noisy", seed=seed, **changes))
        rule.prepare(world)
        for _ in range(rounds):
            order = gains[:]
            world.dice.shuffle(order)
            merged = rule.round(world, order)
            assert rule.verdict is not None
            verdicts.append(rule.verdict)
            right.append(merged is not None and order[merged] == max(order))
    return verdicts, right


@pytest.mark.parametrize("name", [name for name in MODELS if name != "none"])
def test_where_nothing_is_better_next_to_nothing_is_merged(name):
    verdicts, _ = campaign(MODELS[name], [0.0] * 4, campaigns=8, rounds=15)
    # At a true rate of 1 % more than 5 of 120 happen once in 150 times; the seeds are fixed.
    assert sum(one.winner is not None for one in verdicts) <= 5


def test_without_noise_one_run_a_candidate_and_one_a_merge():
    world = World(MODELS["none"], 1)
    rule = Ours()
    rule.prepare(world)
    assert rule.policy.mode == "deterministic"
    assert rule.round(world, [0.0, 0.0001, 0.0]) == 1
    for gains, expected, runs in (
        ([0.0, 0.0, 0.0], None, 3),
        ([0.0, 0.0001, 0.00005], 1, 4),
        ([-0.1, 0.0, 0.0], None, 3),
    ):
        before = world.runs
        assert rule.round(world, gains) == expected
        assert world.runs - before == runs


def test_a_gain_of_two_sd_is_found_and_the_right_candidate_merged():
    verdicts, right = campaign(gaussian(0.01), [0.0, 0.0, 0.0, 0.02], campaigns=80, rounds=1)
    assert sum(right) >= 0.9 * len(right)
    assert sum(one.winner is not None for one in verdicts) == sum(right)
    merged = [ends(one) for one in verdicts if one.winner]
    assert sum(low <= 0.02 <= high for low, high in merged) >= 0.9 * len(merged)
    assert sum(one.runs for one in verdicts) / len(verdicts) <= 42


def test_a_slower_machine_hides_no_gain_and_a_faster_one_makes_none():
    for level, gains, rounds, wins in ((0.9, [0.05, 0.0], 2, True), (1.1, [-0.02] * 4, 6, False)):
        for seed in range(4):
            world = World(gaussian(0.01), seed)
            rule = Ours()
            rule.prepare(world)
            world.level = level
            assert any(rule.round(world, gains) is not None for _ in range(rounds)) is wins


def test_the_best_score_does_not_creep_where_nothing_is_better():
    errors = []
    for seed in range(4):
        world, rule = World(gaussian(0.01), seed), Ours()
        rule.prepare(world)
        for _ in range(20):
            rule.round(world, [0.0] * 4)
        errors.append(math.log((rule.best or 0) / world.truths["A"]))
    assert max(map(abs, errors)) <= 0.01


# ------------------------------------------------------------------------------------------- one line a round


def test_a_line_a_round():
    verdict = Bench(gauss({**CLEAR, "executor_2": 100.0}, 0.002)).judge(noisy([105.0, 100.0]))
    assert re.fullmatch(
        r"candidate a  \+4\.\d % \[4\.\d, 5\.\d\]  n=8 pairs  p<=0\.00\d+  merged  \(\d+ runs, \d+ s\)",
        describe(verdict),
    )
    behind = Bench(gauss({"A": 100.0, "executor_1": 80.0}, 0.002)).judge(noisy([100.0]))
    assert re.fullmatch(r"best of 1  -22\.\d %  screened out  \(\d+ runs, \d+ s\)", describe(behind))
    broken = Bench({"A": "error"}).judge(noisy([100.0]))
    assert describe(broken).endswith("not judged  (benchmark broken on the incumbent)")
    tie = Bench({}).judge(selection([100.0]))
    assert describe(tie) == (
        "best of 1  +0.0 %  not better  (no candidate is better than the incumbent: best +0.0 %)"
    )


def test_the_interval_of_the_best_score_holds_it_though_the_last_session_was_long_and_of_a_slower_machine():
    history = SelectionHistory(sessions=((98.0, 98.5, 97.5) * 10,), aa_gaps=(0.005,) * 8)
    verdict = Bench({"A": 101.0, "executor_1": 90.5}).judge(
        selection([90.0], mode="noisy", history=history, best=98.0)
    )

    assert verdict.best_score == 101.0
    assert verdict.best_interval == (98.0, 101.0)


def test_too_few_pairs_to_prove_anything_are_said_to_be_that():
    """And not a lack of gain: at alpha 1 % eight pairs are the fewest that can show any."""
    verdict = Bench(gauss(CLEAR, 0.002)).judge(noisy([105.0], max_pairs=5))

    assert (verdict.status, verdict.pairs) == ("no_improvement", 5)
    assert (verdict.reason or "").endswith("; max_pairs 5 can prove nothing, it takes 8 at alpha 0.01")
    assert Bench(gauss(CLEAR, 0.002)).judge(noisy([105.0], max_pairs=8)).winner == "executor_1"
    assert Bench(gauss(CLEAR, 0.002)).judge(noisy([105.0], max_pairs=3, alpha=5e-324)).winner is None
