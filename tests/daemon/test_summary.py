"""What is promised of a run's end, its row and its rounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sid_daemon.core.longterm.audit import Audited
from sid_daemon.core.measuring.words import SelectionHistory
from sid_daemon.core.state import RunState, Spent
from sid_daemon.core.wording import one_line
from sid_daemon.figures import difference, improvement, percentage, signed
from sid_daemon.report.text import push_lines, status_notes, summary_fields, summary_text
from sid_daemon.rpc.rows import round_summary, run_row
from sid_protocol.records import IterationHistory, MergedWinner, MergeReport
from sid_protocol.settings import Budget, Measurement, Settings
from tests.core.play import Play, World, created, played


def settings(**more: Any) -> Settings:
    return Settings(**{"number_of_agents": 2, "max_iterations": 1, "benchmark_command": "b", **more})


def second_wins(arm: str, iteration: int) -> float:
    return 11.9 if arm == "executor_2" else 10.0


def ended(**more: Any) -> RunState:
    return played(settings(**more), score=second_wins).now


def test_the_promised_lines_come_first() -> None:
    lines = summary_text(ended()).splitlines()

    assert lines[:5] == [
        "=== Self-Improvement Loop Complete ===",
        "Status: max_iterations",
        "Iterations: 1",
        "Best Score: 11.9 (baseline: 10.0)",
        "Improvement: 1.9 (19.0%)",
    ]
    assert lines[-2:] == [
        "Push skipped (auto_push: false). Run manually: git -C /home/ada/primes push origin improve/faster_sieve",
        "PR creation skipped (auto_pr: false). Run manually: gh pr create --head improve/faster_sieve --base main",
    ]
    assert "Chart: /home/ada/primes/.sid/topics/default/tracking/progress.png" in lines


@pytest.mark.parametrize(
    ("baseline", "best", "direction", "line"),
    [
        (10.0, 12.5, "higher_is_better", "Improvement: 2.5 (25.0%)"),
        (10.0, 7.5, "lower_is_better", "Improvement: 2.5 (25.0%)"),
        (10.0, 9.0, "higher_is_better", "Improvement: -1.0 (-10.0%)"),
        (85.2, 87.1, "higher_is_better", "Improvement: 1.9 (2.2%)"),
        (10.0, 10.0, "lower_is_better", "Improvement: 0.0 (0.0%)"),
        (0.0, 3.0, "higher_is_better", "Improvement: 3.0 (n/a%)"),
        (-4.0, -3.0, "higher_is_better", "Improvement: 1.0 (25.0%)"),
    ],
)
def test_an_improvement_is_positive_where_it_is_better(
    baseline: float, best: float, direction: Any, line: str
) -> None:
    state = replace(
        ended(),
        baseline_score=baseline,
        best_score=best,
        settings=settings(benchmark_direction=direction),
    )

    assert summary_text(state).splitlines()[4] == line


@pytest.mark.parametrize("direction", ["higher_is_better", "lower_is_better"])
def test_without_a_winner_no_improvement_is_claimed_whatever_noise_says(direction: Any) -> None:
    state = played(settings(benchmark_direction=direction), score=lambda *_: 10.0).now
    assert state.completed == 1
    state = replace(state, baseline_score=10.0, best_score=10.4 if direction == "higher_is_better" else 9.6)

    assert summary_text(state).splitlines()[4] == "Improvement: 0.0 (0.0%)"
    assert (summary_fields(state)["delta"], run_row(state).gain) == (0.0, 0.0)


def audited(gain: float, score: float, **more: Any) -> Audited:
    found = Audited(
        baseline_sha="b" * 40,
        head_sha="a" * 40,
        gain=gain,
        interval=(gain - 0.01, gain + 0.01),
        n=12,
        p=0.001,
        merges=1,
        summed=0.12,
        score=score,
        logarithmic=True,
        reference=90.0,
    )
    return replace(found, **more)


def noisy_end(best: float, direction: Any = "higher_is_better", **more: Any) -> RunState:
    """Return a noisy run after one merge that was measured at +12 %."""
    rule = Measurement(mode="noisy")
    state = replace(
        ended(), settings=settings(measurement=rule, benchmark_direction=direction), baseline_score=100.0
    )
    return replace(
        state, best_score=best, summed_gain=0.12, history=SelectionHistory(merges=1, all_whole=False), **more
    )


@pytest.mark.parametrize(
    ("direction", "best", "line"),
    [
        ("higher_is_better", 94.5, "Improvement: 5.12711 (5.1%)"),  # a slower machine
        ("higher_is_better", 130.0, "Improvement: 5.12711 (5.1%)"),  # a faster one
        ("lower_is_better", 104.0, "Improvement: 4.87706 (4.9%)"),
    ],
)
def test_a_noisy_runs_improvement_is_the_audits_and_no_difference_of_two_days(
    direction: Any, best: float, line: str
) -> None:
    state = noisy_end(best, direction, audited=audited(0.05, best))

    assert summary_text(state).splitlines()[4] == line
    assert summary_fields(state)["delta"] == run_row(state).gain == float(line.split()[1])


def test_luck_that_the_audit_did_not_find_again_is_not_claimed() -> None:
    state = noisy_end(101.5, audited=audited(-0.001, 100.2))

    assert summary_text(state).splitlines()[4] == "Improvement: -0.09995 (-0.1%)"


def test_what_was_merged_since_the_audit_counts_as_it_was_measured() -> None:
    state = noisy_end(100.0, audited=audited(0.05, 94.5))
    state = replace(state, summed_gain=0.12 + 0.03, history=replace(state.history, merges=2))
    by_difference = replace(
        state, audited=audited(0.5, 6.0, logarithmic=False, reference=-8.0), best_score=7.5
    )

    assert run_row(state).gain == pytest.approx(100 * math.expm1(0.08), rel=1e-5)
    assert run_row(replace(state, best_score=80.0)).gain == pytest.approx(100 * math.expm1(0.05), rel=1e-5)
    assert run_row(by_difference).gain == pytest.approx(0.5 * 8.0 + 1.5)


@pytest.mark.parametrize(
    ("best", "found"),
    [
        (104.0, 4.0),  # less than the one win said: it was lucky
        (130.0, 100 * math.expm1(0.12)),  # more: the machine is faster now
        (94.5, 0.0),  # a slower machine, and a loss that nobody saw
    ],
)
def test_before_an_audit_no_more_is_claimed_than_wins_and_scores_carry(best: float, found: float) -> None:
    assert run_row(noisy_end(best)).gain == pytest.approx(found, rel=1e-5)


def test_counts_have_no_ratio_and_are_told_as_differences() -> None:
    assert run_row(replace(noisy_end(106.0), history=SelectionHistory(merges=1))).gain == 6.0


def test_push_and_pull_request_are_told_where_they_are_off() -> None:
    state = ended()

    assert push_lines(replace(state, settings=settings(auto_push=True, auto_pr=True))) == []
    (line,) = push_lines(replace(state, settings=settings(auto_pr=True), repo="/home/ada/my repo"))
    assert "git -C '/home/ada/my repo' push" in line
    (line,) = push_lines(replace(state, settings=settings(auto_pr=True), repo="/home/ada/a\nb"))
    assert "git -C $'/home/ada/a\\x0ab' push" in line
    pushed = replace(state, settings=settings(auto_push=True, auto_pr=True))
    assert summary_text(pushed, notes=["Pushed improve/faster_sieve to origin"]).endswith("to origin")


def test_the_summary_names_interval_hint_and_side_ref() -> None:
    state = replace(
        ended(),
        status="failed",
        reason="No space left on device",
        hint="free some space",
        best_interval=(11.5, None),
        on_side_ref=True,
    )

    text = summary_text(state)
    assert "Reason: No space left on device\nHint: free some space\n" in text
    assert "[11.5, ?]" in text
    assert text.count("free some space") == 1
    assert "Branch: refs/sid/faster_sieve at" in text
    assert "wins are kept on refs/sid/faster_sieve" in text


def test_the_summary_as_data_says_the_same() -> None:
    fields = summary_fields(ended())

    assert fields["status"] == "max_iterations"
    assert (fields["iterations"], fields["best_score"], fields["baseline"]) == (1, 11.9, 10.0)
    assert (fields["delta"], fields["delta_pct"]) == (1.9, 19.0)
    assert fields["branch"] == "improve/faster_sieve"


def test_a_user_is_told_what_is_special() -> None:
    state = replace(ended(), audited=None)

    assert status_notes(state) == []
    assert "sictl resume" in status_notes(replace(state, status="paused"))[0]
    assert status_notes(replace(state, status="running", stopping=True)) == [
        "stopping: it takes at most 10 s"
    ]
    assert status_notes(replace(state, status="user_stopped", stopping=True)) == []
    assert (
        "the benchmark failed"
        in status_notes(replace(state, history=replace(state.history, broken_rounds=1)))[0]
    )
    assert status_notes(replace(state, status="failed", hint="free some space")) == ["free some space"]


def test_a_hold_out_that_is_used_up_is_told_in_the_summary_too() -> None:
    rule = Measurement(holdout_looks=2)
    state = replace(ended(), settings=settings(holdout_command="sh hold.sh", measurement=rule))

    assert "hold-out" not in summary_text(state)
    state = replace(state, history=replace(state.history, holdout_looks=2))
    assert "holdout_looks is used up (2 of 2): merges are no longer checked by the hold-out" in summary_text(
        state
    )
    assert "hold-out" not in summary_text(replace(state, settings=settings()))


def test_a_row_shows_where_the_run_is() -> None:
    play = Play(World(settings(max_iterations=7, target_value=99.0), score=second_wins))
    play.start()
    play.run(hold="run_plan")
    play.hang("r1.run.executor_1.0.1")
    play.run(until=lambda p: bool(p.now.now_round.kills), hold="run_plan")
    row = run_row(play.now, sandbox="bubblewrap")

    assert (row.status, row.iteration, row.max_iterations) == ("running", 1, 7)
    assert row.current_step == "execution"
    assert (row.best_score, row.baseline, row.target) == (10.0, 10.0, 99.0)
    assert (row.counters.force_kills, row.counters.kill_threshold, row.counters.blocked_limit) == (1, 3, 2)
    assert (row.notes, row.sandbox) == ([], "bubblewrap")


def test_a_row_between_rounds_has_no_step() -> None:
    row = run_row(ended())

    assert (row.current_step, row.status, row.reason) == (None, "max_iterations", "1 of 1 rounds done")


def test_cost_is_told_where_it_is_known() -> None:
    state = replace(
        ended(agent_backend="command", agent_command="x", budget=Budget(usd=5.0)),
        spent={
            "planner": Spent(calls=2, usd=0.5),
            "critic": Spent(calls=1, input_tokens=10, output_tokens=5),
        },
    )
    budget = run_row(state).budget

    assert (budget.usd.spent, budget.usd.limit) == (0.5, 5.0)
    assert (budget.tokens.spent, budget.calls.spent) == (15, 3)
    nothing = run_row(replace(state, spent={})).budget
    assert (nothing.usd.spent, nothing.tokens.spent, nothing.calls.spent) == (None, None, 0)
    assert run_row(ended()).budget.calls.spent is None  # no model was called


def test_the_time_of_a_running_run_goes_on() -> None:
    play = Play(World(settings()))
    play.start()
    since = play.clock

    assert (
        run_row(play.now, now=since.replace(minute=since.minute + 5).isoformat()).budget.wall_s.spent == 300
    )
    assert run_row(play.now).budget.wall_s.spent == 0


def test_a_round_becomes_a_row_of_the_history() -> None:
    play = played(settings(), score=second_wins)
    history = IterationHistory.model_validate_json(play.files["state/iteration_history/round_1.json"])
    report = MergeReport.model_validate_json(play.files["state/merge_reports/round_1.json"])
    row = round_summary(history, report)

    assert (row.status, row.baseline_score, row.score, row.delta) == ("merged", 10.0, 11.9, 1.9)
    assert row.gain == pytest.approx(math.log(1.19))
    # An `init` that turns the direction leaves what was won before it as it was; older reports do not say.
    assert round_summary(history, report, "lower_is_better").gain == row.gain
    assert report.winner is not None
    ours = {name: value for name, value in report.winner.model_dump().items() if name != "direction"}
    older = report.model_copy(update={"winner": MergedWinner.model_validate(ours)})
    assert round_summary(history, older, "lower_is_better").gain == pytest.approx(-math.log(1.19))
    assert (row.candidates, row.rejected, row.force_kills, row.commit) == (2, 0, 0, play.now.head)
    assert row.duration_s is not None
    assert row.duration_s > 0


def test_a_round_without_a_winner_has_no_score() -> None:
    play = played(settings())
    history = IterationHistory.model_validate_json(play.files["state/iteration_history/round_1.json"])
    report = MergeReport.model_validate_json(play.files["state/merge_reports/round_1.json"])
    row = round_summary(history.model_copy(update={"started_at": ""}), report)

    assert (row.status, row.score, row.delta, row.commit, row.duration_s) == (
        "no_improvement",
        None,
        None,
        None,
        None,
    )
    assert "no candidate is better" in (row.reason or "")


def test_a_noisy_run_shows_its_interval() -> None:
    noisy = settings(measurement=Measurement(mode="noisy"))
    state = Play(World(noisy), created(noisy, deterministic=False)).now

    assert run_row(replace(state, best_interval=(9.5, 10.5))).interval == (9.5, 10.5)


@pytest.mark.parametrize(
    ("after", "before", "found"),
    [(87.1, 85.2, 1.9), (0.35, 0.34, 0.01), (1.0, 1.0, 0.0), (-0.0, 0.0, 0.0), (1e308, -1e308, float("inf"))],
)
def test_a_difference_is_what_the_decimals_say(after: float, before: float, found: float) -> None:
    assert difference(after, before) == found
    assert str(difference(after, before))[0] != "-"


def test_figures_for_people() -> None:
    assert [signed(value) for value in (1.5, 0.0, -1.5, 1e22)] == ["+1.5", "+0.0", "-1.5", "+1e+22"]
    assert improvement(5.0, 10.0, "lower_is_better") == 5.0
    assert [percentage(1.0, base) for base in (8.0, -8.0, 0.0)] == ["12.5", "12.5", "n/a"]
    assert percentage(-0.00001, 1.0) == "0.0"
    assert one_line(" a\tb\n\nc\x00d ") == "a b cd"
    assert one_line("x" * 300) == "x" * 200
