"""A round on a deterministic benchmark: one run a candidate, one a merge attempt, and no tie ever merged."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sid_daemon.core.describe import describe
from sid_daemon.core.measuring.selection import begin, next_ask, on_merge, on_run
from sid_daemon.core.measuring.words import Candidate, GuardRule, MergeResult, RunResult, SelectionHistory
from tests.core.measured import Bench, candidates, policy, run, selection

MERGED_BEFORE = SelectionHistory(merges=1, determinism_checked=True)


def test_a_gain_of_a_hundredth_of_a_percent_is_merged_at_once():
    bench = Bench({"merged": 100.01})
    verdict = bench.judge(selection([100.0, 100.01, 99.0], history=MERGED_BEFORE))
    assert bench.told() == ["merge executor_2", "merged merge"]
    assert (verdict.status, verdict.winner, verdict.reason) == ("merged", "executor_2", None)
    assert (verdict.score_before, verdict.score_after, verdict.best_score) == (100.0, 100.01, 100.01)
    assert verdict.gain == pytest.approx(1e-4, rel=1e-3)
    assert verdict.measurement is None
    assert verdict.best_interval is None
    assert verdict.history.merges == 2


def test_before_the_first_merge_of_a_run_both_arms_run_twice_more():
    bench = Bench({"merged": 101.0, "A": 100.0})
    verdict = bench.judge(selection([101.0]))
    checks = ["A check", "merged check"] * 2
    assert bench.told() == ["merge executor_1", "merged merge", *checks]
    assert verdict.status == "merged"
    assert verdict.history.determinism_checked


@given(
    smokes=st.lists(st.sampled_from([97.0, 99.0, 100.0, 100.01, 103.0]), max_size=6),
    conflicts=st.sets(st.sampled_from([f"executor_{k}" for k in range(1, 7)])),
    lower=st.booleans(),
)
def test_one_run_a_merge_attempt_and_never_a_tie(smokes, conflicts, lower):
    direction = "lower_is_better" if lower else "higher_is_better"
    state = selection(candidates(*smokes), history=MERGED_BEFORE, direction=direction)
    by_arm = {one.arm: one.smoke.value for one in state.candidates}
    bench = Bench(lambda _: by_arm[bench.merging], conflicts=conflicts)
    verdict = bench.judge(state)

    better = [arm for arm, score in by_arm.items() if (score < 100 if lower else score > 100)]
    able = [arm for arm in better if arm not in conflicts]
    tried = [ask for ask in bench.told() if ask.startswith("merge ")]
    assert bench.told().count("merged merge") == (1 if able else 0)
    assert len(bench.asks) == len(tried) + bool(able)
    if able:
        extreme = min if lower else max
        assert by_arm[verdict.winner or ""] == extreme(by_arm[arm] for arm in able)
        assert (verdict.gain or 0) > 0
    else:
        assert verdict.winner is None
        assert len(tried) == len(better)


def test_equal_scores_ask_for_nothing_and_merge_nothing():
    bench = Bench({})
    verdict = bench.judge(selection([100.0, 100.0]))
    assert bench.asks == []
    assert verdict.status == "no_improvement"
    assert {one.status for one in verdict.outcomes.values()} == {"success"}
    assert verdict.outcomes["executor_1"].why == "same score as the incumbent"


def test_among_equals_fewer_lines_win_then_the_lower_number():
    entries = (
        Candidate("executor_1", run("executor_1", 101.0), 9),
        Candidate("executor_2", run("executor_2", 101.0), 3),
        Candidate("executor_3", run("executor_3", 101.0), 3),
    )
    verdict = Bench({"merged": 101.0}).judge(selection(entries, history=MERGED_BEFORE))
    assert verdict.winner == "executor_2"


def test_after_a_conflict_or_a_failure_the_next_in_line_stands():
    bench = Bench({"merged": ["error", 101.0]}, conflicts=["executor_1"])
    verdict = bench.judge(selection([103.0, 102.0, 101.0], history=MERGED_BEFORE))
    assert bench.told() == [
        "merge executor_1",
        "merge executor_2",
        "merged merge",
        "merge executor_3",
        "merged merge",
    ]
    assert verdict.winner == "executor_3"
    assert verdict.outcomes["executor_1"].why == "merge conflict"
    assert verdict.outcomes["executor_1"].status == "success"
    assert verdict.outcomes["executor_2"].status == "error"
    assert verdict.outcomes["executor_2"].category == "infrastructure"


def test_worse_candidates_are_regressions_and_failed_ones_keep_their_kind():
    odd = RunResult("executor_4", math.nan, {}, "success")
    verdict = Bench({}).judge(selection([99.0, "error", "timeout", odd]))
    found = {arm: (one.status, one.category, one.benchmark_score) for arm, one in verdict.outcomes.items()}
    assert found == {
        "executor_1": ("regression", "regression", 99.0),
        "executor_2": ("error", "logic_error", None),
        "executor_3": ("timeout", "timeout", None),
        "executor_4": ("error", "benchmark_parse_error", None),
    }
    assert verdict.status == "no_winner"
    assert verdict.reason == "all candidates screened out as regressions: best -1.0 %"
    assert verdict.regressions_detected


@pytest.mark.parametrize("smokes", [["error", "timeout"], [math.nan, math.inf]])
def test_without_a_valid_score_there_is_no_winner(smokes):
    bench = Bench({"A": 100.0})
    verdict = bench.judge(selection(smokes))
    assert (verdict.status, verdict.reason) == ("no_winner", "no candidate gave a valid score")
    assert bench.told() == ["A check"]  # the benchmark itself works


@pytest.mark.parametrize("mode", ["deterministic", "noisy"])
def test_a_benchmark_that_runs_nowhere_is_no_candidates_fault(mode):
    verdict = Bench({"A": "error"}).judge(selection(["error", "timeout"], mode=mode))
    assert (verdict.status, verdict.reason) == ("no_winner", "benchmark broken on the incumbent")
    assert verdict.incumbent_broken
    assert [one.category for one in verdict.outcomes.values()] == ["infrastructure"] * 2


def test_two_scores_for_one_tree_make_the_run_noisy_for_good():
    bench = Bench({"A": 100.0, "merged": 101.5, "executor_1": 102.0, "executor_2": 99.0})
    verdict = bench.judge(selection([102.0, 99.0], history=MERGED_BEFORE))
    assert bench.told()[:7] == ["merge executor_1", "merged merge", *["A calibrate"] * 5]
    assert bench.told()[7] == "A warmup"
    assert verdict.became_noisy
    assert verdict.mode == "noisy"
    assert verdict.history.forced_noisy
    after = Bench({"A": 100.0, "executor_1": 100.0})
    again = after.judge(selection([100.0], history=verdict.history))
    assert again.mode == "noisy"
    assert "A screen" in after.told()
    assert not again.became_noisy


def test_who_could_not_be_merged_does_not_enter_the_screen_when_the_round_turns_noisy():
    table = {"A": 100.0, "merged": 101.5, "executor_2": 99.0, "executor_3": 99.0}
    bench = Bench(table, conflicts=["executor_1"])
    verdict = bench.judge(selection([103.0, 102.0, 99.0], history=MERGED_BEFORE))
    assert verdict.became_noisy
    assert "executor_1 screen" not in bench.told()
    assert "executor_2 screen" in bench.told()
    assert verdict.outcomes["executor_1"].why == "merge conflict"


@pytest.mark.parametrize(
    ("incumbent", "merged"),
    [
        ([100.0, 100.1], 101.0),
        ([100.2], 101.0),
        ([100.0], [101.0, 101.0, 101.3]),
        ([100.0], [101.0, "error"]),
    ],
)
def test_the_check_before_the_first_merge_notices_noise(incumbent, merged):
    verdict = Bench({"A": incumbent, "merged": merged, "executor_1": 101.0}).judge(selection([101.0]))
    assert verdict.became_noisy
    assert not verdict.history.determinism_checked


def test_every_tenth_round_the_incumbent_is_run_and_a_changed_machine_noticed():
    history, checked = MERGED_BEFORE, []
    for iteration in range(1, 22):
        bench = Bench({"A": 100.0})
        verdict = bench.judge(selection([99.0], history=history, iteration=iteration))
        history = verdict.history
        if bench.asks:
            assert bench.told() == ["A check"]
            checked.append(iteration)
    assert checked == [10, 20]
    late = SelectionHistory(merges=1, determinism_checked=True, rounds_since_check=9)
    verdict = Bench({"A": 93.0, "executor_1": 93.0}).judge(selection([99.0], history=late))
    assert verdict.became_noisy
    assert verdict.best_score == 93.0


def test_a_benchmark_that_fails_on_the_incumbent_blames_nobody():
    late = SelectionHistory(merges=1, determinism_checked=True, rounds_since_check=9, broken_rounds=1)
    bench = Bench({"A": "error"})
    verdict = bench.judge(selection([103.0, "error"], history=late))
    assert bench.told() == ["A check", "A check"]
    assert (verdict.status, verdict.reason) == ("no_winner", "benchmark broken on the incumbent")
    assert verdict.incumbent_broken
    assert verdict.outcomes["executor_1"].status == "success"
    assert verdict.best_score is None
    assert verdict.history.broken_rounds == 2
    healthy = Bench({"A": 100.0}).judge(selection([99.0], history=verdict.history))
    assert healthy.history.broken_rounds == 0


def test_an_unknown_incumbent_is_measured_first():
    bench = Bench({"A": 100.0, "merged": 101.0})
    verdict = bench.judge(selection([101.0], best=None, history=MERGED_BEFORE))
    assert bench.told() == ["A check", "merge executor_1", "merged merge"]
    assert verdict.score_before == 100.0


def test_a_minimum_gain_that_the_user_sets_holds_in_deterministic_mode_too():
    bench = Bench({"merged": 101.0})
    verdict = bench.judge(selection([100.4], history=MERGED_BEFORE, min_effect=0.005))
    assert verdict.winner is None
    assert verdict.outcomes["executor_1"].why == "gain below 0.5 %"
    assert bench.judge(selection([101.0], history=MERGED_BEFORE, min_effect=0.005)).winner == "executor_1"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(1.0, 1.0, "same score as the incumbent"), (1.0, 0.0, "< -999 %"), (0.0, 1.0, None)],
)
def test_pass_and_fail(before, after, told):
    state = selection([after], best=before, history=MERGED_BEFORE, pass_fail=True)
    verdict = Bench({"merged": after}).judge(state)
    assert (verdict.winner is not None) == (told is None)
    assert verdict.outcomes["executor_1"].status == ("regression" if after < before else "success")


@pytest.mark.parametrize("best", [-5.0, 0.0, -0.001])
def test_scores_of_zero_and_less_are_compared_all_the_same(best):
    verdict = Bench({"merged": best + 1e-9}).judge(
        selection([best + 1e-9, best - 1.0], best=best, history=MERGED_BEFORE)
    )
    assert verdict.winner == "executor_1"
    assert math.isfinite(verdict.gain or math.nan)


GUARD = GuardRule("memory", "lower_is_better", 0.05)


@pytest.mark.parametrize(
    ("memory", "wins"), [(104.0, True), (106.0, False), (None, False), (math.nan, False)]
)
def test_a_guarded_sub_score_must_not_get_worse(memory, wins):
    history = SelectionHistory(merges=1, determinism_checked=True, guard_baseline={"memory": 100.0})
    sub_scores = {} if memory is None else {"memory": memory}
    bench = Bench({"merged": RunResult("merged", 101.0, sub_scores, "success")})
    verdict = bench.judge(selection([101.0], history=history, guards=(GUARD,)))
    assert (verdict.winner == "executor_1") is wins
    if not wins:
        assert verdict.outcomes["executor_1"].status == "regression"
        assert "guard memory" in (verdict.outcomes["executor_1"].why or "")
        assert verdict.outcomes["executor_1"].guard_failed
        assert verdict.regressions_detected
        assert verdict.score_after == 101.0, "the merged tree was measured"


def test_a_guard_without_a_baseline_takes_it_from_the_incumbent():
    table = {
        "A": RunResult("A", 100.0, {"memory": 50.0}, "success"),
        "merged": RunResult("merged", 101.0, {"memory": 60.0}, "success"),
    }
    bench = Bench(table)
    verdict = bench.judge(selection([101.0], history=MERGED_BEFORE, guards=(GUARD,)))
    assert bench.told()[0] == "A check"
    assert verdict.winner is None
    assert verdict.history.guard_baseline == {"memory": 50.0}


@pytest.mark.parametrize(
    ("before", "after", "wins", "why"),
    [
        (50.0, 50.0, True, None),
        (50.0, 46.0, False, "hold-out -8.3 %"),
        (50.0, "error", False, "hold-out command fails on the merged tree"),
        ("error", 50.0, False, "hold-out command fails on the incumbent"),
    ],
)
def test_a_would_be_merge_must_survive_the_hold_out(before, after, wins, why):
    bench = Bench({"merged": 101.0, "holdout A": before, "holdout merged": after})
    verdict = bench.judge(selection([101.0], history=MERGED_BEFORE, holdout=True))
    assert bench.told() == ["merge executor_1", "merged merge", "holdout A", "holdout merged"]
    assert (verdict.winner == "executor_1") is wins
    assert verdict.outcomes["executor_1"].why == why
    assert verdict.history.holdout_looks == 1


def test_a_hold_out_is_looked_at_so_often_and_no_more():
    worn = SelectionHistory(merges=1, determinism_checked=True, holdout_looks=20)
    bench = Bench({"merged": 101.0})
    bench.judge(selection([101.0], history=worn, holdout=True))
    assert bench.told() == ["merge executor_1", "merged merge"]
    fresh = Bench({})
    fresh.judge(selection([100.0], history=MERGED_BEFORE, holdout=True))
    assert fresh.asks == []


def test_a_simplification_may_cost_the_tolerance_and_must_remove_lines():
    entries = (
        Candidate("executor_1", run("executor_1", 101.0), 5),
        Candidate("executor_2", run("executor_2", 96.0), -3),
        Candidate("executor_3", run("executor_3", 94.0), -9),
    )
    verdict = Bench({"merged": 96.0}).judge(
        selection(entries, history=MERGED_BEFORE, accept="non_inferior", tolerance=0.05)
    )
    assert verdict.winner == "executor_2"
    assert verdict.outcomes["executor_1"].why == "no fewer lines"
    assert verdict.outcomes["executor_3"].status == "regression"
    absolute = Bench({"merged": 94.0}).judge(
        selection(
            entries[2:], history=MERGED_BEFORE, accept="non_inferior", tolerance=6.5, tolerance_absolute=True
        )
    )
    assert absolute.winner == "executor_3"


def test_a_line_for_a_merge_without_noise():
    verdict = Bench({"merged": 101.0}).judge(selection([99.0, 101.0], history=MERGED_BEFORE))
    assert describe(verdict) == "candidate b  +1.0 % (100.0 -> 101.0)  merged  (1 run, 2 s)"


def test_answers_of_the_wrong_kind_in_a_stored_state_are_refused():
    state = selection([101.0], history=MERGED_BEFORE)
    with pytest.raises(TypeError, match="asked for a merge of executor_1, was told of a run"):
        next_ask(replace(state, fed=(run("merged", 101.0),)))
    merge = MergeResult("executor_1", conflict=False)
    with pytest.raises(TypeError, match="asked for a run of merged, was told of a merge"):
        next_ask(replace(state, fed=(merge, merge)))
    looked = replace(state, policy=policy(holdout=True), fed=(merge, run("merged", 101.0), merge, merge))
    with pytest.raises(TypeError, match="asked for a look at the hold-out, was told of a merge"):
        next_ask(looked)


def test_only_what_is_outstanding_can_be_answered():
    state = begin(
        policy(),
        incumbent_score=100.0,
        history=MERGED_BEFORE,
        candidates=candidates(101.0),
        iteration=1,
    )
    with pytest.raises(ValueError, match="no run of A is outstanding"):
        on_run(state, run("A", 1.0))
    with pytest.raises(ValueError, match="no merge of executor_2 is outstanding"):
        on_merge(state, "executor_2", conflict=False)
    assert next_ask(state) == next_ask(state)
    state = on_merge(state, "executor_1", conflict=False)
    with pytest.raises(ValueError, match="no merge of executor_1 is outstanding"):
        on_merge(state, "executor_1", conflict=False)
    done = on_run(state, run("merged", 101.0))
    with pytest.raises(ValueError, match="no run of merged is outstanding"):
        on_run(done, run("merged", 101.0))
