"""Numbers: found where they are settings, changed without touching another byte, and searched until it is best."""

from __future__ import annotations

import ast
import json
import math
import tomllib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sid_actors.backends.local.numeric import propose
from sid_actors.backends.local.parameters import find_parameters, set_value
from sid_actors.backends.local.recipe import Attempt, Recipe, RecipeFailed

PYTHON = """\
# ü — a comment
VERSION = 3
__version__ = 1
SIZE: int = 1_000  # rows
PORT, DEBUG = 80, True
RATE = 1e-3
OFFSET = -4
MASK = 0xFF
NOTHING = 0
BASE_URL_PORT = 8080
SETTINGS = {"lr": 0.5, "net": {"width": 64, "hidden layers": 3}, "release_date": 2024, "on": True}

class Cache:
    capacity = 128

    def get(self, key, tries=3, first=0, *, scale=2.5, verbose=1):
        LOCAL = 7
        return LOCAL

if True:
    HIDDEN = 5
TWICE = 5
TWICE = 6
"""


def found(files: dict[str, str]) -> dict[str, int | float]:
    return {p.symbol: p.value for p in find_parameters(files)}


def test_settings_in_python_are_found_and_nothing_else() -> None:
    assert found({"a.py": PYTHON}) == {
        "SIZE": 1000,
        "RATE": 0.001,
        "OFFSET": -4,
        "SETTINGS.lr": 0.5,
        "SETTINGS.net.width": 64,
        'SETTINGS.net."hidden layers"': 3,
        "Cache.capacity": 128,
        "Cache.get(tries)": 3,
        "Cache.get(scale)": 2.5,
    }


def test_settings_in_documents_are_found_and_data_is_not() -> None:
    toml = 'depth = 3\nversion = 2\n[net]\nrate = 1e-2 # x\nname = """\nrate = 5\n"""\nsizes = [1, 2]\n[[run]]\nk = 1\n'
    document = '{"net": {"rate": 0.5, "sizes": [1, 2], "on": true, "a.b": -1.5E+2}, "rows": [{"x": 1}]}'

    assert found({"s.toml": toml}) == {"depth": 3, "net.rate": 0.01}
    assert found({"s.json": document}) == {"net.rate": 0.5, 'net."a.b"': -150.0}
    assert found({"package.json": '{"a": 5}', "pyproject.toml": "a = 5\n", "data.csv": "5"}) == {}
    assert found({"a.json": "{", "b.toml": "=", "c.py": "(", "d.json": "[" * 9999}) == {}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("path", "template", "symbol", "before", "new", "after"),
    [
        ("a.py", "# ü\nÜ = {}; B = 3 # x\nC = 4\n", "Ü", "1_000", 3, "3"),
        ("a.py", "A = 2\nB: float=( {}\n)", "B", "1e-3", 2e-05, "2e-05"),
        ("a.py", "class A:\n\tdef f( self,a = {}, b=2):\n\t\treturn 'ü'\n", "A.f(a)", "-7", -8, "-8"),
        ("a.py", "X = {{'ü': 3, 'n': {{ 'a.b':{} }} }}", 'X.n."a.b"', "5", 60, "60"),
        (
            "b.toml",
            "# ü\n[ net . x ]\nq = 1\nrate\t=  {}  # why\nd.e = +7\n",
            "net.x.rate",
            "1_000.5",
            0.25,
            "0.25",
        ),
        ("b.toml", "[a]\nd.f = {}\n", "a.d.f", "+7", 9, "9"),
        (
            "c.json",
            '{{ "ü" :\t3,\n  "a": {{"b" : [1, {{"a": 4}}], "c":{} }} }}',
            "a.c",
            "-2.50",
            -1e-06,
            "-1e-06",
        ),
    ],
)
def test_a_new_value_changes_no_other_byte(
    newline: str, path: str, template: str, symbol: str, before: str, new: float, after: str
) -> None:
    template = template.replace("\n", newline)
    text = template.format(before)
    (parameter,) = [p for p in find_parameters({path: text}) if p.symbol == symbol]

    assert set_value(text, parameter, new) == template.format(after)


def test_values_that_cannot_be_written_are_refused() -> None:
    (parameter,) = find_parameters({"a.py": "SIZE = 4\n"})
    for value in (4, 4.5, float("nan"), float("inf"), True):
        with pytest.raises(RecipeFailed):
            set_value("SIZE = 4\n", parameter, value)
    with pytest.raises(RecipeFailed, match="not in"):
        set_value("SIZES = 4\n", parameter, 5)


@settings(max_examples=60, deadline=None)
@given(value=st.floats(min_value=-1e9, max_value=1e9, allow_nan=False).filter(lambda v: v != 0))
def test_any_float_is_read_back_as_it_was_written(value: float) -> None:
    texts = {"a.py": "RATE = 0.5\n", "b.toml": "rate = 0.5\n", "c.json": '{"rate": 0.5}'}
    for path, text in texts.items():
        (parameter,) = find_parameters({path: text})
        if value == parameter.value:
            continue
        changed = set_value(text, parameter, value)
        match path:
            case "a.py":
                read = ast.literal_eval(changed.split("=")[1].strip())
            case "b.toml":
                read = tomllib.loads(changed)["rate"]
            case _:
                read = json.loads(changed)["rate"]
        assert read == value


