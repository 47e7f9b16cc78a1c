"""A recipe: one change of the local back end, small enough to travel in a plan and to be found in a history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NUMERIC = "numeric"


class RecipeInvalid(Exception):
    """What should be a recipe is none; the message says why."""


class RecipeFailed(Exception):
    """A recipe cannot be carried out on this text; the message says why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One change: which transformation, where, and what else it needs to know.

    Attributes:
        transformation: A name of the catalogue, `numeric`, or `lint`.
        path: The file, relative to the repository.
        symbol: The function, or the constant or dotted key of a number.
        params: For a source transformation `digest` (of the text at the site) and `occurrence` (from 0, among
            equal ones in the same function); for a number `value` (the new one) and `was` (the one it replaces);
            for a fix of ruff's `rule`, `old` and `new` text, and `occurrence` (among equal ones in the file).
    """

    transformation: str
    path: str
    symbol: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What makes two recipes the same change: another new value, or another old text, is another change."""
        what = ",".join(f"{name}={self.params[name]!r}" for name in sorted(self.params) if name != "was")
        return f"{self.transformation}:{self.path}:{self.symbol}:{what}"

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as a JSON object."""
        return {
            "transformation": self.transformation,
            "path": self.path,
            "symbol": self.symbol,
            "params": dict(self.params),
        }

    @classmethod
    def from_json(cls, value: object) -> Recipe:
        """Return the recipe that a JSON value holds.

        Raises:
            RecipeInvalid: it is no recipe.
        """
        if not isinstance(value, dict):
            raise RecipeInvalid("a recipe is an object")
        texts = [value.get(name) for name in ("transformation", "path", "symbol")]
        params = value.get("params", {})
        if not all(isinstance(text, str) and text for text in texts) or not isinstance(params, dict):
            raise RecipeInvalid(
                "a recipe has the texts transformation, path and symbol, and the object params"
            )
        return cls(str(texts[0]), str(texts[1]), str(texts[2]), params)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of a recipe in an earlier round, oldest first in a history.

    Attributes:
        recipe: What was tried.
        score: What was measured; None if nothing was.
        won: It was merged.
        gained: It was measured as better than the incumbent, but another candidate won the round. It may be tried
            again, on top of that winner.
    """

    recipe: Recipe
    score: float | None = None
    won: bool = False
    gained: bool = False

    @classmethod
    def from_json(cls, value: object) -> Attempt:
        """Return the attempt that a JSON value holds.

        Raises:
            RecipeInvalid: it is none.
        """
        if not isinstance(value, dict):
            raise RecipeInvalid("an attempt is an object")
        score = value.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
            raise RecipeInvalid("a score is a number or null")
        return cls(
            Recipe.from_json(value.get("recipe")),
            None if score is None else float(score),
            won=value.get("won") is True,
            gained=value.get("gained") is True,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the attempt as a JSON object."""
        return {"recipe": self.recipe.to_json(), "score": self.score, "won": self.won, "gained": self.gained}


RETRIES = 3  # times that one recipe may be measured as a runner-up before it is given up


def spent(attempts: list[Attempt]) -> set[str]:
    """Return the keys that are not to be tried again: all that were, but for runners-up that gained."""
    last: dict[str, Attempt] = {}
    times: dict[str, int] = {}
    for attempt in attempts:
        last[attempt.recipe.key] = attempt
        times[attempt.recipe.key] = times.get(attempt.recipe.key, 0) + 1
    return {key for key, a in last.items() if a.won or not a.gained or times[key] >= RETRIES}
