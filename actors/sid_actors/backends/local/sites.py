"""One place where a transformation of the catalogue applies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a transformation applies, and the edit that carries it out.

    Attributes:
        symbol: The function that would change, qualified.
        text: What the change rests on, as it is written; another text is another site.
        what: What is changed, for a title: a noun phrase.
        change: What is put there instead, one clause that starts with a verb.
        edit: Makes the module after the change.
        depth: How many loops repeat the place.
        promise: How much of the cost at the place a change like this takes away, 0 to 1.
    """

    symbol: str
    text: str
    what: str
    change: str
    edit: Callable[[], cst.Module]
    depth: int = 0
    promise: float = 0.5

    @property
    def digest(self) -> str:
        """A short hash of the text; equal texts are equal sites."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


class NotHere(Exception):
    """The edit turned out to be impossible here; the message says why."""