def climb(start: dict[str, int | float], cost: Callable[[dict[str, int | float]], float], budget: int):
    """Search as rounds do: one value is measured a round, and kept if it is better."""
    values, best = dict(start), cost(start)
    attempts: list[Attempt] = []
    for _ in range(budget):
        text = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        proposals = propose(find_parameters({"a.py": text}), attempts)
        if not proposals:
            break
        parameter, value = proposals[0].parameter, proposals[0].value
        score = cost(values | {parameter.symbol: value})
        won = score < best
        attempts.append(Attempt(proposals[0].recipe, score, won=won))
        if won:
            values[parameter.symbol], best = value, score
    return values, attempts


@settings(max_examples=40, deadline=None)
@given(best=st.integers(1, 3000), start=st.integers(1, 3000))
def test_an_integer_is_found(best: int, start: int) -> None:
    values, attempts = climb({"SIZE": start}, lambda v: abs(v["SIZE"] - best), 60)

    assert abs(values["SIZE"] - best) <= max(1, 0.05 * best)
    keys = [attempt.recipe.key for attempt in attempts]
    assert len(set(keys)) == len(keys)


@settings(max_examples=40, deadline=None)
@given(best=st.floats(1e-5, 1e4), start=st.floats(1e-5, 1e4))
@example(best=2**-9, start=1.0)
def test_a_float_is_found_over_orders_of_magnitude(best: float, start: float) -> None:
    values, _ = climb({"RATE": start}, lambda v: abs(math.log(v["RATE"] / best)), 90)

    assert abs(math.log(values["RATE"] / best)) < 0.1


def test_several_parameters_are_searched_together() -> None:
    def cost(v: dict[str, int | float]) -> float:
        return (v["A"] - 40) ** 2 + 100 * (v["B"] - 0.3) ** 2 + (v["C"] + 12) ** 2

    start: dict[str, int | float] = {"A": 4, "B": 1.5, "C": -2}
    values, attempts = climb(start, cost, 80)

    assert cost(values) < 0.01 * cost(start)
    assert {attempt.recipe.symbol for attempt in attempts} == {"A", "B", "C"}


def test_a_win_is_followed_by_a_longer_step_and_two_losses_by_a_shorter_one() -> None:
    parameters = find_parameters({"a.py": "SIZE = 64\n"})

    def tried(value: int, *, won: bool = False, was: int = 64) -> Attempt:
        return Attempt(Recipe("numeric", "a.py", "SIZE", {"value": value, "was": was}), 1.0, won=won)

    assert [p.value for p in propose(parameters, [])] == [128]
    assert [p.value for p in propose(parameters, [tried(128)])] == [32]
    assert [p.value for p in propose(parameters, [tried(128), tried(32)])] == [91]
    (after,) = propose(parameters, [tried(64, won=True, was=32)])
    assert (after.value, after.momentum) == (256, True)
    assert [p.value for p in propose(parameters, [tried(64, won=True, was=32), tried(256)])] == [128]


def test_beyond_a_value_that_failed_nothing_is_tried() -> None:
    parameters = find_parameters({"a.py": "SIZE = 96\n"})
    won = Attempt(Recipe("numeric", "a.py", "SIZE", {"value": 96, "was": 24}), 2.0, won=True)
    failed = Attempt(Recipe("numeric", "a.py", "SIZE", {"value": 384, "was": 96}), None)

    assert [p.value for p in propose(parameters, [won])] == [384]
    assert [p.value for p in propose(parameters, [won, failed])] == [192]
    nearer = Attempt(Recipe("numeric", "a.py", "SIZE", {"value": 150, "was": 96}), None)
    below = Attempt(Recipe("numeric", "a.py", "SIZE", {"value": 48, "was": 96}), 1.0)
    assert [p.value for p in propose(parameters, [won, failed, nearer])] == [48]
    assert [p.value for p in propose(parameters, [won, failed, nearer, below])] == [136]


def test_a_runner_up_is_tried_again_on_top_of_the_winner_but_not_for_ever() -> None:
    parameters = find_parameters({"a.py": "SIZE = 64\n"})
    recipe = Recipe("numeric", "a.py", "SIZE", {"value": 128, "was": 64})
    gained = Attempt(recipe, 1.0, gained=True)

    assert [p.value for p in propose(parameters, [gained])] == [128]
    assert [p.value for p in propose(parameters, [gained, Attempt(recipe, 9.0)])] == [32]
    assert [p.value for p in propose(parameters, [gained] * 3)] == [32]


def _only_there(best: float, values: dict[str, int | float]) -> float:
    return float(values["X"] != best)


def test_the_search_comes_to_an_end_and_keeps_the_sign() -> None:
    for start in (5, -5, 0.5, -300.0, 12):
        values, attempts = climb({"X": start}, partial(_only_there, start), 500)
        assert values == {"X": start}
        assert 0 < len(attempts) < 60
        assert all(attempt.recipe.params["value"] * start > 0 for attempt in attempts)


def test_a_spoilt_history_does_no_harm() -> None:
    parameters = find_parameters({"a.py": "SIZE = 64\n"})
    odd: list[dict[str, Any]] = [
        {"value": "x"},
        {},
        {"value": True},
        {"value": float("nan")},
        {"value": 0, "was": 0},
        {"value": -3, "was": -1},
    ]
    attempts = [Attempt(Recipe("numeric", "a.py", "SIZE", params), None, won=True) for params in odd]

    assert len(propose(parameters, attempts)) == 1
