"""The daemon's wall clock: the one place that asks what time it is, for events and records."""

from __future__ import annotations

from datetime import UTC, datetime


def now_iso() -> str:
    """Return the time now, ISO 8601 UTC with microseconds, for example `2026-01-31T12:00:00.000000Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
