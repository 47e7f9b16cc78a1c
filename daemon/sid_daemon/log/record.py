"""A log record on its way to the log: its level, its name, its fields; the log adds time, run and cursor."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from sid_protocol.log_levels import LogLevel


class LogRecord(NamedTuple):
    """One record, not logged yet.

    Attributes:
        level: How grave it is.
        event: Its name, which is a promise.
        fields: Flat, in the order in which they are shown.
    """

    level: LogLevel
    event: str
    fields: dict[str, Any]


class Emit(Protocol):
    """Logs one record."""

    def __call__(self, level: LogLevel, event: str, /, **fields: Any) -> None:
        """Log it; from any thread, never waits."""
