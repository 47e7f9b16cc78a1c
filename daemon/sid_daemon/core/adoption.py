"""Which settings a run has taken that nobody announced: edits of `settings.json` by hand.

A change through `sictl` is an event when it is made and takes effect later; an edit by hand is found when the settings are
read. Both must be on record once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sid_protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Change:
    """One setting: its dotted key, what it was and what it is."""

    key: str
    old: Any
    new: Any


def announced(expected: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return what is expected of the next reading, after one more change through `sictl`.

    Args:
        expected: Dotted leaf → value, of the changes announced so far.
        key: The changed setting, dotted; an object or a single value.
        value: What it is now.
    """
    kept = {leaf: one for leaf, one in expected.items() if not f"{leaf}.".startswith(f"{key}.")}
    return {**kept, **_leaves(key, value)}


def by_hand(old: Settings, new: Settings, expected: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the settings that differ and that no announced change explains, in the settings' order."""
    if old == new:
        return ()
    before, after = (_leaves("", one.model_dump(mode="json")) for one in (old, new))
    keys = [*after, *(key for key in before if key not in after)]
    found = (Change(key, before.get(key), after.get(key)) for key in keys)
    unknown = object()
    return tuple(one for one in found if one.old != one.new and expected.get(one.key, unknown) != one.new)


def _leaves(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value:
        return {key: value}
    found: dict[str, Any] = {}
    for name, one in value.items():
        found |= _leaves(f"{key}.{name}" if key else str(name), one)
    return found
