"""Search over numbers: a pattern search with growing and halving steps, its state read from the history.

From the value that is merged now it looks a step up and a step down; a step that wins is followed by one twice
as long in the same direction, two that lose by steps half as long. Nothing is stored: what was tried, and what
won, says where the search is. A value is never tried twice, unless it was better and lost to another candidate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sid_actors.backends.local.parameters import Number, Parameter, is_log
from sid_actors.backends.local.recipe import NUMERIC, Attempt, Recipe, spent

_DIGITS = 4  # significant ones of a new float
_FINEST = 64  # a linear float is not searched in steps finer than this part of its first one
_NEAR_LOG = 3.0
"""Up to this factor (as a power of two) from where it began, a plain value is searched by plain steps."""
_FINEST_LOG = 1 / 32  # nor a logarithmic one in factors below 2 ** this
_LONGEST_LOG = 2.0  # no factor above 4 at once: programs refuse what is far beyond their settings
_PROMISING = re.compile(
    r"size|batch|chunk|buffer|block|limit|threshold|rate|alpha|beta|gamma|decay|dropout|window|depth|width|step|worker"
    r"|thread|cache|capacity|tolerance|eps|factor|weight|ratio|bucket|bins|max|min|degree|radius|level|lr|stride|cell",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One value to try next.

    Attributes:
        parameter: Which number.
        value: The value to try.
        recipe: The change.
        reason: Why this value, a clause that ends a sentence.
        momentum: The last step of this parameter won, or this one gained as a runner-up.
        misses: How many values were tried in vain since.
    """

    parameter: Parameter
    value: Number
    recipe: Recipe
    reason: str
    momentum: bool
    misses: int


def propose(parameters: list[Parameter], attempts: list[Attempt]) -> list[Proposal]:
    """Return the next value of every parameter that has one, the most promising first.

    Args:
        parameters: As `find_parameters` found them in the present files.
        attempts: What was tried so far, oldest first; other recipes than numeric ones are passed over.
    """
    given_up = spent(attempts)
    history: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        recipe = attempt.recipe
        if recipe.transformation == NUMERIC and _number(recipe.params.get("value")) is not None:
            history.setdefault((recipe.path, recipe.symbol), []).append(attempt)
    proposals = [
        found
        for parameter in parameters
        if (found := _next(parameter, history.get((parameter.path, parameter.symbol), []), given_up))
    ]
    return sorted(proposals, key=_rank)


def _rank(proposal: Proposal) -> tuple[bool, int, bool]:
    known = _PROMISING.search(proposal.parameter.symbol) is not None
    return not proposal.momentum, proposal.misses, not known


def _next(parameter: Parameter, attempts: list[Attempt], given_up: set[str]) -> Proposal | None:
    centre = parameter.value
    tried = {centre}
    for attempt in attempts:
        tried |= {v for v in (_value(attempt), _was(attempt)) if v is not None}
    again = [a for a in attempts if a.gained and a.recipe.key not in given_up and _value(a) != centre]
    if again:
        value = _value(again[-1])
        assert value is not None
        return _proposal(
            parameter, value, "as it was better before, in a round that another change won", 0, momentum=True
        )
    origin = next((v for a in attempts if (v := _was(a)) is not None), centre)
    # A search that has left its first order of magnitude goes on by factors, or its steps would end above the value.
    moved = bool(centre and origin) and abs(math.log2(abs(centre / origin))) > _NEAR_LOG
    axis = _Axis(parameter, log=moved or (is_log(origin) if attempts else parameter.log), origin=origin)
    last_win = next((i for i in reversed(range(len(attempts))) if attempts[i].won), None)
    misses = len(attempts) if last_win is None else len(attempts) - last_win - 1
    direction, step, came = 1, axis.first_step, math.inf
    if last_win is not None:
        before = _was(attempts[last_win])
        if before is not None and before != centre and axis.fits(before) and axis.fits(centre):
            came = abs(axis.place(centre) - axis.place(before))
            direction = 1 if axis.place(centre) > axis.place(before) else -1
            step = min(2 * came, axis.longest)
    failed = [v for a in attempts if a.score is None and not a.won and (v := _value(a)) is not None]
    high = min((v for v in failed if v > centre), default=math.inf)
    low = max((v for v in failed if v < centre), default=-math.inf)
    for side, length, value in axis.steps(centre, direction, step):
        # back beyond where the last win came from is known to be worse, and beyond a value that failed to fail
        if value not in tried and low < value < high and not (side != direction and length >= came):
            reason = _reason(last_win is not None and misses == 0, misses)
            return _proposal(parameter, value, reason, misses, momentum=last_win is not None and misses == 0)
    return None


def _reason(momentum: bool, misses: int) -> str:  # noqa: FBT001 - a fact of the search, no switch
    if momentum:
        return "as the last step in this direction was an improvement"
    return "which was not measured yet" if misses else "a side that was never measured"


def _proposal(parameter: Parameter, value: Number, reason: str, misses: int, *, momentum: bool) -> Proposal:
    params = {"value": value, "was": parameter.value}
    recipe = Recipe(NUMERIC, parameter.path, parameter.symbol, params)
    return Proposal(parameter, value, recipe, reason, momentum, misses)


@dataclass(slots=True)
class _Axis:
    """The line on which one parameter is searched: its values, or their logarithms."""

    parameter: Parameter
    log: bool
    origin: Number

    @property
    def first_step(self) -> float:
        if self.log:
            return 1.0
        quarter = abs(self.origin) / 4
        return max(1.0, round(quarter)) if self.parameter.kind == "int" else quarter or 0.25

    @property
    def longest(self) -> float:
        return _LONGEST_LOG if self.log else math.inf

    @property
    def finest(self) -> float:
        if self.log:
            return _FINEST_LOG
        return 1.0 if self.parameter.kind == "int" else self.first_step / _FINEST

    def fits(self, value: Number) -> bool:
        return value != 0 or not self.log

    def place(self, value: Number) -> float:
        return math.log2(abs(value)) if self.log else float(value)

    def steps(self, centre: Number, direction: int, step: float) -> Iterator[tuple[int, float, Number]]:
        """Yield side, length and value of every step from `centre`: both sides, then half as long."""
        if not self.fits(centre):
            return
        while step >= self.finest:
            for side in (direction, -direction):
                value = self._value(self.place(centre) + side * step, centre)
                if value is not None:
                    yield side, step, value
            step = self._half(step)

    def _half(self, step: float) -> float:
        return step // 2 if self.parameter.kind == "int" and not self.log else step / 2

    def _value(self, place: float, centre: Number) -> Number | None:
        if self.log and abs(place) > 300:
            return None
        raw = math.copysign(2.0**place, centre) if self.log else place
        if self.parameter.kind == "int":
            value: Number = round(raw)
        else:
            value = float(f"{raw:.{_DIGITS}g}")
        # a number keeps its sign: what is a size or a rate makes no sense below nothing
        kept = value > 0 if centre > 0 else value < 0 if centre < 0 else value > 0
        return value if kept and value != centre and math.isfinite(value) else None


def _number(value: object) -> Number | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return value if usable and isinstance(value, (int, float)) else None


def _value(attempt: Attempt) -> Number | None:
    return _number(attempt.recipe.params.get("value"))


def _was(attempt: Attempt) -> Number | None:
    return _number(attempt.recipe.params.get("was"))
