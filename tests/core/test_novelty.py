"""What was tried before is not tried again: plans at the critic, patches before they are measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sid_daemon.core.rounds.novelty import MOST_TRIES, Tried, patch_tried, plan_digest, plan_tried
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_protocol.commands import AnyCommand, Measure, RunPlan
from sid_protocol.events import AnyEvent, CandidateCommitted, PlanDrafted, parse_event
from sid_protocol.records import PlanAnswer
from sid_protocol.settings import Settings
from tests.core.play import Play, World, measured, plan, played, sha

ONE = Settings(number_of_agents=1, benchmark_command="sh bench.sh", max_iterations=2)


def tried(iteration: int = 1, *, settled: bool = True, **known: str) -> Tried:
    fields = {"base": "b1", "plan": "p1", "patch": "x1", "tree": "t1", **known}
    return Tried(
        iteration=iteration,
        executor="executor_1",
        commit=f"c{iteration}",
        result="score 9.0 against 10.0",
        settled=settled,
        question="q",
        **fields,
    )


def test_the_words_of_a_plan_count_and_not_their_case_or_spacing_or_family() -> None:
    spoken = plan("data", "Cache  the\nTABLE; fewer lookups.", "Cache it")

    assert plan_digest(spoken) == plan_digest(plan("testing"))
    assert plan_digest(plan(change="cache it all")) != plan_digest(plan())
    assert plan_digest(plan(hypothesis="Cache the rows.")) != plan_digest(plan())
    recipes = [
        PlanAnswer.model_validate({**plan().model_dump(), "recipe": {"to": value}}) for value in (3, 4)
    ]
    assert plan_digest(recipes[0]) != plan_digest(recipes[1])


@pytest.mark.parametrize(
    ("patch", "tree", "base", "found"),
    [
        ("x1", "t2", "b1", True),  # the same change of the same commit, laid out otherwise
        ("x2", "t1", "b2", True),  # the same program, come to another way
        ("x1", "t2", "b2", False),  # the same change of another commit is another program
        ("", "", "b1", False),  # not known is not alike
    ],
)
def test_a_patch_is_known_by_what_is_measured(patch: str, tree: str, base: str, *, found: bool) -> None:
    known = [tried(), tried(2, patch="", tree="", plan="p2")]

    assert (patch_tried(known, patch=patch, tree=tree, base=base) is not None) is found


def test_a_plan_is_new_on_another_commit() -> None:
    assert plan_tried([tried()], "p1", "b1") is not None
    assert plan_tried([tried()], "p1", "b2") is None


def test_what_is_open_stands_again_so_many_rounds_and_no_more() -> None:
    """Three planners with the same plan in one round are one round."""
    once = [tried(settled=False)] * 3
    often = [tried(number, settled=False) for number in range(1, MOST_TRIES + 1)]

    assert plan_tried(once, "p1", "b1") is None
    assert plan_tried(often, "p1", "b1") is often[-1]
    assert plan_tried([*once, tried(2)], "p1", "b1") == tried(2)


def again(command: AnyCommand, **made: Any) -> AnyEvent | None:
    """Carry every round out with one and the same patch, under plans that differ."""
    if isinstance(command, RunPlan):
        fields = {
            "commit": sha(command.id),
            "diff_stat": "1 file changed",
            "patch": "x",
            "tree": sha(command.id),
        }
        return CandidateCommitted(**{**fields, **made})
    return None


def rounds(settings: Settings = ONE, score: float | None = 9.0, **world: Any) -> Play:
    return played(settings, score=lambda *_: score, **{"answer": again, **world})


def history(play: Play, iteration: int = 2) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(play.files[f"state/iteration_history/round_{iteration}.json"])
    return found


def test_a_change_that_lost_is_not_measured_again_and_the_round_says_why() -> None:
    play = rounds()

    assert [one.iteration for one in play.dispatched if isinstance(one, Measure)] == [1]
    second = history(play)
    failure = second["losers"][0]["failure_analysis"]
    assert (
        failure["what"] == "tried before: the same change as executor_1 of round 1 (score 9.0 against 10.0)"
    )
    assert failure["category"] == "logic_error"
    shown = second["evidence"][-1]
    assert shown["output"] == "executor_1 of round 1: score 9.0 against 10.0"
    assert sha("r1.run.executor_1.0.1") in shown["command"]
    assert play.entries["tracking/results.tsv"][-1].split("\t")[5] == "discard"
    report = json.loads(play.files["state/merge_reports/round_2.json"])
    assert (report["status"], report["reason"]) == (
        "no_winner",
        "every candidate only repeats one that was tried before",
    )


def test_what_was_tried_is_known_after_a_restart() -> None:
    """The journal alone tells it: folded again from its text, the second round is refused just the same."""
    play = rounds()
    state: RunState | None = None
    for event in play.journal:
        state, _ = step(state, parse_event(event.model_dump_json()))

    assert state is not None
    assert [one.result for one in state.tried] == [
        "score 9.0 against 10.0",
        "a repetition of executor_1 of round 1",
    ]
    assert state == play.now


@pytest.mark.parametrize(
    ("settings", "world"),
    [
        (ONE, {"score": lambda arm, number: (9.0 if arm == "A" else 10.0) + number}),  # won: the branch moved
        (
            ONE,
            {
                "answer": lambda one: (
                    measured(None, category="infrastructure") if isinstance(one, Measure) else again(one)
                )
            },
        ),
        (ONE, {"answer": lambda one: again(one, patch="", tree="")}),
        (ONE, {"answer": lambda one: again(one, patch=one.id)}),
    ],
    ids=["it won", "nobody's fault", "not known", "another patch"],
)
def test_what_is_no_repetition_is_measured(settings: Settings, world: dict[str, Any]) -> None:
    play = World(settings, **{"answer": again, **world})
    run = Play(play)
    run.start()
    run.run()

    assert {one.iteration for one in run.dispatched if isinstance(one, Measure)} == {1, 2}


def test_a_time_out_may_stand_again_and_then_no_more() -> None:
    def slow(command: AnyCommand) -> AnyEvent | None:
        if isinstance(command, Measure) and command.arm != "A":
            return measured(None).model_copy(update={"status": "timeout"})
        return again(command)

    play = rounds(ONE.model_copy(update={"max_iterations": 5, "circuit_breaker_threshold": 9}), answer=slow)

    tried = [one.iteration for one in play.dispatched if isinstance(one, Measure) and one.arm != "A"]
    assert tried == [1, 2, 3]


def test_an_old_result_says_nothing_once_something_else_is_asked() -> None:
    play = rounds(ONE.model_copy(update={"max_iterations": 1}))
    more = ONE.model_copy(update={"primary_metric": "other", "max_iterations": 2})
    play.world.settings = more
    play.start()
    play.run()

    assert [one.iteration for one in play.dispatched if isinstance(one, Measure)] == [1, 2]


def test_a_plan_that_lost_is_rejected_before_it_costs_an_executors_turn() -> None:
    def same(command: AnyCommand) -> AnyEvent | None:
        return PlanDrafted(plan=plan()) if command.kind == "draft_plan" else None

    play = rounds(answer=same)

    assert [one.iteration for one in play.dispatched if isinstance(one, RunPlan)] == [1]
    rejected = history(play)["rejected_plans"][0]
    assert rejected["rejection_reason"] == (
        "tried before: the same plan as executor_1 of round 1 (score 9.0 against 10.0)"
    )
    kept = json.loads(play.files["state/plan_archive/round_2/plan_planner_a.json"])
    assert kept["critic_review"]["history_aware"] == "fail"


def test_a_plan_whose_change_was_a_repetition_is_not_carried_out_again() -> None:
    def worded(command: AnyCommand) -> AnyEvent | None:
        if command.kind != "draft_plan":
            return again(command)
        return PlanDrafted(plan=plan(change="first" if command.iteration == 1 else "second"))

    play = rounds(ONE.model_copy(update={"max_iterations": 3}), answer=worded)

    assert [one.iteration for one in play.dispatched if isinstance(one, RunPlan)] == [1, 2]
    assert (
        "a repetition of executor_1 of round 1" in history(play, 3)["rejected_plans"][0]["rejection_reason"]
    )
