"""The messages of one turn with a model: what is sent, what is marked for the cache, what is left out again.

The model back end keeps one a turn. Every request repeats all that was said, so the end of it is marked for the
service's cache; results of tools that are long past are left out before the model's window is full.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sid_actors.backends.model.reply import Reply

LEFT_OUT = "[left out to save room; look again if you need it]"
_CACHED = {"type": "ephemeral"}
_HALVES = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class Conversation:
    """One conversation.

    Attributes:
        system: The standing rules.
        tools: What the model may call, definitions of the API.
        messages: All messages so far.
    """

    system: str
    tools: Sequence[dict[str, Any]]
    messages: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, prompt: str, shared: int) -> None:
        """Add the turn's prompt; its first `shared` characters are the same for other turns, and marked as such."""
        common, own = prompt[:shared], prompt[shared:]
        if common.strip() and own.strip():
            self._ours([{"type": "text", "text": common, "cache_control": _CACHED}])
            self.say(own)
        else:
            self.say(prompt)

    def say(self, text: str) -> None:
        """Add a text of ours."""
        self._ours([{"type": "text", "text": text}])

    def results(self, results: Sequence[dict[str, Any]]) -> None:
        """Add the results of tool calls, which must follow the reply that made them."""
        self._ours(list(results))

    def heard(self, reply: Reply) -> None:
        """Add the model's reply; the API takes no empty text back."""
        content = [
            block
            for block in reply.content
            if block.get("type") != "text" or str(block.get("text", "")).strip()
        ]
        self.messages.append(
            {"role": "assistant", "content": _sendable(content) or [{"type": "text", "text": "(nothing)"}]}
        )

    def request(self, choice: dict[str, Any]) -> dict[str, Any]:
        """Return what the next call sends, with everything in it marked as worth keeping in a cache.

        Args:
            choice: Which tools the model may or must call.
        """
        *past, last = self.messages
        *blocks, final = last["content"]
        marked = {**last, "content": [*blocks, {**final, "cache_control": _CACHED}]}
        return {
            "system": [{"type": "text", "text": self.system, "cache_control": _CACHED}],
            "tools": list(self.tools),
            "tool_choice": choice,
            "messages": [*past, marked],
        }

    def shorten(self, keep: int) -> int:
        """Leave out the oldest results of tools; returns how many.

        Args:
            keep: Characters of results, newest first, that stay.
        """
        dropped = 0
        for message in reversed(self.messages):
            if message["role"] != "user":
                continue
            for block in reversed(message["content"]):
                if block.get("type") != "tool_result" or block["content"] == LEFT_OUT:
                    continue
                keep -= len(block["content"])
                if keep < 0:
                    block["content"] = LEFT_OUT
                    dropped += 1
        return dropped

    @property
    def size(self) -> int:
        """Characters of results that are still in it."""
        return sum(
            len(block["content"])
            for message in self.messages
            for block in message["content"]
            if message["role"] == "user" and block.get("type") == "tool_result"
        )

    def _ours(self, blocks: list[dict[str, Any]]) -> None:
        blocks = _sendable(blocks)
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"].extend(blocks)  # roles take turns
        else:
            self.messages.append({"role": "user", "content": blocks})


def result(call: dict[str, Any], text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return the result of a tool call as the API takes it."""
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": call.get("id", ""),
        "content": text or "(nothing)",
    }
    return block | ({"is_error": True} if is_error else {})


def _sendable(value: Any) -> Any:
    """Return a JSON value whose texts can be sent: bytes of a file that are no UTF-8 become U+FFFD."""
    match value:
        case str():
            return value if value.isascii() else _HALVES.sub("\ufffd", value)
        case list():
            return [_sendable(one) for one in value]
        case dict():
            return {_sendable(key): _sendable(one) for key, one in value.items()}
        case _:
            return value
