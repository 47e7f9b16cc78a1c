"""Path patterns of the settings: `sealed_files`, `scope.include`, `scope.exclude`. Pure.

They read as `.gitignore` does, which users know: a pattern without a slash matches at any depth, one with a
slash from the top of the repository, `*` stays within a folder, `**` crosses folders, and what matches a
folder holds for everything below it. Paths are relative, with `/`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a relative path, or a folder that it lies in, matches one of the patterns."""
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


def covers(folder: str, patterns: Iterable[str]) -> bool:
    """Whether the patterns match whatever could lie in a folder."""
    return matches(f"{folder}/\0", patterns)  # no pattern names this file, only one for the whole folder fits


def fold(path: str) -> str:
    """Return the form in which two names are the same file on a system that ignores case and composition."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def literal(pattern: str) -> str:
    """Return a pattern as the exact path that it names: without `./` and `/` around it."""
    return pattern.strip().removeprefix("./").strip("/")


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    body = pattern.strip().removeprefix("./")
    folder_only = body.endswith(("/", "/**"))
    while body.endswith(("/", "/**")):
        body = body.removesuffix("**").rstrip("/")
    anchored = "/" in body
    body = body.lstrip("/")
    if not body:
        return re.compile(r".*" if folder_only else r"(?!)", re.DOTALL)
    start = "" if anchored else r"(?:[^/]+/)*"
    end = r"/.+" if folder_only else r"(?:/.*)?"
    return re.compile(start + _translated(body) + end, re.DOTALL)


def _translated(body: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(body):
        if body.startswith("**/", at) and (at == 0 or body[at - 1] == "/"):
            parts.append(r"(?:[^/]+/)*")
            at += 3
        elif body.startswith("**", at):
            parts.append(r".*")
            at += 2
        elif body[at] == "*":
            parts.append(r"[^/]*")
            at += 1
        elif body[at] == "?":
            parts.append(r"[^/]")
            at += 1
        elif body[at] == "[" and (end := body.find("]", at + 2)) > 0:
            parts.append(_character_class(body[at + 1 : end]))
            at = end + 1
        else:
            at += body[at] == "\\" and at + 1 < len(body)
            parts.append(re.escape(body[at]))
            at += 1
    return "".join(parts)


def _character_class(inner: str) -> str:
    negated = inner[0] in "!^"
    escaped = "".join(c if c == "-" else re.escape(c) for c in inner[negated:])
    text = f"[{'^' if negated else ''}{escaped}]"
    try:
        re.compile(text)
    except re.error:
        return re.escape(f"[{inner}]")
    return f"(?!/){text}"
