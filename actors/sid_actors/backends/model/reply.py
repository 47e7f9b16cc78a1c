"""A model's reply, folded from the events of its stream; pure, and strict about where the stream ends.

The model back end feeds it one event after another. Events are the Messages API's; unknown ones are skipped,
since servers add kinds. A stream that ends without saying why the model stopped is half a reply, and no reply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sid_actors.backends.parse import too_deep
from sid_protocol.prices import Usage

MOST_TOKENS = 10**9
"""A count of tokens above this is no count of one call."""
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class BrokenStreamError(Exception):
    """The stream is not one of this API, it ended in the middle, or its server said that it failed.

    Args:
        what: What is wrong.
        body: What the server said, as in an answer that is an error.
    """

    def __init__(self, what: str, body: dict[str, Any] | None = None) -> None:
        super().__init__(what)
        self.body = body


class ForeignAnswerError(BrokenStreamError):
    """What came is no stream of this API at all."""


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
    _pieces: dict[int, dict[str, list[str]]] = field(default_factory=dict)
    _output_told: bool = False

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
                self._pieces[index] = {}
            case "content_block_delta":
                return self._delta(_index(event), _object(event, "delta"))
            case "content_block_stop":
                self._close(_index(event))
            case "message_delta":
                delta = _object(event, "delta")
                if delta.get("stop_reason"):
                    self.stop_reason = str(delta["stop_reason"])
                self._count(event.get("usage"), final=True)
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

    def used(self, prompt: int, most: int) -> Usage:
        """Return the tokens of the call; what the server has not told is estimated, once anything of it has come.

        Args:
            prompt: Tokens of the prompt, at most.
            most: Tokens that it was allowed to write.
        """
        told = self.usage
        return Usage(
            input=told.input if told.read or not self.begun else prompt,
            cache_read=told.cache_read,
            cache_write=told.cache_write,
            output=told.output if self._output_told else max(told.output, min(self.written // 3, most)),
        )

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        block = self._open.get(index)
        if block is None:
            raise BrokenStreamError(f"a piece of block {index}, which was not begun")
        key = _DELTAS.get(str(delta.get("type")))
        if key is not None:
            piece = str(delta.get(key, ""))
            self._pieces[index].setdefault(key, []).append(piece)
            self.written += len(piece)
            return piece if key != "partial_json" else ""
        if delta.get("type") == "signature_delta":
            block["signature"] = delta.get("signature", "")
        return ""

    def _close(self, index: int) -> None:
        block = self._open.pop(index, None)
        if block is None:
            raise BrokenStreamError(f"the end of block {index}, which was not begun")
        pieces = {key: "".join(some) for key, some in self._pieces.pop(index).items()}
        for key in ("text", "thinking"):
            if key in pieces:
                block[key] = _whole(str(block.get(key) or "") + pieces[key])
        arguments = pieces.get("partial_json", "")
        if block.get("type") == "tool_use" and arguments:
            block["input"] = self._read(str(block.get("id", "")), arguments)
        self.content.append({key: value for key, value in block.items() if value is not None})

    def _read(self, call: str, arguments: str) -> Any:
        """Return the arguments of a tool call; those that cannot be read are noted, and none."""
        try:
            value = json.loads(arguments)
            if isinstance(value, dict) and not too_deep(value):
                json.dumps(value, allow_nan=False)  # it goes back with the next call
                return value
        except (ValueError, RecursionError):
            pass
        # The model's own fault (or cut by max_tokens): it is told so as the tool's result.
        self.unreadable[call] = arguments[:400]
        return {}

    def _count(self, told: Any, *, final: bool = False) -> None:
        if not isinstance(told, dict):
            return
        old = self.usage

        def number(key: str, known: int) -> int:
            return told[key] if _is_count(told.get(key)) else known

        self._output_told |= final and _is_count(told.get("output_tokens"))
        self.usage = Usage(
            input=number("input_tokens", old.input),
            cache_read=number("cache_read_input_tokens", old.cache_read),
            cache_write=number("cache_creation_input_tokens", old.cache_write),
            output=number("output_tokens", old.output),
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def _whole(text: str) -> str:
    """Join characters that the server has cut into two halves, each in a piece of its own."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


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
