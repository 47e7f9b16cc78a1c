"""The catalogue of source transformations: what they are called, their family, and where each applies.

To add one: a module in `transforms/` with a `find(source)` that yields `Site`s it has proved safe, and a line
here. A site's edit keeps the meaning of the program; whether it helps is for the benchmark to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import libcst as cst

from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Source
from sid_actors.backends.local.transforms import (
    asking,
    bisecting,
    comprehension,
    counting,
    dict_once,
    extremes,
    hoist,
    joining,
    localise,
    membership,
    memoise,
    queueing,
    regex,
    slots,
    temporary,
)

Family = Literal["optimization", "data", "infrastructure", "architecture", "training_config"]


@dataclass(frozen=True, slots=True)
class Transformation:
    """One entry of the catalogue.

    Attributes:
        name: Its name in recipes; a promise, since histories hold it.
        family: Its approach family.
        title: A title with `{what}` for the site.
        why: Why it should help: the end of a sentence after "because".
        hints: Texts of which a module must hold one for a search to be worth while.
        find: Yields the sites in a module.
    """

    name: str
    family: Family
    title: str
    why: str
    hints: tuple[str, ...]
    find: Callable[[Source], Iterable[Site]]


CATALOG: tuple[Transformation, ...] = (
    Transformation(
        "memoise",
        "optimization",
        "Memoise {what}",
        "a call with arguments seen before becomes one look-up instead of the whole computation",
        ("def ",),
        memoise.find,
    ),
    Transformation(
        "bisect",
        "optimization",
        "Bisect in {what}",
        "halving what is left needs one comparison for each doubling of the data",
        ("for ",),
        bisecting.find,
    ),
    Transformation(
        "test_first",
        "optimization",
        "Test before {what}",
        "raising and catching an error costs many times what a look-up does",
        ("except ",),
        asking.find,
    ),
    Transformation(
        "seen_set",
        "data",
        "Back {what} with a set",
        "a set finds an item by its hash while a list compares it with one after another",
        (".append(",),
        membership.find_seen,
    ),
    Transformation(
        "list_to_set",
        "data",
        "Look up {what} in a set",
        "a set finds an item by its hash while a list compares it with one after another",
        (" in ",),
        membership.find_unchanged,
    ),
    Transformation(
        "constant_set",
        "data",
        "Make the constant of {what} a frozenset",
        "a frozenset finds an item by its hash while a list compares it with one after another",
        (" in ",),
        membership.find_constant,
    ),
    Transformation(
        "deque",
        "data",
        "Make {what} a deque",
        "taking the first item of a list moves all the others",
        (".pop(0", ".insert(0"),
        queueing.find,
    ),
    Transformation(
        "count_once",
        "data",
        "Count all of {what} at once",
        "one pass over the list replaces one pass for each question",
        (".count(",),
        counting.find,
    ),
    Transformation(
        "dict_once",
        "data",
        "Look keys up once in {what}",
        "each look-up of a key hashes it and searches the table again",
        ("for ", ".keys()"),
        dict_once.find,
    ),
    Transformation(
        "slots",
        "data",
        "Give slots to {what}",
        "an object without a dictionary is smaller and its attributes stand at fixed places",
        ("self.",),
        slots.find,
    ),
    Transformation(
        "compile_regex",
        "infrastructure",
        "Compile {what} once",
        "each use otherwise goes through the look-up in the cache of the module re",
        ("re.",),
        regex.find,
    ),
    Transformation(
        "hoist",
        "infrastructure",
        "Move {what} out of the loop",
        "the same answer is otherwise worked out again at every turn",
        ("for ", "while "),
        hoist.find,
    ),
    Transformation(
        "localise",
        "infrastructure",
        "Look up {what} before the loop",
        "a local variable is read by its place while an attribute is searched by its name",
        ("for ", "while "),
        localise.find,
    ),
    Transformation(
        "min_max",
        "architecture",
        "Replace {what} by a single pass",
        "finding an end needs one comparison an item and sorting needs many",
        ("sorted(",),
        extremes.find,
    ),
    Transformation(
        "join",
        "architecture",
        "Join the parts of {what} once",
        "adding to a string copies what is already there",
        ("+=",),
        joining.find,
    ),
    Transformation(
        "comprehension",
        "architecture",
        "Write {what} as a comprehension",
        "a comprehension appends without looking up and calling a method",
        (".append(",),
        comprehension.find,
    ),
    Transformation(
        "no_temporary",
        "architecture",
        "Do without {what}",
        "a list that is read once costs its memory for nothing",
        ("([", "list("),
        temporary.find,
    ),
)
BY_NAME = {entry.name: entry for entry in CATALOG}


def apply(site: Site) -> cst.Module:
    """Carry out the edit of one site.

    Raises:
        NotHere: the edit is impossible at this place after all.
    """
    try:
        return site.edit()
    except (cst.CSTValidationError, cst.ParserSyntaxError) as error:
        raise NotHere("the edit would not be valid Python") from error
