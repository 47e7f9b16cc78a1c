"""Paths inside a repository: which are well-formed, and which a pattern covers.

Pure string functions, shared by the rules on plans, the seal and the scope, so that all three mean the
same by a pattern: an exact path, a folder with a trailing `/`, or a glob in which `*` and `?` stay
inside one folder and `**` crosses folders.
"""

from __future__ import annotations

import re
from functools import lru_cache


def path_fault(path: str) -> str | None:
    """Say in a few words why a path of a plan is not a plain path inside the repository; None if it is."""
    if not path or path != path.strip():
        return "is empty or has blanks around it"
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "has control characters"
    if path.startswith(("/", "~")) or re.match(r"^[A-Za-z]:[\\/]", path):
        return "is absolute"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return "leaves the repository"
    if any(part.lower() == ".git" for part in parts):
        return "is git's own"
    if parts[:1] == [".sid"] or parts[:2] == [".omc", "self-improve"]:
        return "belongs to the record of runs"
    return None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    regex = ""
    index = 0
    while index < len(pattern):
        if pattern.startswith("**/", index):
            regex, index = f"{regex}(?:.*/)?", index + 3
        elif pattern.startswith("**", index):
            regex, index = f"{regex}.*", index + 2
        elif pattern[index] == "*":
            regex, index = f"{regex}[^/]*", index + 1
        elif pattern[index] == "?":
            regex, index = f"{regex}[^/]", index + 1
        else:
            regex, index = regex + re.escape(pattern[index]), index + 1
    return re.compile(regex, re.DOTALL)


def matches(path: str, pattern: str) -> bool:
    """Say whether a pattern covers a path; both relative to the repository, `/` between folders.

    >>> matches("a/b.py", "**"), matches("a/b.py", "a/"), matches("a/b.py", "*.py")
    (True, True, False)
    """
    plain = pattern.removeprefix("./")
    if plain.endswith("/"):
        plain += "**"
    return _compiled(plain).fullmatch(path.removeprefix("./")) is not None


def covered(path: str, patterns: tuple[str, ...] | list[str]) -> str | None:
    """Return the first pattern that covers a path, or None."""
    return next((pattern for pattern in patterns if matches(path, pattern)), None)
