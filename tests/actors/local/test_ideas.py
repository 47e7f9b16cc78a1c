"""Ideas: the hottest first, the families in turn, nothing twice, and each one sentence that says what and why."""

from __future__ import annotations

import pytest

from sid_actors.backends.local.apply import apply_recipe
from sid_actors.backends.local.hotspots import HotFunction, HotSpots
from sid_actors.backends.local.ideas import Idea, survey
from sid_actors.backends.local.recipe import Attempt, Recipe, RecipeInvalid

TEXT = """\
import re

BLOCK = 16


def power(n: int) -> int:
    return sum(i**n for i in range(n))


def other(n: int) -> int:
    return sum(i * n for i in range(n))


def unique(words: list[str]) -> int:
    seen = []
    for word in words:
        if word not in seen and re.match("a+", word):
            seen.append(word)
    return 1


def smallest(words):
    return sorted(words)[0]
"""
FILES = {"lib/a.py": TEXT, "settings.toml": "depth = 4\n", "broken.py": "def f(:\n"}
LINES = {"power": 6, "other": 10, "unique": 14, "smallest": 22}


def hot(**seconds: float) -> HotSpots:
    functions = [HotFunction("lib/a.py", LINES[name], name, 9, s, s) for name, s in seconds.items()]
    return HotSpots(tuple(functions), sum(seconds.values()))


def named(ideas: list[Idea]) -> list[tuple[str, str]]:
    return [(idea.recipe.transformation, idea.recipe.symbol) for idea in ideas]


def test_the_first_ideas_are_of_different_families() -> None:
    ideas = survey(FILES, None, [])

    assert len({idea.family for idea in ideas[:5]}) == 5
    assert {i.family for i in ideas} == {
        "optimization",
        "data",
        "infrastructure",
        "architecture",
        "training_config",
    }


def test_the_hottest_place_comes_first() -> None:
    for name in ("power", "other"):
        ideas = survey(FILES, hot(**{name: 9.0, "unique": 1.0}), [])
        assert named(ideas)[0] == ("memoise", name)
        assert ideas[0].confidence == "high"
        assert "90 %" in ideas[0].evidence
    assert survey(FILES, hot(unique=9.0, power=0.1), [])[0].family == "data"


def test_time_in_code_that_nobody_may_edit_counts_for_its_caller() -> None:
    functions = (
        HotFunction("lib/a.py", 14, "unique", 1, 0.1, 9.0, (("bench.py", 3, 8.5),)),
        HotFunction("bench.py", 3, "__eq__", 999, 8.5, 8.5),
        HotFunction("lib/a.py", 6, "power", 5, 0.5, 0.5),
    )

    assert survey(FILES, HotSpots(functions, 9.1), [])[0].recipe.symbol == "unique"


def test_a_function_that_is_called_once_needs_no_memory() -> None:
    once = HotSpots((HotFunction("lib/a.py", 6, "power", 1, 9.0, 9.0),), 9.0)

    assert survey(FILES, once, [])[0].recipe.symbol != "power"


def test_what_was_tried_is_not_proposed_again_unless_its_place_changed() -> None:
    first = survey(FILES, None, [])
    tried = [Attempt(idea.recipe, 1.0) for idea in first]
    again = survey(FILES, None, tried)

    assert {i.recipe.key for i in again}.isdisjoint(a.recipe.key for a in tried)
    assert {i.recipe.transformation for i in again} <= {"numeric"}
    changed = FILES | {"lib/a.py": TEXT.replace("i**n", "i**n + 1")}
    assert ("memoise", "power") in named(survey(changed, None, tried))


def test_a_runner_up_that_gained_comes_again_and_says_so() -> None:
    idea = next(i for i in survey(FILES, None, []) if i.recipe.transformation == "seen_set")
    gained = Attempt(idea.recipe, 0.5, gained=True)

    (again,) = [i for i in survey(FILES, None, [gained]) if i.recipe == idea.recipe]
    assert again.confidence == "high"
    assert "earlier round" in again.hypothesis
    for end in (Attempt(idea.recipe, 0.5), Attempt(idea.recipe, 0.4, won=True)):
        assert idea.recipe.key not in {i.recipe.key for i in survey(FILES, None, [gained, end])}


def test_a_family_that_won_twice_comes_last() -> None:
    ideas = survey(FILES, hot(power=9.0, other=5.0), [], streak_family="optimization")

    families = [idea.family for idea in ideas]
    assert families[0] != "optimization"
    assert families[-2:] == ["optimization", "optimization"]


def test_failures_of_a_kind_count_against_the_next_of_it() -> None:
    failed = [
        Attempt(Recipe("memoise", "x.py", f"f{n}", {"digest": "0", "occurrence": 0}), 9.0) for n in range(8)
    ]

    assert survey(FILES, None, [])[0].recipe.transformation != "min_max"
    order = [i.family for i in survey(FILES, None, failed)]
    assert order.index("architecture") < order.index("optimization")


def test_a_number_is_as_warm_as_what_uses_it() -> None:
    text = (
        "LIMIT = 40\nDEPTH = 40\n\n\ndef busy(n, step=3):\n    return n // LIMIT * step\n\n\n"
        "def idle(n, factor=3):\n    return n * DEPTH * factor\n\n\ndef power(n: int) -> int:\n"
        "    return sum(i**n for i in range(n))\n"
    )

    def order(**seconds: float) -> list[str]:
        lines = {"busy": 5, "idle": 9, "power": 13}
        functions = [HotFunction("a.py", lines[name], name, 9, s, s) for name, s in seconds.items()]
        return [i.recipe.symbol for i in survey({"a.py": text}, HotSpots(tuple(functions), 10.0), [])]

    assert order(power=6.0, busy=3.0, idle=0.1)[:2] == ["power", "LIMIT"]
    numbers = [s for s in order(power=1.0, busy=0.1, idle=8.0) if s != "power"]
    assert set(numbers[:2]) == {"DEPTH", "idle(factor)"}


def test_sealed_files_are_not_touched() -> None:
    ideas = survey(FILES, None, [], frozenset({"lib/a.py"}))

    assert {idea.target_file for idea in ideas} == {"settings.toml"}


def test_an_idea_says_in_one_sentence_what_changes_and_why_and_can_be_carried_out() -> None:
    for idea in survey(FILES, None, []):
        assert idea.hypothesis.count(". ") == 0
        assert "\n" not in idea.hypothesis
        assert ";" not in idea.hypothesis
        assert idea.hypothesis.startswith(f"In {idea.target_file}, ")
        assert idea.hypothesis.endswith(".")
        assert idea.title
        assert idea.evidence
        assert idea.change
        assert apply_recipe(FILES[idea.target_file], idea.recipe) != FILES[idea.target_file]


@pytest.mark.parametrize(
    "value", [None, [], {}, {"transformation": 1}, {"transformation": "a", "path": "", "symbol": "s"}]
)
def test_junk_is_no_recipe(value: object) -> None:
    with pytest.raises(RecipeInvalid):
        Recipe.from_json(value)
    with pytest.raises(RecipeInvalid):
        Attempt.from_json({"recipe": value})


def test_an_attempt_survives_the_wire() -> None:
    attempt = Attempt(Recipe("numeric", "a.py", "X", {"value": 2, "was": 1}), 1.5, gained=True)

    assert Attempt.from_json(attempt.to_json()) == attempt
    with pytest.raises(RecipeInvalid):
        Attempt.from_json(attempt.to_json() | {"score": "1"})
