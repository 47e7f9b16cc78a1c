"""The shapes of the events that programs print: which line is one, what in it is a tool call, a text, a figure.

`stream` asks. Pure: programs print such streams in shapes of their own and rename fields between versions, so each look
tries all names that are known and takes what is absent as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_DEPTH = 12
_TOOL_TYPES = frozenset(
    {
        "tool",
        "tool_use",
        "tool_call",
        "function_call",
        "custom_tool_call",
        "server_tool_use",
        "mcp_tool_call",
        "command_execution",
        "file_change",
        "web_search",
        "exec_command_begin",
        "patch_apply_begin",
    }
)
RESULT_TYPES = frozenset({"tool_result", "function_call_output", "tool_call_output", "exec_command_end"})


def event_of(line: str) -> dict[str, Any] | None:
    """Return the line as an event: a JSON object with a `type` (or an inner `msg` that has one)."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    inner = value.get("msg")
    holder = inner if isinstance(inner, dict) else value
    return value if isinstance(holder.get("type"), str) else None


def nodes(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the objects of an event from the outside in, but not what a tool was given or gave."""
    level: list[Any] = [event]
    for _ in range(_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, list):
                inner.extend(value)
            elif isinstance(value, dict):
                yield value
                if not is_tool(value) and text_of(value, "type", "kind") not in RESULT_TYPES:
                    keys = ("message", "content", "item", "part", "msg", "delta", "data", "event", "payload")
                    inner.extend(value[key] for key in keys if isinstance(value.get(key), dict | list))
        level = inner


def is_tool(node: dict[str, Any]) -> bool:
    """Whether the object is a tool call, and not an event around one."""
    return text_of(node, "type", "kind") in _TOOL_TYPES and not isinstance(node.get("part"), dict)


def text_of(node: dict[str, Any], *keys: str) -> str:
    """Return the first of the keys that holds a non-empty string."""
    for key in keys:
        value = node.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def flat_text(value: Any) -> str:
    """Return the text of a tool's result, which is a string or a list of text blocks."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(text_of(item, "text", "content") for item in value if isinstance(item, dict))
    return text_of(value, "text", "output", "content", "stdout") if isinstance(value, dict) else ""


def number_of(node: dict[str, Any], *keys: str) -> float | None:
    """Return the first of the keys that holds a number that a count or a price can be."""
    for key in keys:
        value = node.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
            return value
    return None


def tokens_of(usage: dict[str, Any]) -> dict[str, float]:
    """Return the tokens in and out; what was read from or written to a cache went in, too, and thoughts went out."""
    cache = usage.get("cache")
    kept = cache if isinstance(cache, dict) else {}
    read = [
        number_of(usage, "input_tokens", "prompt_tokens", "input", "inputTokens"),
        number_of(usage, "cache_creation_input_tokens"),
        number_of(usage, "cache_read_input_tokens"),
        number_of(kept, "write"),
        number_of(kept, "read"),
    ]
    # Elsewhere thoughts are part of the output.
    written = [
        number_of(usage, "output_tokens", "completion_tokens", "output", "outputTokens"),
        number_of(usage, "reasoning"),
    ]
    sums = {
        name: [part for part in parts if part is not None]
        for name, parts in (("input", read), ("output", written))
    }
    return {name: sum(known) for name, known in sums.items() if known}
