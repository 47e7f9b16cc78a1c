"""Ideas for a checkout: where the catalogue applies, what to try first, and what it says of it.

Pure: from texts, a profile and a history to a ranked list. The hottest places come first, what was tried is not
proposed again, and neighbours in the list are of different families as far as there are any.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any, Literal

from sid_actors.backends.local.apply import numbered, recipe_of
from sid_actors.backends.local.catalog import CATALOG, Transformation, apply
from sid_actors.backends.local.hotspots import HotSpots
from sid_actors.backends.local.lint import LINT, Fix, apply_fix, fixes
from sid_actors.backends.local.numeric import Proposal, propose
from sid_actors.backends.local.parameters import find_parameters
from sid_actors.backends.local.recipe import NUMERIC, Attempt, Recipe, RecipeFailed, spent
from sid_actors.backends.local.sites import NotHere, Site
from sid_actors.backends.local.source import Source, Unreadable, check, parse

Confidence = Literal["high", "medium", "low"]

MAX_IDEAS = 60  # more than any round can use; each is tried out before it is named

_UNKNOWN_SHARE = 0.1  # of a place's cost when there is no profile: the order is then by promise alone
_COLD_SHARE = 0.001  # of a place that a profile does not name: it may run in another process
_FORGIVEN = 0.75  # each failure of a transformation counts against the next one of its kind
_AGAIN = 1.5  # what gained before, and lost to another candidate, comes first
_NUMBER, _NUMBER_MOVING = 0.25, 0.6  # promise of a number, and of one whose last step won
_SAFE_FIX, _UNSAFE_FIX = 0.15, 0.1  # promise of a fix of ruff's
_HIGH, _MEDIUM = 0.2, 0.05  # promised share of the time


@dataclass(frozen=True, slots=True)
class Idea:
    """One change worth measuring.

    Attributes:
        recipe: The change.
        family: Its approach family.
        title: A few words.
        hypothesis: One sentence: what changes, the expected effect, why.
        evidence: What speaks for it, one sentence.
        confidence: How likely it is to help.
        estimated_impact: How much it could help.
        target_file: The file that would change.
        change: What would be done in it.
    """

    recipe: Recipe
    family: str
    title: str
    hypothesis: str
    evidence: str
    confidence: Confidence
    estimated_impact: str
    target_file: str
    change: str

    def to_json(self) -> dict[str, Any]:
        """Return the idea as a JSON object."""
        return {
            "recipe": self.recipe.to_json(),
            "family": self.family,
            "title": self.title,
            "hypothesis": self.hypothesis,
            "evidence": self.evidence,
            "confidence": self.confidence,
            "estimated_impact": self.estimated_impact,
            "target_file": self.target_file,
            "change": self.change,
        }


@dataclass(frozen=True, slots=True)
class _Ranked:
    score: float
    idea: Idea
    works: Callable[[], bool] = lambda: True


def survey(
    files: Mapping[str, str],
    hot: HotSpots | None,
    attempts: list[Attempt],
    sealed: frozenset[str] = frozenset(),
    streak_family: str | None = None,
    lint: Mapping[str, Any] | None = None,
) -> list[Idea]:
    """Return the best ideas for some files, best first, at most `MAX_IDEAS`.

    Args:
        files: Path → text of what may be edited.
        hot: A profile of the benchmark at this state, if there is one.
        attempts: What was tried so far, oldest first.
        sealed: Paths that may not be changed after all.
        streak_family: The family that won the last two rounds: its ideas come last.
        lint: Path → what ruff would change there, as `lint.parse_lint` gives it.
    """
    usable = {path: text for path, text in files.items() if path not in sealed}
    heat = _Heat(hot, usable)
    record = _Record(attempts)
    ranked: list[_Ranked] = []
    for path in sorted(usable):
        if path.endswith(".py"):
            own = _source_ideas(path, usable[path], heat, record)
            ranked += own
            rows = (lint or {}).get(path)
            if rows:
                ranked += _lint_ideas(path, usable[path], rows, heat, record, own)
    ranked += _number_ideas(usable, heat, record)
    ranked.sort(key=lambda r: (-r.score, r.idea.recipe.key))
    working = (entry for entry in _rotated(ranked, streak_family) if entry.works())
    return [entry.idea for entry in islice(working, MAX_IDEAS)]


def _rotated(ranked: list[_Ranked], streak_family: str | None) -> list[_Ranked]:
    """Return ideas so that as many as possible follow one another without a family coming twice."""
    families: dict[str, list[_Ranked]] = {}
    for entry in ranked:
        families.setdefault(entry.idea.family, []).append(entry)
    last = families.pop(streak_family, []) if streak_family is not None else []
    turns = zip_longest(*families.values())
    return [entry for turn in turns for entry in turn if entry is not None] + last


class _Record:
    """What the history says of recipes and of transformations."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self.attempts = attempts
        self.spent = spent(attempts)
        self.gained = {a.recipe.key for a in attempts if a.gained} - self.spent
        self._misses: dict[str, int] = {}
        for attempt in attempts:
            name = attempt.recipe.transformation
            if attempt.won:
                self._misses[name] = 0
            elif not attempt.gained:
                self._misses[name] = self._misses.get(name, 0) + 1

    def weight(self, recipe: Recipe) -> float:
        """Return how much less (or more) to expect of a recipe after what came of its like."""
        if recipe.key in self.gained:
            return _AGAIN
        return float(_FORGIVEN ** self._misses.get(recipe.transformation, 0))


