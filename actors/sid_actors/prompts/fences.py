"""Pieces of every prompt: foreign text in a fence that it cannot close, cut to a stated size; and the answer's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

TEXT_LIMIT = 8000
"""Characters of one text that is not ours: goal, brief, plan, a guard's output."""


def fenced(text: str, kind: str = "text") -> str:
    """Return text that is data inside a fence which it cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{clipped(text, TEXT_LIMIT)}\n{fence}"


def clipped(text: str, limit: int) -> str:
    """Return the text, its middle cut out and the cut told where it is longer than `limit` characters."""
    text = text.replace("\0", "").strip()
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n[... {len(text) - limit} characters cut ...]\n{text[-(limit // 2) :]}"


def within(lines: Iterable[str], limit: int, rest: str = "(older ones left out)") -> str:
    """Return the first lines that fit into `limit` characters, and `rest` where some do not."""
    kept: list[str] = []
    for line in lines:
        limit -= len(line) + 1
        if limit < 0:
            kept.append(rest)
            break
        kept.append(line)
    return "\n".join(kept)


def answer_part(schema: Mapping[str, Any]) -> str:
    """Return the part that asks for a document of a JSON Schema."""
    document = fenced(json.dumps(schema, separators=(",", ":")), "json")
    return (
        "Answer with one JSON document, as your whole output or in one fenced `json` block at its end. It must meet "
        f"this JSON Schema:\n\n{document}"
    )
