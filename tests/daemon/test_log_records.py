"""The log tells what happened: which records an event gives, and with what in them."""

from __future__ import annotations

from typing import Any

import pytest

from sid_daemon.log.event_records import log_records
from sid_daemon.log.record import LogRecord
from sid_protocol.events import (
    ActorCrashed,
    AgentFailed,
    AnyEvent,
    BranchMoved,
    CandidateRefused,
    ConfigChanged,
    GuardResult,
    GuardsDone,
    MergeConflicted,
    PlanDrafted,
    PlanJudged,
    RoundClosed,
    RunPaused,
    RunResumed,
    StopRequested,
    WorkFailed,
)
from sid_protocol.settings import Settings
from tests.core.play import Play, World, measured, plan, played, review, scripted

PROMISED = {
    "run_started",
    "round_started",
    "step_started",
    "brief_done",
    "plan_drafted",
    "plan_approved",
    "plan_rejected",
    "executor_started",
    "candidate_committed",
    "benchmark_sample",
    "benchmark_finished",
    "force_kill",
    "merge_tried",
    "merged",
    "round_recorded",
    "run_paused",
    "run_ended",
}


def settings(**more: Any) -> Settings:
    return Settings(**{"number_of_agents": 3, "max_iterations": 1, "benchmark_command": "b", **more})


def second_wins(arm: str, iteration: int) -> float:
    return 11.0 if arm == "executor_2" else 10.0


def told(play: Play) -> list[LogRecord]:
    return [record for one in play.steps for record in log_records(*one)]


def named(play: Play, name: str) -> list[dict[str, Any]]:
    return [fields for _, found, fields in told(play) if found == name]


def test_every_promised_record_is_told() -> None:
    play = Play(
        World(
            settings(),
            score=second_wins,
            answer=scripted({"judge.planner_c": [PlanJudged(review=review("rejected", "no"))]}),
        )
    )
    play.start()
    play.feed(RunPaused())
    play.feed(RunResumed())
    play.run(hold="run_plan")
    play.hang("r1.run.executor_1.0.1")
    play.run()

    assert {name for _, name, _ in told(play)} >= PROMISED


def test_records_are_flat_and_leave_the_names_of_the_log_alone() -> None:
    for level, name, fields in told(played(settings(), score=second_wins)):
        assert level in ("debug", "info", "warning", "error")
        assert name == name.lower()
        assert not {"level", "event", "timestamp", "run_id"} & set(fields)
        assert not any(isinstance(value, dict) for value in fields.values())


def test_a_candidate_is_followed_by_its_name() -> None:
    play = played(settings(), score=second_wins)
    of_two = [
        (name, fields.get("step"))
        for _, name, fields in told(play)
        if fields.get("candidate") == "round_1_executor_2"
    ]

    assert of_two == [
        ("executor_started", "execution"),
        ("candidate_committed", "execution"),
        ("benchmark_sample", "execution"),
        ("benchmark_finished", "execution"),
        ("merge_tried", "tournament"),
        ("merged", "tournament"),
        ("round_recorded", "recording"),
    ]
    (finished,) = [one for one in named(play, "benchmark_finished") if one["actor"] == "executor_2"]
    assert (finished["score"], finished["status"], finished["duration_s"]) == (11.0, "success", 1.0)
    (merged,) = named(play, "merged")
    assert (merged["score_before"], merged["score"]) == (10.0, 11.0)


@pytest.mark.parametrize("worse", ["executor_1", "executor_3"])
def test_a_regression_is_told_once_wherever_it_is_found(worse: str) -> None:
    play = played(settings(), score=lambda arm, _: 5.0 if arm == worse else 10.0)

    (failed,) = named(play, "candidate_failed")
    assert (failed["actor"], failed["status"], failed["category"]) == (worse, "regression", "regression")
    assert {one["status"] for one in named(play, "benchmark_finished")} == {"success"}


def test_steps_begin_once_in_their_order() -> None:
    steps = [one["step"] for one in named(played(settings(), score=second_wins), "step_started")]

    assert steps == ["research", "planning", "critic_review", "execution", "tournament", "recording"]


def test_the_last_record_is_the_summary() -> None:
    level, name, fields = told(played(settings(), score=second_wins))[-1]

    assert (level, name, fields["status"], fields["reason"]) == (
        "info",
        "run_ended",
        "max_iterations",
        "1 of 1 rounds done",
    )
    assert fields["summary"].splitlines()[0] == "=== Self-Improvement Loop Complete ==="


def test_a_run_that_ends_at_once_says_so() -> None:
    play = played(settings(), score=second_wins)
    play.start()

    assert [name for _, name, _ in log_records(*play.steps[-1])] == ["run_started", "run_ended"]


