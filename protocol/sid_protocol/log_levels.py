"""How grave a log record is: the names, and their order. Standard library alone; used by daemon and command line."""

from __future__ import annotations

from typing import Literal, get_args

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""From the least to the gravest."""
