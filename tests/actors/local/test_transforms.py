"""Every entry of the catalogue: it finds its place, keeps the program's meaning, and leaves doubtful code alone."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from sid_actors.backends.local.apply import apply_recipe, find_site, numbered, recipe_of
from sid_actors.backends.local.catalog import BY_NAME, CATALOG, apply
from sid_actors.backends.local.recipe import Recipe, RecipeFailed
from sid_actors.backends.local.sites import NotHere
from sid_actors.backends.local.source import Unreadable, parse
from tests.actors.local.transform_cases import FOUND, LEFT


def code(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def edits(name: str, text: str) -> list[str]:
    """Return the text after each edit that an entry offers."""
    found = []
    for site in BY_NAME[name].find(parse(text)):
        try:
            found.append(apply(site).code)
        except NotHere:
            continue
    return found


def run(text: str, calls: list[str]) -> list[Any]:
    """Return what calls give, or the type of the error that they raise."""
    names: dict[str, Any] = {}
    exec(compile(text, "fixture", "exec"), names)
    results: list[Any] = []
    for call in calls:
        try:
            results.append(repr(eval(call, names)))
        except (ValueError, IndexError, TypeError, KeyError) as error:
            results.append(type(error))
    return results


@pytest.mark.parametrize(
    ("name", "text", "holds", "calls"), FOUND, ids=[f"{f[0]}-{i}" for i, f in enumerate(FOUND)]
)
def test_an_edit_keeps_the_meaning(name: str, text: str, holds: list[str], calls: list[str]) -> None:
    text = code(text)
    found = edits(name, text)

    assert any(all(part in new for part in holds) for new in found), "\n---\n".join(found) or "no site"
    for new in found:
        assert run(new, calls) == run(text, calls)


def test_every_entry_of_the_catalogue_has_a_fixture() -> None:
    assert {entry.name for entry in CATALOG} == {name for name, *_ in FOUND}


@pytest.mark.parametrize(("name", "why", "text"), LEFT, ids=[f"{n}: {w}" for n, w, _ in LEFT])
def test_doubtful_code_is_left_alone(name: str, why: str, text: str) -> None:
    ast.parse(text)
    assert edits(name, text) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", ["  ", "\t"])
def test_layout_is_kept_but_for_the_lines_that_change(newline: str, indent: str) -> None:
    lines = [
        "#!/usr/bin/env python3", "# -*- coding: utf-8 -*-", '"""Ä."""', "import re  # ü", "", "x  =  {1 :2}",
        "def f( words:list[str] ) :", "I# odd", "Iseen=[ ]", "Iout = 0 ;  y=1", "", "Ifor w in words :",
        "IIif w  not in  seen: # why", "IIIseen.append( w )", "IIIout+=1", "Ireturn out", "",
    ]  # fmt: skip
    text = newline.join(line.replace("I", indent) if line.startswith("I") else line for line in lines)

    (new,) = edits("seen_set", text)

    changed = [(a, b) for a, b in zip(text.split(newline), new.split(newline), strict=True) if a != b]
    assert changed == [
        (f"{indent}seen=[ ]", f"{indent}seen=set()"),
        (f"{indent * 3}seen.append( w )", f"{indent * 3}seen.add( w )"),
    ]


def test_two_equal_places_are_two_recipes() -> None:
    text = code(
        """
        import re

        def f(a, b):
            return re.match("x", a), re.match("x", a), re.match("x", b)
        """
    )
    source = parse(text)
    entry = BY_NAME["compile_regex"]
    recipes = [recipe_of(entry.name, "f.py", site, n) for n, site in numbered(list(entry.find(source)))]

    assert len({recipe.key for recipe in recipes}) == 3
    assert "_F_PATTERN.match(a), re.match" in apply_recipe(text, recipes[0])
    assert 're.match("x", a), _F_PATTERN.match(a)' in apply_recipe(text, recipes[1])


def test_a_recipe_fails_when_its_place_has_changed() -> None:
    text = "def f(n: int) -> int:\n    return sum(i * i for i in range(n))\n"
    source = parse(text)
    (site,) = BY_NAME["memoise"].find(source)
    recipe = recipe_of("memoise", "f.py", site, 0)

    assert find_site(source, recipe).symbol == "f"
    applied = apply_recipe(text, recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe
    for other in (applied, text.replace("i * i", "i + i"), "x = 1\n", "def f(:\n"):
        with pytest.raises(RecipeFailed):
            apply_recipe(other, recipe)
    with pytest.raises(RecipeFailed, match="no transformation is called"):
        apply_recipe(text, Recipe("magic", "f.py", "f"))


@pytest.mark.parametrize(
    "text",
    [
        "def f(:\n",
        "x = " + "(" * 500 + ")" * 500,
        "x = " + "-" * 5000 + "1",
        "x = " + "+".join(["1"] * 5000),
        "x = 1\0",
        "x = '\udc80'",
    ],
    ids=["syntax", "brackets", "signs", "sum", "nul", "surrogate"],
)
def test_hostile_text_is_refused_and_not_followed(text: str) -> None:
    with pytest.raises(Unreadable):
        parse(text)


def test_an_analysis_ends_on_what_refers_to_itself() -> None:
    text = code(
        """
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class Node:
            name: str
            inner: tuple["Node", ...] = ()

        def even(n: int, node: Node) -> bool:
            return True if n == 0 else odd(n - 1, node)

        def odd(n: int, node: Node) -> bool:
            return False if n == 0 else even(n - 1, node)

        def f(items: list[Node]):
            a = b = c = items
            for _ in range(3):
                a, b, c = b, c, a
                x = y
                y = x
            return [x for x in items if x in a], sorted(items)[0]
        """
    )
    source = parse(text)
    for entry in CATALOG:
        for site in entry.find(source):
            apply(site)
