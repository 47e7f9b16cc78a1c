"""How plans come through their reviews: all at once, but one of a family after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sid_daemon.core.state import Round
from sid_protocol.commands import AnyCommand
from sid_protocol.events import AgentFailed, AnyEvent, PlanDrafted, PlanJudged
from sid_protocol.settings import Settings
from tests.core.play import Play, World, plan, review


def waiting_for_reviews(kind: str, answer: Callable[[AnyCommand], AnyEvent | None], **more: Any) -> Play:
    """Return a round of four planners in which all that can be done is done, but commands of one kind."""
    play = Play(World(Settings(number_of_agents=4, max_iterations=1, **more), answer=answer))
    play.start()
    play.run(hold=kind)
    return play


def asked(play: Play, verb: str) -> list[str]:
    """Return the planners whose plan is with a reviewer."""
    return [one.id.split(".")[2] for one in play.now.outstanding.values() if f".{verb}." in one.id]


def now(play: Play) -> Round:
    assert play.now.round is not None
    return play.now.round


def families(*names: str) -> Callable[[AnyCommand], AnyEvent | None]:
    def answer(command: AnyCommand) -> AnyEvent | None:
        if ".plan.planner_" not in command.id:
            return None
        number = "abcd".index(command.id.split("planner_")[1][0])
        return PlanDrafted(plan=plan(names[number], change=f"way {number}"))

    return answer


DIFFERENT = families("data", "testing", "optimization", "infrastructure")


@pytest.mark.parametrize(("kind", "verb"), [("advise_plan", "advise"), ("judge_plan", "judge")])
def test_no_plan_waits_for_the_review_of_another(kind: str, verb: str) -> None:
    play = waiting_for_reviews(kind, DIFFERENT)

    assert asked(play, verb) == ["planner_a", "planner_b", "planner_c", "planner_d"]


def test_an_approved_plan_is_executed_while_others_are_reviewed() -> None:
    play = waiting_for_reviews("judge_plan", DIFFERENT)
    last = next(one for one in play.queue if "planner_d" in one.id)
    play.feed(play.world.reply(last))

    assert asked(play, "run") == ["executor_4"]
    assert asked(play, "judge") == ["planner_a", "planner_b", "planner_c"]


def test_of_a_family_one_plan_is_at_the_critic() -> None:
    play = waiting_for_reviews("judge_plan", families("data", "data", "testing", "data"))

    assert asked(play, "judge") == ["planner_a", "planner_c"]


def test_the_second_of_a_family_falls_without_a_critic_once_the_first_is_approved() -> None:
    play = waiting_for_reviews("judge_plan", families("data", "data", "testing", "data"))
    play.run()

    judged = [one.id for one in play.dispatched if ".judge." in one.id]
    assert judged == ["r1.judge.planner_a.1", "r1.judge.planner_c.1"]
    assert "H003" in play.files["plans/round_1/plan_planner_b.json"]
    assert "H003" in play.files["plans/round_1/plan_planner_d.json"]


def test_the_second_of_a_family_has_its_turn_once_the_first_is_rejected() -> None:
    drafted = families("data", "data", "testing", "optimization")

    def answer(command: AnyCommand) -> AnyEvent | None:
        if command.id == "r1.judge.planner_a.1":
            return PlanJudged(review=review("rejected", "was tried"))
        return drafted(command)

    play = waiting_for_reviews("run_plan", answer)

    assert now(play).approved == ("planner_c", "planner_d", "planner_b")
    assert [one.plan_id for one in now(play).rejected] == ["round_1_planner_a"]


def test_a_critic_that_fails_keeps_its_plan_until_it_was_asked_twice() -> None:
    drafted = families("data", "data", "testing", "optimization")

    def answer(command: AnyCommand) -> AnyEvent | None:
        return AgentFailed(why="junk") if ".judge.planner_a." in command.id else drafted(command)

    play = waiting_for_reviews("run_plan", answer)

    assert [one.id for one in play.dispatched if ".judge.planner_a." in one.id] == [
        "r1.judge.planner_a.1",
        "r1.judge.planner_a.2",
    ]
    assert ".judge.planner_b." not in " ".join(one.id for one in play.dispatched)
    assert set(now(play).approved) == {"planner_a", "planner_c", "planner_d"}
