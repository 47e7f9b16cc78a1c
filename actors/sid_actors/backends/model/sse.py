"""Server-sent events, from bytes that come in any pieces; pure, and bounded.

The model back end reads a stream of the Messages API with it. Only what that API uses is kept of an event: its
data, one JSON object.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sid_actors.backends.model.reply import BrokenStreamError

EVENT_LIMIT = 4 << 20
"""Longest event that is read, in characters."""
STREAM_LIMIT = 32 << 20
"""Longest stream that is read, in bytes: several times the longest reply, in the smallest pieces."""

_TOLD = 4000
"""Characters of a broken event that an error keeps: more than is shown, so that a secret in it is still whole."""


@dataclass(slots=True)
class EventReader:
    """Reads one stream."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _partial: str = ""
    _data: list[str] = field(default_factory=list)
    _read: int = 0

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Take the next bytes and yield the events that are whole with them.

        Raises:
            BrokenStreamError: an event's data is no JSON object, or it or the stream is too long.
        """
        self._read += len(chunk)
        if self._read > STREAM_LIMIT:
            raise BrokenStreamError("the stream is longer than any reply")
        text = self._partial + self._decoder.decode(chunk)
        *lines, self._partial = text.split("\n")
        if len(self._partial) + sum(map(len, self._data)) > EVENT_LIMIT:
            raise BrokenStreamError("an event is longer than any of this API")
        for line in lines:
            line = line.removesuffix("\r")  # noqa: PLW2901 -- the same line, without its end
            if line.startswith("data:"):
                self._data.append(line[5:].removeprefix(" "))
            elif not line and self._data:
                data, self._data = "\n".join(self._data), []
                yield _object(data)


def _object(data: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise BrokenStreamError(f"an event is no JSON: {data[:_TOLD]!r}") from None
    if not isinstance(value, dict):
        raise BrokenStreamError(f"an event is no JSON object: {data[:_TOLD]!r}")
    return value
