"""The rules of a node: what a judge must say, what becomes a lesson and stays one, what stands in a prompt."""

from __future__ import annotations

import json

import pytest

from sid_daemon.core import node
from sid_daemon.core.node import Ban, Judged


def judged(**fields: object) -> str:
    return json.dumps({"type": "judge_result", "score": 0.5, "violations": [], **fields}) + "\n"


def test_a_judge_says_a_score_and_what_was_violated() -> None:
    lines = '{"type":"note"}\nnoise\n' + judged(violations=["length", "length", "a\n`b`"])
    assert node.read_judged(lines) == Judged(0.5, ("length", "a 'b'"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", "no judge_result"),
        (judged() + judged(), "2 judge_result"),
        (judged(score=None), "not a number"),
        (judged(score=True), "not a number"),
        (judged(score=1.5), "not a number"),
        (judged(violations="length"), "no list"),
        (judged(violations=[1]), "no list"),
        ('{"type": "judge_result", "score": NaN}', "not a number"),
    ],
)
def test_a_judge_that_says_something_else_gives_no_score(lines: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        node.read_judged(lines)


@pytest.mark.parametrize(
    ("score", "violations", "passed"), [(0.9, (), True), (1.0, ("x",), False), (0.89, (), False)]
)
def test_a_run_passes_from_nine_tenths_on_without_violations(
    score: float, violations: tuple[str, ...], passed: bool
) -> None:
    assert Judged(score, violations).passed is passed


def runs(*violations: str) -> list[tuple[str, frozenset[str]]]:
    return [(f"run-{number}", frozenset(one.split())) for number, one in enumerate(violations)]


def test_what_two_of_the_last_five_runs_violate_is_promoted_once() -> None:
    found = node.promoted(runs("a b", "b", "", "c", "", "c"), frozenset(), window=5, threshold=2)
    assert found == [Ban("b", 2, "run-0")]
    text = "# Lessons\n\n" + node.ban_line(found[0], 5) + "\n"
    assert text.endswith("- `b` — promoted from 2 of last 5 runs (example: run-0)\n")
    assert node.promoted(runs("a b", "b"), node.bans_in(text), window=5, threshold=2) == []


def test_the_window_and_the_threshold_are_the_users() -> None:
    seen = runs("c", "", "", "", "", "c")
    assert node.promoted(seen, frozenset(), window=6, threshold=2) == [Ban("c", 2, "run-0")]
    assert node.promoted(seen, frozenset(), window=6, threshold=3) == []


def test_a_prompt_has_the_lessons_before_the_seed() -> None:
    text = node.prompt_of("Write.", "- `a` — promoted", "the seed", "", 1)
    assert text.index("Write.") < text.index("- `a`") < text.index("the seed") < text.index("Empty.")


def test_only_a_whole_line_says_that_a_model_is_blocked() -> None:
    assert node.blocked("so\nBLOCKED: no change\n") == "BLOCKED: no change"
    assert node.blocked("it is not BLOCKED: at all") is None