class _Heat:
    """Which share of the benchmark's time each function and file answers for."""

    def __init__(self, hot: HotSpots | None, files: Mapping[str, str]) -> None:
        self.known = hot is not None and hot.total_s > 0 and bool(hot.functions)
        self._shares: dict[tuple[str, str], float] = {}
        self._calls: dict[tuple[str, str], int] = {}
        self._bodies: dict[tuple[str, str], str] = {}
        if hot is None or not self.known:
            return
        editable = frozenset(files)
        for path in {f.path for f in hot.functions} & editable:
            if not path.endswith(".py"):
                continue
            # profilers say the line of the first decorator
            spans = _function_spans(files[path])
            names = {first: symbol for first, _, symbol in spans}
            lines = files[path].splitlines()
            self._bodies |= {(path, s): "\n".join(lines[first - 1 : last]) for first, last, s in spans}
            for function in (f for f in hot.functions if f.path == path):
                symbol = names.get(function.line, function.name)
                share = min(1.0, hot.cost_s(function, editable) / hot.total_s)
                self._shares[path, symbol] = self._shares.get((path, symbol), 0.0) + share
                self._calls[path, symbol] = self._calls.get((path, symbol), 0) + function.calls

    def share(self, path: str, symbol: str) -> float:
        """Return the share of a function, 0 to 1."""
        if not self.known:
            return _UNKNOWN_SHARE
        return max(_COLD_SHARE, self._shares.get((path, symbol), 0.0))

    def calls(self, path: str, symbol: str) -> int | None:
        """Return how often a function was called, None if nobody counted."""
        return self._calls.get((path, symbol)) if self.known else None

    def number(self, path: str, symbol: str) -> float:
        """Return the share of what a number decides: the function of an argument, the hottest one that names it."""
        if not self.known or not path.endswith(".py"):
            return _UNKNOWN_SHARE
        function, argument, _ = symbol.partition("(")
        if argument:
            return self.share(path, function)
        parts = symbol.split(".")
        name = parts[1] if len(parts) > 1 and parts[0][:1].isupper() and not parts[0].isupper() else parts[0]
        word = re.compile(rf"\b{re.escape(name)}\b")
        using = (share for at, share in self._shares.items() if word.search(self._bodies.get(at, "")))
        return min(1.0, max(_COLD_SHARE, max(using, default=0.0)))