@pytest.mark.parametrize(
    ("script", "name", "level", "has"),
    [
        ({"plan.planner_a": [AgentFailed(why="no JSON")]}, "agent_failed", "warning", {"actor": "planner_a", "step": "planning", "attempt": 1}),
        ({"run.executor_1": [ActorCrashed(actor="executor_1", error="KeyError")]}, "agent_failed", "warning", {"reason": "executor_1 crashed: KeyError"}),
        ({"prepare": [ActorCrashed(actor="git_master", error="KeyError")]}, "actor_crashed", "error", {"actor": "git_master"}),
        ({"close": [WorkFailed(why="disk full", hint="free some")]}, "work_failed", "error", {"hint": "free some"}),
        ({"advance": [BranchMoved(expected="a", actual="b")]}, "branch_moved", "warning", {"actual": "b"}),
        ({"merge.executor_2": [MergeConflicted(paths=("app.py",))]}, "merge_tried", "info", {"conflict": True}),
        ({"judge.planner_a": [PlanJudged(review=review("rejected", "seen"))]}, "plan_rejected", "info", {"rule": None, "reason": "seen"}),
        ({"plan.": [PlanDrafted(plan=plan("data"))] * 2}, "plan_rejected", "info", {"rule": "H003"}),
        ({"smoke.executor_1": [measured(None, why="exit status 1")]}, "candidate_failed", "warning", {"category": "logic_error"}),
        ({"run.executor_1": [CandidateRefused(category="scope_error", what="out of scope")]}, "candidate_failed", "warning", {"reason": "out of scope"}),
        ({"close": [RoundClosed(tags={}, notes=("Pushed improve/x",))]}, "note", "info", {"told": "Pushed improve/x"}),
    ],
)  # fmt: skip
def test_trouble_is_told_with_its_reason(
    script: dict[str, list[AnyEvent]], name: str, level: str, has: dict[str, Any]
) -> None:
    play = played(settings(), answer=scripted(script), score=second_wins)

    found = [(one_level, fields) for one_level, one, fields in told(play) if one == name]
    assert found[0][0] == level
    assert found[0][1] | has == found[0][1]


def test_a_failed_run_ends_as_an_error_with_its_hint() -> None:
    full = WorkFailed(why="No space left on device", hint="free some space")
    level, name, fields = told(played(settings(), answer=scripted({"close": [full]})))[-1]

    assert (level, name, fields["status"], fields["hint"]) == (
        "error",
        "run_ended",
        "failed",
        "free some space",
    )


def test_a_force_kill_is_told_with_its_evidence() -> None:
    play = Play(World(settings(kill_threshold=1), score=second_wins))
    play.start()
    play.run(hold="run_plan")
    play.hang("r1.run.executor_1.0.1")
    play.run()

    (kill,) = named(play, "force_kill")
    assert (kill["actor"], kill["role"], kill["reason"]) == ("executor_1", "executor", "unknown")
    assert (kill["processes_killed"], kill["deadline_s"]) == (2, 1800.0)
    assert named(play, "deadline_passed")[0]["clock"] == "hard"
    for one in (kill, named(play, "deadline_passed")[0]):
        assert (one["step"], one["candidate"]) == ("execution", "round_1_executor_1")
    assert len(named(play, "round_blocked")) == 1
    assert named(play, "round_recorded")[0]["status"] == "blocked"


def test_guards_are_told() -> None:
    red = GuardsDone(results=(GuardResult(command="make test", passed=False),))
    play = played(settings(guard_command=["make test"]), answer=scripted({"guard.executor_1": [red]}))

    assert [(one["passed"], one["red"]) for one in named(play, "guards_done")][:1] == [(False, ["make test"])]
    assert [one["rework"] for one in named(play, "executor_started") if one["actor"] == "executor_1"] == [
        False,
        True,
    ]


def test_what_changes_nothing_is_not_told() -> None:
    play = played(settings())

    play.feed(RunPaused())
    assert log_records(*play.steps[-1]) == []
    play.feed(AgentFailed(cause="r1.nobody", why="?"))
    assert log_records(*play.steps[-1]) == []


def test_requests_are_told() -> None:
    play = Play(World(settings()))
    play.start()
    play.feed(ConfigChanged(field="plateau_window", old_value=3, new_value=5))
    play.feed(StopRequested(now=True))

    assert named(play, "config_changed")[0]["new_value"] == 5
    assert named(play, "stop_requested")[0]["now"] is True
    assert named(play, "run_created")[0]["baseline"] == 10.0
