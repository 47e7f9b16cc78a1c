"""A model's reply, folded from its stream: what is estimated, what is unreadable, where a stream is cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sid_actors.backends.model.reply import BrokenStreamError, Reply
from sid_actors.backends.model.sse import STREAM_LIMIT, EventReader
from sid_protocol.prices import PRICES, Usage


def fold(
    *deltas: dict[str, Any], block: dict[str, Any] | None = None, first: Any = None, last: Any = None
) -> Reply:
    """Return the reply of one block; `first` and `last` are the usage in its first and its last event."""
    reply = Reply()
    reply.feed({"type": "message_start", "message": {"model": "m", "usage": first}})
    reply.feed({"type": "content_block_start", "index": 0, "content_block": block or {"type": "text"}})
    for delta in deltas:
        reply.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    reply.feed({"type": "content_block_stop", "index": 0})
    reply.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last})
    return reply


def words(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def called(arguments: str) -> Reply:
    return fold(
        {"type": "input_json_delta", "partial_json": arguments},
        block={"type": "tool_use", "id": "t1", "name": "view", "input": {}},
    )


@pytest.mark.parametrize(
    ("first", "last", "counted"),
    [
        ({"input_tokens": 7, "output_tokens": 1}, {"output_tokens": 9}, Usage(input=7, output=9)),
        ({"input_tokens": 0}, {"input_tokens": 7, "output_tokens": 9}, Usage(input=7, output=9)),
        ({"cache_read_input_tokens": 7}, {"output_tokens": 0}, Usage(cache_read=7)),
        (None, None, Usage(input=500, output=100)),
        ({"input_tokens": 10**400, "output_tokens": 1}, {"output_tokens": -3}, Usage(input=500, output=100)),
        ({"input_tokens": "7"}, {"output_tokens": True}, Usage(input=500, output=100)),
    ],
)
def test_what_a_service_does_not_count_is_estimated(first: Any, last: Any, counted: Usage) -> None:
    used = fold(words("x" * 300), first=first, last=last).used(prompt=500, most=1000)
    assert used == counted
    assert PRICES["claude-sonnet-5-5"].usd(used) < 1


def test_no_estimate_passes_what_was_set_aside() -> None:
    assert fold(words("x" * 30_000)).used(prompt=500, most=1000) == Usage(input=500, output=1000)
    assert Reply().used(prompt=500, most=1000) == Usage()


def test_a_character_in_two_halves_is_one_and_half_of_one_can_be_sent() -> None:
    reply = fold(words("a \ud83c"), words("\udf89 b \ud83c"))
    assert reply.text == "a \N{PARTY POPPER} b \ufffd"


@pytest.mark.parametrize(
    "arguments",
    ['{"a": NaN}', '{"a": 1e999}', "[1]", '"a"', '{"a": ' + "[" * 200 + "]" * 200 + "}", '{"a": '],
)
def test_arguments_that_no_service_takes_back_are_unreadable(arguments: str) -> None:
    reply = called(arguments)
    assert list(reply.unreadable) == ["t1"]
    assert reply.tool_calls[0]["input"] == {}


def test_a_stream_without_an_end_is_cut_off() -> None:
    events, reply = EventReader(), Reply()
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    delta = {"type": "content_block_delta", "index": 0, "delta": words("y" * 60_000)}
    piece = f"data: {json.dumps(delta)}\n\n".encode()
    reply.feed(start)
    with pytest.raises(BrokenStreamError, match="longer than any reply"):
        for _ in range(2 * STREAM_LIMIT // len(piece)):
            for event in events.feed(piece):
                reply.feed(event)
