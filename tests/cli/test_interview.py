"""The interview of `init` and the survey of a repository: pure."""

from __future__ import annotations

import dataclasses

import pytest

from sid_cli.interview import HARD_CAP, SOFT_CAP, Goal, answered, guess_direction, next_question, scores
from sid_cli.survey import survey

CLEAR = Goal(
    objective="make the sieve of primes faster",
    benchmark="python3 bench.py",
    format="json",
    direction="lower",
    target_known=True,
    scope_known=True,
)


def test_a_complete_goal_skips_the_interview():
    assert all(score >= 80 for score in scores(CLEAR).values())
    assert next_question(CLEAR, 0) is None


def test_nothing_known_scores_nothing():
    assert scores(Goal()) == {"objective": 0, "metric": 0, "target": 0, "scope": 0}


@pytest.mark.parametrize(
    ("objective", "enough"),
    [
        ("faster", False),
        ("better code", False),
        ("do something", False),
        ("make parser faster", True),
        ("reduce memory of the cache", True),
        ("raise throughput of the queue", True),
    ],
)
def test_an_objective_says_what_and_of_what(objective, enough):
    assert (scores(Goal(objective=objective))["objective"] >= 80) is enough


def test_an_existing_goal_is_not_asked_again():
    assert scores(Goal(objective_known=True))["objective"] == 100


def test_the_weakest_is_asked_first_then_each_until_all_are_clear():
    goal, offers = Goal(objective="make it faster"), [("python3 bench.py", "json")]
    answers = {
        "benchmark": "1",
        "direction": "h",
        "target": "",
        "scope": "src/**, lib/*.py",
        "objective": CLEAR.objective,
    }
    asked: list[str] = []
    while question := next_question(goal, len(asked), ["python3 bench.py"]):
        asked.append(question.field)
        goal = answered(goal, question, answers[question.field], offers)

    assert asked == ["benchmark", "target", "scope", "direction"]
    assert goal == Goal(
        objective="make it faster",
        benchmark="python3 bench.py",
        format="json",
        direction="higher",
        target_known=True,
        scope=("src/**", "lib/*.py"),
        scope_known=True,
    )


def test_the_caps_after_eight_only_what_is_hardly_known_and_never_more_than_twelve():
    nearly = dataclasses.replace(CLEAR, direction="")
    assert scores(nearly)["metric"] == 75
    assert next_question(nearly, SOFT_CAP - 1) is not None
    assert next_question(nearly, SOFT_CAP) is None
    assert next_question(Goal(), HARD_CAP - 1) is not None
    assert next_question(Goal(), HARD_CAP) is None


def test_no_answer_at_all_leaves_things_as_they_were():
    question = next_question(Goal(), 0)
    assert question is not None
    assert answered(Goal(), question, "   ") == Goal()


@pytest.mark.parametrize(
    ("goal", "answer"),
    [
        (dataclasses.replace(CLEAR, target_known=False), "fast"),
        (dataclasses.replace(CLEAR, target_known=False), "nan"),
        (dataclasses.replace(CLEAR, target_known=False), "inf"),
        (dataclasses.replace(CLEAR, direction=""), "sideways"),
        (dataclasses.replace(CLEAR, direction="", objective="a better parser of dates"), ""),
        (dataclasses.replace(CLEAR, format=""), "xml"),
    ],
)
def test_an_answer_that_does_not_fit_says_what_would(goal, answer):
    question = next_question(goal, 0)
    assert question is not None
    with pytest.raises(ValueError) as caught:
        answered(goal, question, answer)
    assert str(caught.value)


def test_a_number_that_is_no_offer_is_a_command():
    question = next_question(dataclasses.replace(CLEAR, benchmark="", format=""), 0, ["make bench"])
    assert question is not None
    assert "1) make bench" in question.text
    assert answered(Goal(), question, "9", [("make bench", "number")]).benchmark == "9"


@pytest.mark.parametrize(
    ("objective", "direction"),
    [("reduce memory", "lower"), ("raise throughput", "higher"), ("improve the time", ""), ("tidy it", "")],
)
def test_a_direction_is_only_guessed_where_the_words_agree(objective, direction):
    assert guess_direction(objective) == direction


def found(files: dict[str, str]) -> list[tuple[str, str, str]]:
    return [
        (offer.kind, offer.command, offer.format) for offer in survey(list(files), lambda name: files[name])
    ]


def test_the_survey_finds_benchmarks_before_tests():
    files = {
        "bench.py": "print(json.dumps(result))",
        "benchmarks/speed test.py": "print(1)",
        "benchmarks/__init__.py": "",
        "Makefile": "bench: build\n\t./x\ntest:\n\tpytest\nBENCH := 1\n",
        "package.json": '{"scripts": {"bench": "node b.js", "test": "jest"}}',
        "tests/test_a.py": "import pytest",
        "src/workbench.py": "",
    }
    assert found(files) == [
        ("benchmark", "python3 bench.py", "json"),
        ("benchmark", "python3 'benchmarks/speed test.py'", "number"),
        ("benchmark", "make -s bench", "number"),
        ("benchmark", "npm run --silent bench", "number"),
        ("test", "make -s test", "pass_fail"),
        ("test", "npm test --silent", "pass_fail"),
    ]


def test_the_survey_takes_anything_for_an_answer():
    assert found({}) == []
    assert found({"package.json": "{junk"}) == []
    assert found({"package.json": '["a"]'}) == []
    assert (
        found({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'})
        == []
    )
    assert found({"test_x.py": "import unittest"}) == [
        ("test", "python3 -m unittest discover -q", "pass_fail")
    ]
