"""Stories of a run, told through `step`: what a round does when things go well, badly, or not at all."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from sid_daemon.core.run import step
from sid_protocol.commands import (
    AnyCommand,
    CloseRound,
    Halt,
    Measure,
    ReturnIdeas,
)
from sid_protocol.events import (
    ActorCrashed,
    AgentFailed,
    AgentKilled,
    AnyEvent,
    BranchMoved,
    CandidateCommitted,
    CandidateRefused,
    MergeConflicted,
    PlanDrafted,
    PlanJudged,
    RoundPrepared,
    RoundsAsked,
    RunCreated,
    RunFailed,
    RunMeasured,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopped,
    StopRequested,
    WorkFailed,
)
from sid_protocol.settings import Budget, GuardRule, Measurement, Settings
from tests.core.play import BASE, Play, World, created, measured, plan, played, review, scripted, sha

FAILED = AgentFailed(why="no JSON in the answer")


def settings(**more: Any) -> Settings:
    fields: dict[str, Any] = {
        "number_of_agents": 2,
        "max_iterations": 1,
        "benchmark_command": "python bench.py",
    }
    return Settings(**{**fields, **more})


def second_wins(arm: str, iteration: int) -> float:
    """Return scores with which the second executor gains one point a round."""
    return 10.0 + iteration if arm == "executor_2" else 9.0 + iteration if arm == "A" else 9.0


def document(play: Play, path: str) -> dict[str, Any]:
    found = json.loads(play.files[path])
    assert isinstance(found, dict)
    return found


def report(play: Play, iteration: int = 1) -> dict[str, Any]:
    return document(play, f"state/merge_reports/round_{iteration}.json")


def history(play: Play, iteration: int = 1) -> dict[str, Any]:
    return document(play, f"state/iteration_history/round_{iteration}.json")


def test_a_round_asks_for_exactly_this() -> None:
    play = played(settings(number_of_agents=1), score=lambda arm, _: 11.0 if arm == "executor_1" else 10.0)

    assert [command.id for command in play.dispatched if command.id.startswith("r1.")] == [
        "r1.prepare.1",
        "r1.research.1",
        "r1.plan.planner_a.1",
        "r1.advise.planner_a.1",
        "r1.judge.planner_a.1",
        "r1.run.executor_1.0.1",
        "r1.smoke.executor_1",
        "r1.t0.merge.executor_1",
        "r1.t1.merge.merged",
        "r1.t2.check.A",
        "r1.t3.check.merged",
        "r1.t4.check.A",
        "r1.t5.check.merged",
        "r1.advance",
        "r1.close",
    ]
    assert (play.status, play.now.best_score, play.now.head) == ("max_iterations", 11.0, sha("m1"))


def test_wins_add_up_until_the_target_is_reached() -> None:
    play = played(settings(max_iterations=9, target_value=13.0), score=second_wins)

    assert play.status == "target_reached"
    assert play.now.completed == play.now.iteration == 3
    assert play.now.best_score == 13.0
    assert (play.now.plateau_count, play.now.breaker_count) == (0, 0)


def test_a_lower_score_wins_where_lower_is_better() -> None:
    play = played(
        settings(benchmark_direction="lower_is_better"),
        score=lambda arm, _: {"executor_1": 9.5, "executor_2": 12.0}.get(arm, 10.0),
    )

    assert report(play)["winner"]["executor_id"] == "executor_1"
    assert play.now.best_score == 9.5


@pytest.mark.parametrize("asked", ["research.", "plan.planner_a.", "run.executor_1.0."])
def test_an_agent_that_can_only_fail_again_is_not_asked_twice(asked: str) -> None:
    final = scripted({asked: [AgentFailed(why="no idea left", final=True)]})
    play = played(settings(), answer=final, score=second_wins)
    assert [c.id for c in play.dispatched if asked in c.id] == [f"r1.{asked}1"]


@pytest.mark.parametrize("ends", [FAILED, ActorCrashed(actor="researcher", error="KeyError")])
def test_without_a_brief_planners_work_from_history(ends: AnyEvent) -> None:
    play = played(settings(), answer=scripted({"research": [ends, ends]}), score=second_wins)

    assert "state/research_briefs/round_1.json" not in play.files
    assert [one["attempt"] for one in history(play)["agent_failures"]] == [1, 2]
    assert report(play)["status"] == "merged"


def test_a_failed_turn_is_repeated_once() -> None:
    play = played(settings(), answer=scripted({"plan.planner_a": [FAILED]}), score=second_wins)

    assert "r1.plan.planner_a.2" in [command.id for command in play.dispatched]
    assert len(play.now.winner_families) == 1
    assert len(history(play)["losers"]) == 1


def test_a_planner_that_fails_twice_is_left_out() -> None:
    play = played(settings(), answer=scripted({"plan.planner_a": [FAILED, FAILED]}), score=second_wins)

    assert "plans/round_1/plan_planner_a.json" not in play.files
    assert report(play)["winner"]["executor_id"] == "executor_2"


def test_ideas_go_back_before_the_round_ends_where_nobody_planned() -> None:
    answer = scripted({"r1.plan.": [FAILED] * 4})
    play = played(settings(max_iterations=2), answer=answer, ideas=("use a set",), score=second_wins)

    kinds = [type(command) for command in play.dispatched if isinstance(command, ReturnIdeas | CloseRound)]
    assert kinds == [ReturnIdeas, CloseRound, CloseRound]
    assert report(play) | {"status": "no_winner", "reason": "no planner produced a plan"} == report(play)
    assert play.now.breaker_count == 0  # the second round merged


def test_without_an_architect_the_critic_goes_on() -> None:
    play = played(settings(), answer=scripted({"advise.planner_b": [FAILED, FAILED]}), score=second_wins)

    advice = document(play, "plans/round_1/plan_planner_b.json")["architect_review"]
    assert advice["feedback"] == "no review: no JSON in the answer"
    assert report(play)["winner"]["executor_id"] == "executor_2"


def test_without_a_critic_the_rules_decide() -> None:
    play = played(settings(), answer=scripted({"judge": [FAILED] * 4}), score=second_wins)

    assert document(play, "plans/round_1/plan_planner_b.json")["critic_review"]["verdict"] == "approved"


def test_a_critic_may_reject_what_the_rules_approve() -> None:
    answer = scripted({"judge.planner_a": [PlanJudged(review=review("rejected", "was tried in round 3"))]})
    play = played(settings(), answer=answer, score=second_wins)

    assert history(play)["rejected_plans"][0]["rejection_reason"] == "was tried in round 3"
    assert "executor_1" not in document(play, "state/iteration_state.json")["execution"]["executors"]


def test_the_later_of_two_plans_of_one_family_falls() -> None:
    same = PlanDrafted(plan=plan("data"))
    play = played(settings(), answer=scripted({"plan.": [same, same]}))

    assert [one["plan_id"] for one in history(play)["rejected_plans"]] == ["round_1_planner_b"]
    assert history(play)["rejected_plans"][0]["rejection_reason"].startswith("H003")


def test_a_family_that_won_twice_is_barred_until_a_round_without_a_winner() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        return PlanDrafted(plan=plan("data")) if ".plan." in command.id else None

    play = played(
        settings(number_of_agents=1, max_iterations=4, circuit_breaker_threshold=9),
        answer=answer,
        score=lambda arm, iteration: 10.0 + iteration if arm == "executor_1" else 9.0 + iteration,
    )

    statuses = [report(play, number)["status"] for number in (1, 2, 3)]
    assert statuses == ["merged", "merged", "all_rejected"]
    assert "H002: data won the last two rounds" in report(play, 3)["reason"]
    assert history(play, 4)["rejected_plans"] == []


def test_an_executor_that_fails_twice_is_left_out() -> None:
    play = played(settings(), answer=scripted({"run.executor_1": [FAILED, FAILED]}), score=second_wins)

    lost = history(play)["losers"][0]
    assert (lost["score"], lost["failure_analysis"]["what"]) == (None, "the agent failed twice")
    assert not [c for c in play.dispatched if isinstance(c, Measure) and c.arm == "executor_1"]


@pytest.mark.parametrize(
    ("category", "row"),
    [("logic_error", "no-op"), ("sealed_file_violation", "discard"), ("scope_error", "discard")],
)
def test_refused_edits_are_never_measured(category: Any, row: str) -> None:
    refused = CandidateRefused(category=category, what="not allowed", paths=("bench.py",), commit=sha("kept"))
    play = played(settings(), answer=scripted({"run.executor_1": [refused]}), score=second_wins)

    result = document(play, "state/benchmark_results/round_1/executor_1.json")
    assert (result["status"], result["failure_analysis"]["category"]) == ("error", category)
    assert not [c for c in play.dispatched if isinstance(c, Measure) and c.arm == "executor_1"]
    assert play.entries["tracking/results.tsv"][2].split("\t")[5] == row
    assert report(play)["archived"] == ["archive/round_1_executor_1"]


@pytest.mark.parametrize(
    ("ends", "status", "category"),
    [
        (RunMeasured(score=None, status="timeout", why="past 900 s"), "timeout", "timeout"),
        (measured(None, why="exit status 1"), "error", "logic_error"),
        (measured(None, category="oom", why="killed"), "error", "oom"),
        (measured(None, category="benchmark_parse_error"), "error", "benchmark_parse_error"),
    ],
)
def test_a_run_without_a_score_never_competes(ends: RunMeasured, status: str, category: str) -> None:
    play = played(settings(), answer=scripted({"smoke": [ends, ends]}))

    result = document(play, "state/benchmark_results/round_1/executor_1.json")
    assert (result["status"], result["benchmark_score"]) == (status, None)
    assert result["failure_analysis"]["category"] == category
    assert report(play) | {"status": "no_winner", "winner": None} == report(play)
    assert play.now.breaker_count == 1


# ---------------------------------------------------------------------------------------- stragglers


def at_work(play: Play) -> Play:
    """Bring a round to where all its executors are at work and nothing else is left to do."""
    if play.status != "running":
        play.start()
    play.run(hold="run_plan")
    assert {command.kind for command in play.now.outstanding.values()} == {"run_plan"}
    return play


def test_a_straggler_is_looked_at_killed_and_not_repeated() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.hang("r1.run.executor_1.0.1")
    play.run()

    assert [c.kind for c in play.dispatched if "executor_1.0.1" in c.id] == ["run_plan", "inspect", "kill"]
    result = document(play, "state/benchmark_results/round_1/executor_1.json")
    assert (result["status"], result["failure_analysis"]["category"]) == ("timeout", "timeout")
    assert result["force_kill"]["processes_killed"] == 2
    assert history(play)["force_kills"] == [result["force_kill"]]
    assert report(play)["status"] == "merged"  # one kill does not stop the others


def test_a_kill_whose_evidence_was_lost_still_ends_its_turn() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.feed(AgentKilled(cause="r1.run.executor_1.0.1", reason="unknown", processes_killed=3))
    play.run()

    kept = history(play)["force_kills"][0]
    assert (kept["agent_id"], kept["processes_killed"], kept["deadline_s"]) == ("executor_1", 3, 1800.0)
    assert report(play)["status"] == "merged"


def test_an_answer_that_comes_before_the_kill_counts() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.hang("r1.run.executor_2.0.1")
    play.run(until=lambda p: bool(p.now.now_round.killing))
    play.hung.clear()
    play.run()

    assert history(play)["force_kills"] == []
    assert report(play)["winner"]["executor_id"] == "executor_2"


@pytest.mark.parametrize(
    ("target", "agent", "executions"),
    [
        ("r1.research.1", "researcher", 2),
        ("r1.plan.planner_a.1", "planner_a", 1),
        ("r1.advise.planner_a.1", "architect", 2),
        ("r1.judge.planner_a.1", "critic", 2),
    ],
)
def test_the_round_goes_on_without_any_other_straggler(target: str, agent: str, executions: int) -> None:
    play = Play(World(settings(), score=second_wins))
    play.start()
    play.run(until=lambda p: target in p.now.outstanding)
    play.hang(target)
    play.run()

    assert [one["agent_id"] for one in history(play)["force_kills"]] == [agent]
    assert len(document(play, "state/iteration_state.json")["execution"]["executors"]) == executions
    assert play.now.blocked_count == 0


def hang_two(**more: Any) -> Play:
    """Return a run of three executors a round, two of which hang in the first, which blocks it."""
    fields: dict[str, Any] = {"number_of_agents": 3, "kill_threshold": 2, **more}
    play = at_work(Play(World(settings(**fields), score=second_wins)))
    play.hang("r1.run.executor_1.0.1")
    play.hang("r1.run.executor_2.0.1")
    return play


def test_too_many_kills_block_the_round() -> None:
    play = hang_two()
    play.run(hold="run_plan")

    assert [c.target for c in play.dispatched if isinstance(c, Halt)] == ["r1.run.executor_3.0.1"]
    assert report(play)["status"] == "blocked"
    assert report(play)["reason"] == "2 force-kills reached kill_threshold 2"
    unfinished = document(play, "state/benchmark_results/round_1/executor_3.json")
    assert (unfinished["status"], unfinished["failure_analysis"]["category"]) == ("error", "infrastructure")
    assert (play.now.breaker_count, play.now.blocked_count) == (1, 1)
    assert not [c for c in play.dispatched if isinstance(c, Measure)]


@pytest.mark.parametrize("held", ["plan", "advise", "judge"])
def test_a_block_ends_planning_and_review_too(held: str) -> None:
    play = Play(World(settings(number_of_agents=3, kill_threshold=1), score=second_wins))
    play.hung.add(f"r1.{held}.planner_c.1")
    play.start()
    play.run(hold="run_plan")
    play.hang("r1.run.executor_1.0.1")
    play.run(hold="run_plan")

    assert report(play)["status"] == "blocked"
    planned = document(play, "state/iteration_state.json")["planning"]
    assert (planned["status"], planned["plans"]["planner_c"]["status"]) == ("completed", "failed")


def test_a_blocked_round_begins_nothing_more() -> None:
    play = hang_two()
    play.run(until=lambda p: p.now.now_round.blocked, hold="run_plan")
    late = CandidateCommitted(cause="r1.run.executor_3.0.1", commit=sha("late"), diff_stat="1 file changed")
    play.feed(late)

    assert not [c for c in play.dispatched if isinstance(c, Measure)]
    assert [type(c) for c in play.now.outstanding.values()] == [CloseRound]


def test_blocked_rounds_in_a_row_end_the_run_and_a_start_forgives_them() -> None:
    play = hang_two(max_iterations=9)
    at_work(play)
    play.hang("r2.run.executor_1.0.1")
    play.hang("r2.run.executor_3.0.1")
    play.run()
    assert (play.status, play.now.completed) == ("blocked", 2)

    play.start()
    assert (play.status, play.now.blocked_count, play.now.iteration) == ("running", 0, 3)


def test_another_round_forgets_the_blocked_one_before() -> None:
    play = hang_two(max_iterations=2)
    play.run()

    assert (play.status, play.now.blocked_count, play.now.breaker_count) == ("max_iterations", 0, 0)


def test_a_blocked_round_that_is_resumed_ends_as_blocked() -> None:
    play = hang_two(kill_threshold=1)
    play.run(until=lambda p: p.now.now_round.blocked, hold="run_plan")
    play.start(again=True, crashed=True)
    play.run()

    assert report(play)["status"] == "blocked"
    assert play.now.blocked_count == 1


# ------------------------------------------------------------------------------------------- merging


def test_a_conflict_gives_the_next_in_line_its_turn() -> None:
    play = played(
        settings(),
        answer=scripted({"merge.executor_2": [MergeConflicted(paths=("app.py",))]}),
        score=lambda arm, _: {"executor_1": 11.0, "executor_2": 12.0}.get(arm, 10.0),
    )

    assert report(play)["winner"]["executor_id"] == "executor_1"
    assert history(play)["losers"][0]["plan_id"] == "round_1_planner_b"


MOVED = BranchMoved(expected=BASE, actual=sha("foreign"))


def test_a_branch_moved_under_a_merge_stops_the_run_until_it_is_back() -> None:
    play = played(settings(), answer=scripted({"advance": [MOVED]}), score=second_wins)
    assert play.status == "failed"
    assert "was moved" in (play.now.reason or "")
    assert play.now.best_score == 10.0

    play.start()
    play.run()
    assert (play.status, play.now.best_score, play.now.head) == ("max_iterations", 11.0, sha("m1"))


def test_a_branch_moved_under_a_merge_costs_only_the_win_where_the_run_follows_it() -> None:
    play = played(
        settings(on_branch_moved="rebase"), answer=scripted({"advance": [MOVED]}), score=second_wins
    )

    assert report(play) | {"status": "no_winner", "winner": None} == report(play)
    assert "was moved meanwhile" in report(play)["reason"]
    assert (play.now.best_score, play.now.head) == (10.0, BASE)


def test_a_branch_moved_between_rounds_stops_the_run_until_it_is_back() -> None:
    play = played(settings(), head=sha("foreign"), ideas=("use a set",), score=second_wins)
    assert play.status == "failed"
    assert f"sictl config set {play.now.run_id} on_branch_moved rebase" in play.now.hint

    play.world.head, play.world.ideas = BASE, ("sort first",)
    play.start()
    play.run()
    assert play.status == "max_iterations"
    taken = document(play, "state/iteration_state.json")["user_ideas_consumed"]
    assert taken == ["use a set", "sort first"]


def test_a_run_that_follows_a_moved_branch_measures_it_first() -> None:
    play = played(
        settings(on_branch_moved="rebase"),
        head=sha("foreign"),
        score=lambda arm, _: {"executor_1": 21.0, "A": 20.0}.get(arm, 19.0),
    )

    first = next(c for c in play.dispatched if isinstance(c, Measure))
    assert (first.arm, first.tree, first.stage) == ("A", sha("foreign"), "calibrate")
    assert history(play)["baseline_score"] == 20.0
    assert report(play)["winner"]["score_before"] == 20.0


def test_a_moved_branch_that_does_not_run_fails_the_run_and_is_tried_again() -> None:
    broken = scripted({"rebase": [measured(None, why="exit status 1")]})
    play = played(settings(on_branch_moved="rebase"), head=sha("foreign"), answer=broken)
    assert play.status == "failed"
    assert (play.now.head, play.now.best_score) == (BASE, 10.0)

    play.start()
    play.run()
    assert play.status == "max_iterations"


def guarded(sub_score: float, tolerance: Any) -> Play:
    def answer(command: AnyCommand) -> AnyEvent | None:
        if not isinstance(command, Measure):
            return None
        better = command.arm != "A"
        return measured(11.0 if better else 10.0, sub_scores={"memory": sub_score if better else 100.0})

    rule = GuardRule(direction="lower_is_better", tolerance=tolerance)
    return played(
        settings(
            number_of_agents=1, measurement=Measurement(guards={"memory": rule}), regression_threshold=2.0
        ),
        answer=answer,
    )


@pytest.mark.parametrize(
    ("sub_score", "tolerance", "status"),
    [
        (104.0, "5%", "merged"),
        (110.0, "5%", "no_improvement"),
        (101.0, None, "merged"),
        (104.0, None, "no_improvement"),
    ],
)
def test_a_guarded_sub_score_must_not_get_worse(sub_score: float, tolerance: Any, status: str) -> None:
    play = guarded(sub_score, tolerance)

    assert report(play)["status"] == status
    assert report(play)["regressions_detected"] == (status != "merged")


# ----------------------------------------------------------------------------- stop, pause, crash, start


def test_a_resumed_round_cleans_up_and_then_asks_again_for_exactly_what_was_left() -> None:
    play = at_work(Play(World(settings(number_of_agents=3), score=second_wins)))
    play.feed(StopRequested())
    play.feed(RunStopped())
    left = list(play.now.outstanding)
    state = document(play, "state/iteration_state.json")
    assert (state["status"], state["current_step"]) == ("interrupted", "execution")

    play.start(resumed=True)
    assert [c.id for c in play.queue] == ["r1.prepare.2"]
    play.turn()
    assert [c.id for c in play.queue] == left
    play.run()
    assert report(play)["status"] == "merged"


def test_no_round_begins_after_a_stop_request() -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start()
    play.run(until=lambda p: "r1.close" in p.now.outstanding)
    play.feed(StopRequested())
    play.run()

    assert (play.status, play.now.round, play.now.completed) == ("running", None, 1)
    play.feed(RunStopped())
    play.start()
    assert play.now.iteration == 2


def test_a_stop_comes_before_every_other_reason_to_end() -> None:
    play = Play(World(settings(), score=second_wins))
    play.start()
    play.run(until=lambda p: "r1.close" in p.now.outstanding)
    play.feed(StopRequested())
    play.run()
    play.feed(RunStopped())

    assert play.status == "user_stopped"


def test_a_pause_keeps_the_step_and_survives_a_crash() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.feed(RunPaused())
    play.start(again=True, crashed=True)
    assert play.status == "paused"

    play.feed(RunResumed())
    play.run()
    assert play.status == "max_iterations"


def test_what_ends_during_a_pause_is_gone_on_with_after_it() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.feed(RunPaused())
    play.run()
    assert play.now.now_round.execution_done_at is None

    play.feed(RunResumed())
    play.run()
    assert report(play)["status"] == "merged"


def test_three_crashes_within_ten_minutes_fail_the_run() -> None:
    play = Play(World(settings()))
    play.start()
    for _ in range(2):
        play.start(again=True, crashed=True)
        assert play.status == "running"
    play.start(again=True, crashed=True)

    assert play.status == "failed"
    assert "3 times within 10 minutes" in (play.now.reason or "")


def test_crashes_that_lie_ahead_since_the_clock_was_put_back_do_not_count() -> None:
    play = Play(World(settings()))
    play.start()
    play.start(again=True, crashed=True)
    play.start(again=True, crashed=True)
    play.clock -= timedelta(hours=1)
    play.start(again=True, crashed=True)

    assert play.status == "running"


def test_git_or_disk_trouble_ends_the_run_and_its_work_is_done_again() -> None:
    full = WorkFailed(why="No space left on device", hint="free some space")
    play = played(settings(), answer=scripted({"close": [full]}), score=second_wins)
    assert (play.status, play.now.hint) == ("failed", "free some space")
    assert document(play, "state/iteration_state.json")["status"] == "failed"

    play.start()
    play.run()
    assert play.status == "max_iterations"
    assert play.now.completed == 1


def test_a_crash_of_what_is_no_agent_ends_the_run() -> None:
    crashed = ActorCrashed(actor="git_master", error="TypeError: x")
    play = played(settings(), answer=scripted({"prepare": [crashed]}))

    assert (play.status, play.now.reason) == ("failed", "git_master crashed: TypeError: x")
    play.start()
    play.run()
    assert play.status == "max_iterations"


def test_a_number_of_rounds_is_asked_for_once() -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start(rounds=2)
    play.run()
    assert (play.status, play.now.completed) == ("max_iterations", 2)
    assert play.now.reason == "the rounds asked for are done"

    play.start()
    play.feed(RoundsAsked(rounds=1))
    play.run()
    assert play.now.completed == 3
    play.start()
    play.run()
    assert play.now.completed == 9


def test_a_run_at_its_target_ends_again_at_once() -> None:
    play = played(settings(target_value=11.0, max_iterations=9), score=second_wins)
    before = len(play.dispatched)
    play.start()

    assert play.status == "target_reached"
    assert len(play.dispatched) == before


def test_a_limit_lowered_meanwhile_ends_the_run_without_beginning_the_round() -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins, ideas=("use a set",)))
    play.start(rounds=1)
    play.run()
    play.start()
    play.world.settings = settings(max_iterations=1)
    play.run()

    assert (play.status, play.now.completed, play.now.iteration) == ("max_iterations", 1, 1)
    assert isinstance(play.dispatched[-1], ReturnIdeas)
    assert document(play, "state/iteration_state.json") | {
        "iteration": 2,
        "status": "interrupted",
    } == document(play, "state/iteration_state.json")


def test_a_limit_lowered_meanwhile_needs_no_ideas_to_end_the_run() -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start()
    play.world.settings = settings(max_iterations=0)
    play.run()

    assert (play.status, play.now.completed, play.now.iteration) == ("max_iterations", 0, 0)
    assert [c.kind for c in play.dispatched] == ["prepare_round"]


def test_a_daemon_that_died_while_stopping_leaves_the_run_stopped() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.feed(StopRequested())
    play.start(again=True, crashed=True)

    assert (play.status, play.now.reason) == ("user_stopped", "stopped by the user")


def test_a_run_fails_with_a_reason_and_a_hint() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.feed(RunFailed(reason="executor_1 crashed too often", hint="look at the log"))

    assert (play.status, play.now.reason, play.now.hint) == (
        "failed",
        "executor_1 crashed too often",
        "look at the log",
    )


def test_a_request_that_comes_after_the_end_revives_nothing() -> None:
    play = played(settings())
    ended = play.now
    for late in (RunPaused(), RunResumed(), StopRequested(), RunStopped()):
        play.feed(late)

    assert play.now == ended


def test_time_counts_while_the_run_runs() -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.feed(RunPaused())
    counted = play.now.wall_s
    assert counted == len(play.journal) - 2
    play.clock += (play.clock - play.clock.replace(hour=0)) * 4
    play.feed(RunResumed())
    play.run()

    assert play.now.wall_s == len(play.journal) - 2 - 1


@pytest.mark.parametrize(("jump", "spent_s"), [(timedelta(hours=1), 3600), (timedelta(hours=-1), 0)])
def test_a_wall_clock_set_forward_spends_time_and_one_set_back_gives_none(
    jump: timedelta, spent_s: float
) -> None:
    play = at_work(Play(World(settings(), score=second_wins)))
    play.clock += jump
    play.feed(RunPaused())

    assert spent_s <= play.now.wall_s < spent_s + 100


def test_money_ends_the_run_between_rounds() -> None:
    play = played(settings(max_iterations=9, budget=Budget(calls=10)), score=second_wins)

    assert (play.status, play.now.completed) == ("budget", 2)
    assert play.now.reason == "budget.calls: 18 of 10 used"


def test_a_benchmark_that_fails_on_the_incumbent_blames_nobody_and_ends_the_run() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        failing = isinstance(command, Measure) and command.arm == "A"
        return measured(None, why="exit status 1") if failing else None

    noisy = Measurement(mode="noisy", screen_blocks=1)
    play = played(settings(max_iterations=9, circuit_breaker_threshold=9, measurement=noisy), answer=answer)

    assert (play.status, play.now.completed) == ("circuit_breaker", 3)
    assert "fails on the improvement branch itself" in (play.now.reason or "")
    assert all(one["failure_analysis"] is None for one in history(play)["losers"])
    play.start()
    assert play.status == "running"


def test_one_tree_with_two_scores_is_noisy_whatever_the_settings_insist_on() -> None:
    insists = Measurement(mode="deterministic", screen_blocks=1)
    jitter = iter(range(10_000))
    play = played(
        settings(max_iterations=2, target_value=15.0, measurement=insists),
        score=lambda arm, _: (12.0 if arm == "executor_2" else 10.0) + next(jitter) % 7 * 0.01,
    )

    assert play.now.history.merges >= 1
    assert play.now.is_noisy
    assert play.now.audited is not None
    assert play.now.audited.n > 1
    assert play.now.audited.interval is not None


def test_fewer_pairs_allowed_than_asked_for_are_enough() -> None:
    rule = Measurement(mode="noisy", screen_blocks=1, min_pairs=50, max_pairs=12)
    jitter = iter(range(10_000))
    play = played(
        settings(max_iterations=1, measurement=rule),
        score=lambda arm, _: (12.0 if arm == "executor_2" else 10.0) + next(jitter) % 7 * 0.01,
    )

    assert play.now.history.merges == 1


def test_noisy_scores_reach_a_target_only_by_their_interval() -> None:
    noisy = Measurement(mode="noisy", screen_blocks=1)
    jitter = iter(range(10_000))
    play = played(
        settings(max_iterations=3, target_value=11.0, measurement=noisy),
        score=lambda arm, _: (12.0 if arm == "executor_2" else 10.0) + next(jitter) % 7 * 0.01,
    )

    assert play.status == "target_reached"
    assert play.now.best_interval is not None
    assert play.now.best_interval[0] is not None
    assert play.now.best_interval[0] >= 11.0
    told = document(play, "state/agent-settings.json")["measurement"]
    assert told == {"best_ci": list(play.now.best_interval)}


def test_another_init_keeps_the_count_and_takes_back_the_round() -> None:
    play = Play(World(settings(max_iterations=9), score=second_wins))
    play.start()
    play.run(until=lambda p: p.now.iteration == 2 and p.now.now_round.brief is not None)
    play.feed(StopRequested())
    play.feed(RunStopped())
    play.feed(created(settings(max_iterations=9), baseline_score=11.0))

    assert (play.now.iteration, play.now.completed, play.now.round) == (1, 1, None)
    assert play.status == "user_stopped"
    play.start()
    assert play.now.iteration == 2


def test_a_journal_begins_with_its_run() -> None:
    with pytest.raises(LookupError, match="run_started"):
        step(None, RunStarted(settings=Settings()))


def test_a_prepared_round_takes_settings_as_they_are_now() -> None:
    play = Play(World(settings(number_of_agents=1), score=second_wins))
    play.world.settings = settings(number_of_agents=3)
    play.start()
    play.run()

    assert len(history(play)["losers"]) == 2
    assert isinstance(play.journal[2], RoundPrepared)
    assert isinstance(play.journal[0], RunCreated)