def _function_spans(text: str) -> list[tuple[int, int, str]]:
    """Return first line, last line and qualified name of every function; its first line is a decorator's, if any."""
    try:
        stack: list[tuple[ast.AST, tuple[str, ...]]] = [(check(text), ())]
    except Unreadable:
        return []
    found: list[tuple[int, int, str]] = []
    while stack:
        node, names = stack.pop()
        inner = names
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = (*names, node.name)
            if not isinstance(node, ast.ClassDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                found.append((first, node.end_lineno or node.lineno, ".".join(inner)))
        stack += [(child, inner) for child in ast.iter_child_nodes(node)]
    return found


def _source_ideas(path: str, text: str, heat: _Heat, record: _Record) -> list[_Ranked]:
    entries = [entry for entry in CATALOG if any(hint in text for hint in entry.hints)]
    if not entries:
        return []
    try:
        source = parse(text)
    except Unreadable:
        return []
    found = []
    for entry in entries:
        for occurrence, site in numbered(list(entry.find(source))):
            recipe = recipe_of(entry.name, path, site, occurrence)
            if recipe.key not in record.spent:
                ranked = _source_idea(entry, path, site, recipe, heat, record)
                found.append(replace(ranked, works=partial(_works, site, source)))
    return found


def _works(site: Site, source: Source) -> bool:
    """Return whether the edit can be made, and changes something."""
    try:
        return apply(site).code != source.text
    except NotHere:
        return False


def _source_idea(
    entry: Transformation, path: str, site: Site, recipe: Recipe, heat: _Heat, record: _Record
) -> _Ranked:
    share, calls = heat.share(path, site.symbol), heat.calls(path, site.symbol)
    promise = site.promise * share * (1.0 + 0.2 * min(site.depth, 3))
    if entry.name == "memoise" and calls is not None and calls < 2:
        promise = 0.0
    again = recipe.key in record.gained
    title = entry.title.format(what=site.what)
    hypothesis = (
        f"In {path}, {site.what} {site.change}, which should make the benchmark cheaper because {entry.why}"
        f"{_again_text(again)}."
    )
    return _Ranked(
        promise * record.weight(recipe),
        Idea(
            recipe,
            entry.family,
            title,
            hypothesis,
            _evidence(site, share, calls, heat),
            _confidence(promise, heat, again=again),
            _impact(share, heat),
            path,
            f"{site.what} {site.change}",
        ),
    )


def _again_text(again: bool) -> str:  # noqa: FBT001 - its one argument says itself
    return ", as it did in an earlier round that another change won" if again else ""


def _evidence(site: Site, share: float, calls: int | None, heat: _Heat) -> str:
    nested = {0: "outside of any loop", 1: "in a loop"}.get(site.depth, f"{site.depth} loops deep")
    if not heat.known:
        return f"Read in the source: the place is {nested}, no profile was taken."
    counted = f", called {calls} times" if calls is not None else ""
    return (
        f"Profile: `{site.symbol}` takes {_percent(share)} of the time{counted}, and the place is {nested}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def _confidence(promise: float, heat: _Heat, *, again: bool) -> Confidence:
    if again or (heat.known and promise >= _HIGH):
        return "high"
    return "medium" if promise >= _MEDIUM else "low"


def _impact(share: float, heat: _Heat) -> str:
    if not heat.known:
        return "unknown before it is measured"
    return (
        f"at most the {_percent(share)} that the place takes"
        if share >= 0.01
        else "under 1 %, as the place takes"
    )


def _lint_ideas(
    path: str, text: str, rows: object, heat: _Heat, record: _Record, own: list[_Ranked]
) -> list[_Ranked]:
    """Return what ruff would change inside functions, but for what the catalogue proposes there itself."""
    proved = {(r.idea.recipe.transformation, r.idea.recipe.symbol) for r in own}
    spans = _function_spans(text)
    found = []
    for fix in fixes(text, rows):
        inside = [(first, symbol) for first, last, symbol in spans if first <= fix.line <= last]
        if not inside:
            continue  # of the module itself: it runs once
        symbol = max(inside)[1]
        recipe = fix.recipe(path, symbol)
        if recipe.key not in record.spent and (fix.twin, symbol) not in proved:
            found.append(_lint_idea(fix, recipe, text, heat, record))
    return found


def _lint_idea(fix: Fix, recipe: Recipe, text: str, heat: _Heat, record: _Record) -> _Ranked:
    path, symbol = recipe.path, recipe.symbol
    share, calls = heat.share(path, symbol), heat.calls(path, symbol)
    promise = (_SAFE_FIX if fix.safe else _UNSAFE_FIX) * share
    says = fix.says.replace(";", ",").split(". ", 1)[0]
    change = f"line {fix.line} of `{symbol}` is changed as ruff's rule {fix.rule} says ({says})"
    doubt = "" if fix.safe else ", a fix that ruff calls unsafe since comments or unusual types may matter"
    counted = f", called {calls} times" if calls is not None else ""
    took = f"takes {_percent(share)} of the time{counted}" if heat.known else "was not profiled"
    idea = Idea(
        recipe,
        fix.family,
        f"Apply {fix.rule} in `{symbol}`",
        f"In {path}, {change}{doubt}, which should make the benchmark cheaper because it saves work at every call.",
        f"Found by ruff: `{symbol}` {took}.",
        _confidence(promise, heat, again=recipe.key in record.gained),
        _impact(share, heat),
        path,
        change,
    )
    return _Ranked(promise * record.weight(recipe), idea, partial(_fits, text, recipe))


def _fits(text: str, recipe: Recipe) -> bool:
    try:
        apply_fix(text, recipe.params)
    except RecipeFailed:
        return False
    return True


def _number_ideas(files: Mapping[str, str], heat: _Heat, record: _Record) -> list[_Ranked]:
    found = []
    for place, proposal in enumerate(propose(find_parameters(files), record.attempts)):
        share = heat.number(proposal.parameter.path, proposal.parameter.symbol)
        promise = (_NUMBER_MOVING if proposal.momentum else _NUMBER) * _FORGIVEN**proposal.misses
        # the search's own order holds among numbers, however warm their files are
        score = promise * (max(share, _UNKNOWN_SHARE) if proposal.momentum else share) * 0.99**place
        found.append(_Ranked(score, _number_idea(proposal, share, heat)))
    return found


def _number_idea(proposal: Proposal, share: float, heat: _Heat) -> Idea:
    parameter, value = proposal.parameter, proposal.value
    side = "above" if value > parameter.value else "below"
    change = f"`{parameter.symbol}` goes from {parameter.value!r} to {value!r}"
    where = f"what uses it takes {_percent(share)} of the time" if heat.known and parameter.path.endswith(".py") else (
        "it stands among the settings in scope"
    )  # fmt: skip
    return Idea(
        proposal.recipe,
        "training_config",
        f"Set `{parameter.symbol}` to {value!r}",
        f"In {parameter.path}, {change}, which should improve the benchmark if the best value lies {side} the present "
        f"one, {proposal.reason}.",
        f"Pattern search over numbers: {where}, and {proposal.misses} values were tried since its last gain.",
        "medium" if proposal.momentum else "low",
        "unknown before it is measured",
        parameter.path,
        change,
    )


assert {NUMERIC, LINT}.isdisjoint(entry.name for entry in CATALOG)
