"""What in shared files steers the test tools: their pytest and tox sections, as parsed values. Pure.

`local` compares a candidate's with its base's, so that an honest new dependency or a reformatted file is none of
its business, and `addopts = "--deselect …"` is. The rule is the seal's (the wider harness set).
"""

from __future__ import annotations

import configparser
import posixpath
import tomllib
from collections.abc import Sequence

from sid_actors.workbench.checks.detectors import FileChange

SHARED = ("pyproject.toml", "setup.cfg", "tox.ini")
_LINE_LIMIT = 2000
"""Longest line that is parsed, in characters: both parsers take the square of it or more."""
_SECTIONS = ("pytest", "tool:pytest", "tox", "testenv", "gh-actions", "coverage")


def steered(changes: Sequence[FileChange], free: frozenset[str]) -> list[str]:
    """Return the shared files whose sections for test tools a candidate changed.

    Args:
        changes: What it changed.
        free: Paths that the user put in scope by name.
    """
    return [
        change.path
        for change in changes
        if posixpath.basename(change.path) in SHARED
        and change.path not in free
        and _sections(change.path, change.before) != _sections(change.path, change.after)
    ]


def _sections(path: str, text: str | None) -> object:
    if text is None:
        return {}
    if max(map(len, text.splitlines()), default=0) > _LINE_LIMIT:
        return _hidden(text)
    try:
        if path.endswith(".toml"):
            tools = tomllib.loads(text).get("tool", {})
            return {name: tools[name] for name in ("pytest", "tox") if name in tools}
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.read_string(text)
    except (ValueError, configparser.Error, RecursionError):  # an integer of 5000 digits is a ValueError, too
        return _hidden(text)
    return {
        name: dict(parser[name])
        for name in parser.sections()
        if name.split(":")[0] in _SECTIONS or name in _SECTIONS
    }


def _hidden(text: str) -> str:
    return f"does not parse: {text}"  # what is hidden in there cannot be known
