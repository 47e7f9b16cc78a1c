"""The moments that `--since` understands, and which records are older than one.

Pure; used by `attach`, `start --wait` and `demo`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sid_protocol.errors import UsageError

_SPAN = re.compile(r"(\d+)\s*([smhd])")
_DIGITS = 18
"""More than a cursor ever has; Python reads no number of thousands of digits."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_since(text: str, now: datetime) -> int | datetime:
    """Read `--since`: a cursor, a span before now (`10m`, `2h`, `1h30m`), or an ISO 8601 time.

    Args:
        text: What was typed.
        now: The present, with its time zone.

    Raises:
        UsageError: it is none of these.
    """
    plain = text.strip()
    if plain.isascii() and plain.isdigit() and len(plain) <= _DIGITS:
        return int(plain)
    if re.fullmatch(rf"(?:{_SPAN.pattern}\s*)+", plain):
        spans = {_UNITS[unit]: 0.0 for _, unit in _SPAN.findall(plain)}
        for amount, unit in _SPAN.findall(plain):
            spans[_UNITS[unit]] += float(amount)
        try:
            return now - timedelta(**spans)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        raise UsageError(
            f"--since {text[:80]!r} is neither a cursor nor a time",
            hint="such as 1250, 10m, 2h or 2026-03-01T12:00",
        ) from None
    return moment if moment.tzinfo else moment.astimezone()


def is_before(record: Mapping[str, Any], moment: datetime) -> bool:
    """Say whether a record is older than a moment; one without a readable time is not."""
    try:
        return datetime.fromisoformat(str(record.get("timestamp", ""))) < moment
    except (ValueError, TypeError):
        return False
