"""What models cost: one dated table, which the daemon's own settings may override.

Read by the model back end before a call (what it may cost at most) and after it (what it cost). A model that
is not in it has no known price: then tokens are counted and money is not. Prices are the vendor's public list
for one request without batch or priority, in US dollars per million tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

AS_OF = "2026-10-10"
"""When the table was last compared with the vendor's list."""

_DATED = re.compile(r"-(?:\d{8}|latest)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call.

    Attributes:
        input: Neither read from a cache nor written to one.
        cache_read: Read from a cache.
        cache_write: Written to a cache.
        output: Everything the model wrote, its thinking too.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def read(self) -> int:
        """All that went in."""
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars per million tokens.

    Attributes:
        long_from: A prompt of more tokens than this costs `long_factor` times as much, output too.
    """

    input: float
    output: float
    cache_read: float
    cache_write: float
    long_from: int | None = None
    long_factor: float = 1.0

    def usd(self, usage: Usage) -> float:
        """Return what a call cost."""
        factor = self._factor(usage.read)
        dollars = (
            usage.input * self.input
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
            + usage.output * self.output
        )
        return factor * dollars / 1e6

    def at_most(self, tokens: int) -> float:
        """Return what a prompt of so many tokens costs at most: all of it written to a cache."""
        return self._factor(tokens) * tokens * max(self.input, self.cache_write) / 1e6

    def per_output(self, tokens: int) -> float:
        """Return what one token of output costs after a prompt of so many tokens."""
        return self._factor(tokens) * self.output / 1e6

    def _factor(self, tokens: int) -> float:
        return self.long_factor if self.long_from is not None and tokens > self.long_from else 1.0


def _price(base: float, output: float, read: float) -> Price:
    """Return a price whose cache writes cost a quarter more than what is only read."""
    return Price(input=base, output=output, cache_read=read, cache_write=1.25 * base)


_TOP = _price(10, 50, 1)
_OPUS = _price(5, 25, 0.5)
_SONNET = _price(3, 15, 0.3)
PRICES: Mapping[str, Price] = {
    "claude-fable-5-1": _price(10, 50, 0.25),
    "claude-mythos-5-1": _price(10, 50, 0.25),
    "claude-fable-5": _TOP,
    "claude-mythos-5": _TOP,
    "claude-opus-5-5": _price(4, 20, 0.2),
    "claude-opus-5": _OPUS,
    "claude-opus-4-8": _OPUS,
    "claude-opus-4-7": _OPUS,
    "claude-opus-4-6": _OPUS,
    "claude-opus-4-5": _OPUS,
    "claude-sonnet-5-5": _price(2, 10, 0.2),
    "claude-sonnet-5": _price(2, 10, 0.2),
    "claude-sonnet-4-6": _SONNET,
    "claude-sonnet-4-5": _SONNET,
    "claude-haiku-5-5": Price(
        input=0.1, output=0.5, cache_read=0.01, cache_write=0.125, long_from=100_000, long_factor=5
    ),
    "claude-haiku-4-5": _price(1, 5, 0.1),
}


def price_of(model: str, own: Mapping[str, Price] | None = None) -> Price | None:
    """Return a model's price; None where it is not known.

    Args:
        model: Its id, with or without a date at its end.
        own: The user's prices, which count first.
    """
    plain = _DATED.sub("", model)
    for table in (own or {}, PRICES):
        found = table.get(model) or table.get(plain)
        if found is not None:
            return found
    return None
