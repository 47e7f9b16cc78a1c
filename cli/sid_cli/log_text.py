"""A log record as a line of text, and the spans of time that `--since` understands.

Pure; used by `attach`, `status`, `start --wait` and `demo`. Standard library alone. Values come from agents and
programs, so every one is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sid_cli.color import Paint
from sid_cli.text import clean, number, time_of_day
from sid_protocol.errors import UsageError

_HEAD = ("timestamp", "level", "event", "run_id", "iteration", "step", "actor", "candidate", "logger")
_GRAVE = ("warning", "error", "critical")
_SPAN = re.compile(r"(\d+)\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_GOOD_EVENTS = ("merged", "plan_approved")
_BAD_EVENTS = ("force_kill", "plan_rejected")
VALUE_LIMIT = 300
"""Characters of one value that a line shows; `--json` has the whole."""


def log_line(record: Mapping[str, Any], paint: Paint) -> str:
    """Return `12:03:41 r7 executor_2 benchmark_finished score=812.4`."""
    return f"{paint(time_of_day(str(record.get('timestamp', ''))), 'dim')} {log_body(record, paint)}"


def log_body(record: Mapping[str, Any], paint: Paint) -> str:
    """Return a record's line without its time, so that equal ones can be told."""
    event, level = clean(record.get("event", "")), str(record.get("level", "info"))
    parts = []
    if record.get("iteration") is not None:
        parts.append(f"r{clean(record['iteration'])}")
    if who := record.get("actor") or record.get("candidate"):
        parts.append(clean(who))
    parts.append(paint(event, *_styles(event, level)))
    if level in _GRAVE:
        parts.append(f"level={level}")
    parts += [
        f"{clean(key)}={_value(value)}"
        for key, value in record.items()
        if key not in _HEAD and value is not None
    ]
    return " ".join(parts)


def _styles(event: str, level: str) -> tuple[str, ...]:
    if level in _GRAVE:
        return ("yellow",) if level == "warning" else ("red", "bold")
    if event in _GOOD_EVENTS:
        return ("green",)
    return ("yellow",) if event in _BAD_EVENTS else ()


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{clean(key)}:{_value(item)}" for key, item in value.items()) + "}"
    text = clean(value)
    text = text if len(text) <= VALUE_LIMIT else f"{text[: VALUE_LIMIT - 3]}..."
    plain = text != "" and not any(mark in text for mark in ' "=,[]{}')
    return text if plain else '"' + text.replace('"', "'") + '"'


def parse_since(text: str, now: datetime) -> int | datetime:
    """Read `--since`: a cursor, a span before now (`10m`, `2h`, `1h30m`), or an ISO 8601 time.

    Args:
        text: What was typed.
        now: The present, with its time zone.

    Raises:
        UsageError: it is none of these.
    """
    plain = text.strip()
    if plain.isascii() and plain.isdigit():
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
            f"--since {text!r} is neither a cursor nor a time",
            hint="such as 1250, 10m, 2h or 2026-03-01T12:00",
        ) from None
    return moment if moment.tzinfo else moment.astimezone()


def is_before(record: Mapping[str, Any], moment: datetime) -> bool:
    """Say whether a record is older than a moment; one without a readable time is not."""
    try:
        return datetime.fromisoformat(str(record.get("timestamp", ""))) < moment
    except (ValueError, TypeError):
        return False
