"""Several researchers at once: angles, the termination gate, one brief of what they found."""

from __future__ import annotations

import json

import pytest

from sid_daemon.core.rounds.fanout import Angle, angles, merged
from sid_protocol.commands import AnyCommand, Research
from sid_protocol.events import AgentFailed, AgentKilled, AnyEvent, BriefDone
from sid_protocol.records import BriefAnswer
from tests.core.play import Play, World
from tests.core.test_run import second_wins, settings


def brief(*ideas: str, summary: str = "Read it all.") -> BriefAnswer:
    """Return a brief; an idea is `family: title`."""
    made = [
        {"title": title, "approach_family": family, "confidence": "low"}
        for family, title in (idea.split(": ") for idea in ideas)
    ]
    return BriefAnswer.model_validate({"repo_analysis_summary": summary, "ideas": made})


ONE = brief("data: a set", "data: a deque", "optimization: cache f")
TWO = brief("infrastructure: hoist", "data: A  Set", "data: slots")


def test_angles_have_names_and_come_again_numbered() -> None:
    assert angles(2) == ("evidence", "counterexample")
    assert angles(7)[5:] == ("evidence_2", "counterexample_2")
    assert len(set(angles(32))) == 32


def test_the_best_idea_of_each_angle_comes_first_and_none_twice() -> None:
    found = merged({"evidence": Angle(ONE), "boundary": Angle(failed="timeout"), "mechanism": Angle(TWO)})

    assert found is not None
    assert [idea.title for idea in found.ideas] == ["a set", "hoist", "a deque", "cache f", "slots"]
    assert found.repo_analysis_summary.splitlines() == [
        "[angle: evidence] Read it all.",
        "[angle: boundary — collection failed: timeout]",
        "[angle: mechanism] Read it all.",
    ]


def test_a_merged_brief_keeps_two_families() -> None:
    many = [brief(*(f"data: idea {name} {number}" for number in range(10))) for name in "ab"]
    last = brief("data: x", "data: y", "optimization: z")
    found = merged({"a": Angle(many[0]), "b": Angle(many[1]), "c": Angle(last)})

    assert found is not None
    assert len(found.ideas) == 10
    assert {idea.approach_family for idea in found.ideas} == {"data", "optimization"}


def test_no_brief_of_any_angle_is_no_brief() -> None:
    assert merged({"evidence": Angle(failed="killed"), "boundary": Angle(failed="no JSON")}) is None


def test_planners_begin_when_every_angle_has_ended_and_not_before() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        if isinstance(command, Research):
            if command.angle == "boundary":
                return AgentFailed(why="no JSON")
            return BriefDone(brief=ONE if command.angle == "evidence" else TWO)
        return None

    play = Play(World(settings(research_fanout=4), answer=answer, score=second_wins))
    play.start()
    slow = "r1.research.mechanism.1"
    play.hung.add(slow)
    play.run()
    asked = [one.id for one in play.dispatched if isinstance(one, Research)]
    assert asked == [
        *(f"r1.research.{angle}.1" for angle in ("evidence", "counterexample", "boundary", "mechanism")),
        "r1.research.boundary.2",
    ]
    assert not any(one.kind == "draft_plan" for one in play.dispatched), "a researcher is still at work"

    play.feed(AgentKilled(cause=slow, reason="tool_loop", processes_killed=2))
    play.run()
    told = json.loads(play.files["state/research_briefs/round_1.json"])
    assert told["researcher_id"] == "researcher"
    assert "[angle: boundary — collection failed: no JSON]" in told["repo_analysis_summary"]
    assert "[angle: mechanism — collection failed: force-killed: " in told["repo_analysis_summary"]
    kills = json.loads(play.files["state/iteration_history/round_1.json"])["force_kills"]
    assert [(one["agent_id"], one["role"]) for one in kills] == [("researcher_mechanism", "researcher")]
    assert play.now.completed == 1


@pytest.mark.parametrize("fanout", [1, 3])
def test_a_round_goes_on_from_history_where_nobody_has_a_brief(fanout: int) -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        return AgentFailed(why="no answer") if isinstance(command, Research) else None

    play = Play(World(settings(research_fanout=fanout), answer=answer, score=second_wins))
    play.start()
    play.run()

    assert (play.now.completed, play.status) == (1, "max_iterations")
    assert "state/research_briefs/round_1.json" not in play.files
    assert json.loads(play.files["state/iteration_state.json"])["research"]["status"] == "failed"
