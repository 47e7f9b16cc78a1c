"""A model's reply, folded from the events of its stream; pure, and strict about where the stream ends.

The model back end feeds it one event after another. Events are the Messages API's; unknown ones are skipped,
since servers add kinds. A stream that ends without saying why the model stopped is half a reply, and no reply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sid_protocol.prices import Usage


class BrokenStreamError(Exception):
    """The stream is not one of this API, it ended in the middle, or its server said that it failed.

    Args:
        what: What is wrong.
        body: What the server said, as in an answer that is an error.
    """

    def __init__(self, what: str, body: dict[str, Any] | None = None) -> None:
        super().__init__(what)
        self.body = body


@dataclass(slots=True)
class Reply:
    """One reply, while it comes and when it is there.

    Attributes:
        model: The model that the server says it is.
        content: The finished blocks, as they are sent back in the next call.
        stop_reason: Why the model stopped; None while it has not.
        usage: Tokens, as far as the server has told.
        begun: Whether anything of it has come.
        ended: Whether the server said that this was all.
        written: Characters that came, for an estimate where the stream breaks.
        unreadable: Arguments of tool calls that are no JSON, by the call's id.
    """

    model: str = ""
    content: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    begun: bool = False
    ended: bool = False
    written: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    _open: dict[int, dict[str, Any]] = field(default_factory=dict)
    _pieces: dict[int, list[str]] = field(default_factory=dict)

    def feed(self, event: dict[str, Any]) -> str:
        """Take one event; returns the text that it added.

        Raises:
            BrokenStreamError: it does not fit what came before.
        """
        match event.get("type"):
            case "message_start":
                message = _object(event, "message")
                self.begun, self.model = True, str(message.get("model", ""))
                self._count(message.get("usage"))
            case "content_block_start":
                index = _index(event)
                self._open[index] = dict(_object(event, "content_block"))
                self._pieces[index] = []
            case "content_block_delta":
                return self._delta(_index(event), _object(event, "delta"))
            case "content_block_stop":
                self._close(_index(event))
            case "message_delta":
                delta = _object(event, "delta")
                if delta.get("stop_reason"):
                    self.stop_reason = str(delta["stop_reason"])
                self._count(event.get("usage"))
            case "message_stop":
                self.ended = True
            case "error":
                raise BrokenStreamError("the service ended the stream", event)
            case _:
                pass
        return ""

    def finish(self) -> None:
        """Check that the reply is whole.

        Raises:
            BrokenStreamError: the stream ended in the middle.
        """
        if self.stop_reason is None or self._open:
            raise BrokenStreamError("the stream ended in the middle of the reply")

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The tool calls, in order."""
        return [block for block in self.content if block.get("type") == "tool_use"]

    @property
    def used(self) -> Usage:
        """Tokens so far; of a stream that broke, what came is estimated where it is not told."""
        if not self.begun or self.stop_reason is not None:
            return self.usage
        told = self.usage
        output = max(told.output, self.written // 3)
        return Usage(
            input=told.input, cache_read=told.cache_read, cache_write=told.cache_write, output=output
        )

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        block = self._open.get(index)
        if block is None:
            raise BrokenStreamError(f"a piece of block {index}, which was not begun")
        for kind, key in (("text_delta", "text"), ("thinking_delta", "thinking")):
            if delta.get("type") == kind:
                piece = str(delta.get(key, ""))
                block[key] = str(block.get(key) or "") + piece
                self.written += len(piece)
                return piece
        if delta.get("type") == "input_json_delta":
            piece = str(delta.get("partial_json", ""))
            self._pieces[index].append(piece)
            self.written += len(piece)
        elif delta.get("type") == "signature_delta":
            block["signature"] = delta.get("signature", "")
        return ""

    def _close(self, index: int) -> None:
        block = self._open.pop(index, None)
        if block is None:
            raise BrokenStreamError(f"the end of block {index}, which was not begun")
        pieces = "".join(self._pieces.pop(index))
        if block.get("type") == "tool_use" and pieces:
            try:
                block["input"] = json.loads(pieces)
            except (ValueError, RecursionError):
                # The model's own fault (or cut by max_tokens): it is told so as the tool's result.
                block["input"] = {}
                self.unreadable[str(block.get("id", ""))] = pieces[:400]
        self.content.append({key: value for key, value in block.items() if value is not None})

    def _count(self, told: Any) -> None:
        if not isinstance(told, dict):
            return
        old = self.usage

        def number(key: str, known: int) -> int:
            value = told.get(key)
            return value if isinstance(value, int) and value >= 0 else known

        self.usage = Usage(
            input=number("input_tokens", old.input),
            cache_read=number("cache_read_input_tokens", old.cache_read),
            cache_write=number("cache_creation_input_tokens", old.cache_write),
            output=number("output_tokens", old.output),
        )


def _object(event: dict[str, Any], key: str) -> dict[str, Any]:
    value = event.get(key)
    if not isinstance(value, dict):
        raise BrokenStreamError(f"an event {event.get('type')!r} without its {key}")
    return value


def _index(event: dict[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise BrokenStreamError(f"an event {event.get('type')!r} without an index")
    return index
