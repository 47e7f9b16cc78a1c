"""Which paths a scope means: globs with `**`, a trailing `/` for a whole directory, exact paths."""

from __future__ import annotations

import re
from collections.abc import Iterable


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a relative path is meant by any of the patterns."""
    return any(re.fullmatch(_regex(pattern), path) for pattern in patterns)


def _regex(pattern: str) -> str:
    if pattern.endswith("/"):
        pattern += "**"
    parts: list[str] = []
    rest = pattern.removeprefix("./")
    while rest:
        if rest.startswith("**/"):
            parts.append("(?:.*/)?")
            rest = rest[3:]
        elif rest.startswith("**"):
            parts.append(".*")
            rest = rest[2:]
        elif rest[0] in "*?":
            parts.append("[^/]*" if rest[0] == "*" else "[^/]")
            rest = rest[1:]
        elif rest[0] == "[" and (end := rest.find("]", 2)) > 0:
            inner = rest[1:end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append("[^" + inner[1:] + "]" if inner[0] == "!" else "[" + inner.replace("^", "\\^") + "]")
            rest = rest[end + 1 :]
        else:
            parts.append(re.escape(rest[0]))
            rest = rest[1:]
    return "".join(parts)
