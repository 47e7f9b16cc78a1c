"""Lets one call warm a service's cache for the others: the first with a prompt's beginning goes ahead.

A service keeps the beginning of a prompt once it has begun to answer the first call with it. Planners begin at the same
time with the same long beginning; without this each of them would pay for writing it to the cache.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import trio

LEAD_S = 20.0
"""So long the others wait for the first one's answer to begin; a slow service is not to be waited for twice."""
KEPT = 64
"""So many beginnings are remembered."""


@dataclass(slots=True)
class Prefixes:
    """The beginnings that were sent to services of late."""

    _begun: dict[str, trio.Event] = field(default_factory=dict)

    async def lead(self, *words: str) -> trio.Event:
        """Wait while another call goes ahead with the same beginning.

        Args:
            words: What it is: model and text.

        Returns:
            What the caller sets once the service answers, or the call has failed.
        """
        key = hashlib.blake2b("\0".join(words).encode("utf-8", "replace"), digest_size=16).hexdigest()
        begun = self._begun.get(key)
        if begun is None:
            begun = self._begun[key] = trio.Event()
            for old in list(self._begun)[:-KEPT]:
                self._begun.pop(old).set()
            return begun
        with trio.move_on_after(LEAD_S):
            await begun.wait()
        return begun
