"""Finds the last match of a pattern: what the process runs that `searching` starts. Pure, and standard library only."""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Match:
    """The last match of a pattern: its first group (None where that took no part), and the lines that it lies in."""

    group: str | None
    lines: str


def find(pattern: str, text: str) -> Match | None:
    """Return the last match in a text, or None; takes as long as it takes."""
    matches = deque(re.finditer(pattern, text, re.MULTILINE), maxlen=1)
    if not matches:
        return None
    start, end = text.rfind("\n", 0, matches[0].start()) + 1, text.find("\n", matches[0].end())
    return Match(matches[0].group(1), text[start : end if end >= 0 else None])


def asked(pattern: str, text: str) -> bytes:
    """Return what the process reads: the pattern as a line of JSON, then the text."""
    return json.dumps(pattern).encode() + b"\n" + text.encode("utf-8", "replace")


def told(answer: bytes) -> Match | None:
    """Return what the process found, from what it printed."""
    fields = json.loads(answer)
    return None if fields is None else Match(**fields)


def serve(stdin: BinaryIO) -> str:
    """Return the answer to what is asked."""
    line, _, text = stdin.read().partition(b"\n")
    found = find(json.loads(line), text.decode("utf-8"))
    return json.dumps(found and {"group": found.group, "lines": found.lines})


if __name__ == "__main__":
    sys.stdout.write(serve(sys.stdin.buffer))
