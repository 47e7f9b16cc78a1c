"""Coins and shuffles that a journal can replay: a choice is a hash of a seed and its place.

The test of `evidence` is valid because a coin decides which arm of a pair runs first, and the rule
of the house is that dice are inputs: no global generator, no hidden state, the same answer for the
same seed and place on any machine and after any restart. A keyed hash gives exactly that. BLAKE2b
(RFC 7693) is in the standard library and passes every statistical test of randomness; no secrecy
is needed, only that no benchmark's noise can follow the sequence.

Called by the flows of one round (`noisy`). Never keeps state, never reads a clock.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


def word(seed: int, *place: int | str) -> int:
    """Return 64 evenly distributed bits for this place of the sequence.

    Args:
        seed: The run's seed.
        place: What the choice is for, for example iteration, stage, pair number, attempt.

    Returns:
        An integer from 0 to 2**64 - 1; the same for the same arguments, always.
    """
    text = "\x1f".join(str(part) for part in (seed, *place))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def coin(seed: int, *place: int | str) -> bool:
    """Return a fair coin flip for this place."""
    return bool(word(seed, *place) & 1)


def shuffled(items: tuple[T, ...], seed: int, *place: int | str) -> tuple[T, ...]:
    """Return the items in a random order: each is sorted by its own 64 bits for this place.

    Args:
        items: What to shuffle; may hold equal items.
        seed: The run's seed.
        place: What the shuffle is for.

    Returns:
        The same items, every order as likely as another (up to collisions, one in 2**64).
    """
    keys = sorted((word(seed, *place, index), index) for index in range(len(items)))
    return tuple(items[index] for _, index in keys)
