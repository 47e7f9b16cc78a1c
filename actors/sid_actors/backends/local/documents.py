"""Where the numbers of a JSON or TOML document stand, so that one can be changed and all else kept.

A small scanner for each, checked against the standard library's reader: what the two do not agree on is left
alone.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from typing import Any

_JSON = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>-?[0-9][0-9.eE+-]*|true|false|null)|(?P<mark>[][{}:,])'
)
_TOML_HEADER = re.compile(r"[ \t]*\[(?P<many>\[)?(?P<name>[^\[\]]+)\]\]?[ \t]*(?:#.*)?$")
_TOML_NUMBER = re.compile(
    r"[ \t]*(?P<key>[^=#\[\]{}]+?)[ \t]*=[ \t]*(?P<number>[-+]?[0-9][0-9_]*(?:\.[0-9_]+)?(?:[eE][-+]?[0-9_]+)?)[ \t]*(?:#.*)?$"
)
_LARGEST, _LONGEST = 128 * 1024, 4096  # characters of a document, and of a line
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Span:
    """A number in a text: its name, where it stands (character offsets), how it is written, what it is."""

    symbol: str
    start: int
    end: int
    literal: str
    value: int | float


def quoted(key: str) -> str:
    """Return a key as a part of a dotted symbol."""
    return key if _BARE.fullmatch(key) else json.dumps(key)


def json_spans(text: str) -> list[Span]:
    """Return the numbers that are values of objects; none in arrays, which are data."""
    if not _is_settings(text):
        return []
    try:
        known = _numbers(json.loads(text))
    except (ValueError, RecursionError):
        return []
    stack: list[str | None] = []  # the key of each object around, None for an array
    spans: list[Span] = []
    key = ""
    for token in _JSON.finditer(text):
        mark = token["mark"]
        if token["text"] is not None:
            key = quoted(json.loads(token["text"]))
        elif mark in ("{", "["):
            stack.append(key if mark == "{" else None)
            key = ""
        elif mark in ("}", "]"):
            stack.pop()
        elif token["word"] is not None and stack and None not in stack:
            symbol = ".".join(part for part in (*stack, key) if part)
            if symbol in known and token["word"][0] in "-0123456789":
                spans.append(Span(symbol, *token.span(), token["word"], known[symbol]))
    return _once(spans)


def toml_spans(text: str) -> list[Span]:
    """Return the numbers that stand alone on a line `key = number`; none in arrays of tables."""
    if not _is_settings(text):
        return []
    try:
        known = _numbers(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return []
    spans: list[Span] = []
    table: str | None = ""
    start = 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        if header := _TOML_HEADER.match(bare):
            table = None if header["many"] else _dotted(header["name"])
        elif table is not None and (number := _TOML_NUMBER.match(bare)):
            key = _dotted(number["key"])
            symbol = f"{table}.{key}" if table else key
            written = number["number"].replace("_", "")
            if key and symbol in known and float(written) == known[symbol]:
                place = number.span("number")
                spans.append(
                    Span(symbol, start + place[0], start + place[1], number["number"], known[symbol])
                )
        start += len(line)
    return _once(spans)


def _is_settings(text: str) -> bool:
    """Return whether a document is small enough to be settings, and so for readers that take their time."""
    return len(text) <= _LARGEST and all(len(line) <= _LONGEST for line in text.splitlines())


def _dotted(name: str) -> str:
    parts = [part.strip() for part in name.split(".")]
    return ".".join(parts) if all(_BARE.fullmatch(part) for part in parts) else ""


def _numbers(value: Any) -> dict[str, int | float]:
    """Return the numbers of nested objects by their dotted keys."""
    found: dict[str, int | float] = {}
    stack = [("", value)]
    while stack:
        at, inner = stack.pop()
        if isinstance(inner, dict):
            stack += [(f"{at}.{quoted(key)}" if at else quoted(key), item) for key, item in inner.items()]
        elif at and isinstance(inner, (int, float)) and not isinstance(inner, bool) and math.isfinite(inner):
            found[at] = inner
    return found


def _once(spans: list[Span]) -> list[Span]:
    times = Counter(span.symbol for span in spans)
    return [span for span in spans if times[span.symbol] == 1]
