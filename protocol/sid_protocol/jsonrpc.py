"""JSON-RPC 2.0 as messages and bytes, without a socket: the same code serves daemon and client.

One message or batch a line, UTF-8, ended by a newline. `LineReader` cuts a stream into lines,
`parse_line` reads one, the encoders write one. What cannot be read becomes a `Fault`, which is the
error to answer with; nothing here raises for what a peer sent but `LineReader`, after which the
connection is to be closed. The rules are those of the JSON-RPC 2.0 specification and of the
project's interfaces page. Free of pydantic: the everyday verbs of the command line import it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sid_protocol.errors import INVALID_REQUEST, PARSE_ERROR, WireError

LINE_LIMIT = 1 << 20
"""Longest line that the daemon reads, in bytes without its newline."""

REPLY_LIMIT = 64 << 20
"""Longest line that a client reads, in bytes: a diff or a chart is longer than any request."""

DEPTH_LIMIT = 64
"""Deepest nesting of objects and arrays in a line."""

Id = str | int | float | None
Params = dict[str, Any] | list[Any] | None


@dataclass(frozen=True, slots=True)
class Request:
    """A call that wants an answer; an id of null is an id, too."""

    id: Id
    method: str
    params: Params = None


@dataclass(frozen=True, slots=True)
class Notification:
    """A call that gets no answer, not even an error."""

    method: str
    params: Params = None


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """The error of a response."""

    code: int
    message: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: `error` is None exactly if the call succeeded."""

    id: Id
    result: Any = None
    error: ErrorObject | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """What could not be read as a message, as the error to answer with."""

    code: int
    message: str
    id: Id = None


Message = Request | Notification | Response | Fault


@dataclass(frozen=True, slots=True)
class Parsed:
    """What one line holds.

    Attributes:
        messages: One message, or those of a batch in their order; never empty.
        is_batch: Whether answers belong into one array.
    """

    messages: tuple[Message, ...]
    is_batch: bool = False


class LineReader:
    """Cuts a stream of bytes into lines, however it was split on its way.

    Args:
        limit_bytes: Longest line accepted, without its newline.
    """

    def __init__(self, limit_bytes: int = LINE_LIMIT) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._failed = False

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes as they came from the peer; then call `next_line` until it returns None."""
        if not self._failed:
            self._buffer += data

    def next_line(self) -> bytes | None:
        """Return the next whole line without its newline, or None if more bytes are needed.

        Raises:
            WireError: the line is longer than the limit. Answer with its `rpc_code` and id null, then
                close: where the next message begins is unknown. Raised again at every further call.
        """
        end = -1 if self._failed else self._buffer.find(b"\n", self._searched)
        length = len(self._buffer) if end < 0 else end
        if self._failed or length > self._limit_bytes:
            self._failed = True
            self._buffer.clear()
            raise WireError(
                f"a line is longer than {self._limit_bytes} bytes", hint="send less in one message"
            )
        if end < 0:
            self._searched = length
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line


def parse_line(line: bytes) -> Parsed:
    """Read one line: a message, a batch, or faults to answer with.

    Args:
        line: The bytes without their newline.

    Returns:
        Its messages. Junk, NaN, a key twice, and nesting over 64 are a -32700; an empty batch and what
        is no JSON-RPC message a -32600.
    """
    try:
        value = _DECODER.decode(line.decode())
    except RecursionError:
        return Parsed((_too_deep(),))
    except ValueError as error:
        return Parsed((Fault(PARSE_ERROR, f"Parse error: {_why(error)}"),))
    # Counting brackets is far cheaper than walking, and an upper bound of the depth.
    if line.count(b"[") + line.count(b"{") > DEPTH_LIMIT and _depth_exceeds(value, DEPTH_LIMIT):
        return Parsed((_too_deep(),))
    if not isinstance(value, list):
        return Parsed((_message(value),))
    if not value:
        return Parsed((Fault(INVALID_REQUEST, "Invalid Request: an empty batch"),))
    return Parsed(tuple(_message(item) for item in value), is_batch=True)


def _why(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start + 1}"
    return str(error)


def _not_a_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of range")
    return value


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"the key {name[:80]!r} stands twice")
        seen.add(name)
    return value


_DECODER = json.JSONDecoder(parse_constant=_not_a_number, parse_float=_finite, object_pairs_hook=_no_twins)


def _too_deep() -> Fault:
    return Fault(PARSE_ERROR, f"Parse error: nested deeper than {DEPTH_LIMIT}")


def _depth_exceeds(value: Any, limit: int) -> bool:
    layer = [value]
    for _ in range(limit):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not layer:
            return False
    return True


def _message(value: Any) -> Message:
    if not isinstance(value, dict):
        return Fault(INVALID_REQUEST, "Invalid Request: not an object")
    has_id = "id" in value
    identity = value.get("id")
    if type(identity) not in (str, int, float, type(None)):
        return Fault(INVALID_REQUEST, "Invalid Request: id must be a string, a number or null")
    if value.get("jsonrpc") != "2.0":
        return Fault(INVALID_REQUEST, 'Invalid Request: jsonrpc must be "2.0"', identity)
    if "method" not in value:
        return _response(value, identity) or Fault(
            INVALID_REQUEST, "Invalid Request: method is missing", identity
        )
    method = value["method"]
    if not isinstance(method, str):
        return Fault(INVALID_REQUEST, "Invalid Request: method must be a string", identity)
    params = value.get("params")
    if "params" in value and not isinstance(params, (dict, list)):
        return Fault(INVALID_REQUEST, "Invalid Request: params must be an object", identity)
    return Request(identity, method, params) if has_id else Notification(method, params)


def _response(value: dict[str, Any], identity: Id) -> Response | None:
    if "id" not in value or ("result" in value) == ("error" in value):
        return None
    if "result" in value:
        return Response(identity, result=value["result"])
    error = value["error"]
    if not isinstance(error, dict) or type(error.get("code")) is not int:
        return None
    message = error.get("message")
    if not isinstance(message, str):
        return None
    return Response(identity, error=ErrorObject(error["code"], message, error.get("data")))


def dump(value: Any) -> bytes:
    """Encode a JSON value compactly in ASCII, which is UTF-8, holds any string, and no raw controls.

    Raises:
        ValueError: the value holds NaN or infinity.
        TypeError: the value is no JSON value.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def encode_request(identity: Id, method: str, params: Params = None) -> bytes:
    """Return one line that calls `method`."""
    head = {"jsonrpc": "2.0", "id": identity, "method": method}
    return dump(head if params is None else {**head, "params": params}) + b"\n"


def encode_notification(method: str, params: Params = None) -> bytes:
    """Return one line that calls `method` and wants no answer."""
    head = {"jsonrpc": "2.0", "method": method}
    return dump(head if params is None else {**head, "params": params}) + b"\n"


def encode_response(identity: Id, result: Any) -> bytes:
    """Return one line with the result of the request `identity`."""
    return dump({"jsonrpc": "2.0", "id": identity, "result": result}) + b"\n"


def encode_error(identity: Id, code: int, message: str, data: Any = None) -> bytes:
    """Return one line with the error of the request `identity`; `data` of None is left out."""
    error = {"code": code, "message": message}
    if data is not None:
        error = {**error, "data": data}
    return dump({"jsonrpc": "2.0", "id": identity, "error": error}) + b"\n"


def encode_batch(lines: Iterable[bytes]) -> bytes:
    """Return one line that holds the messages of several; nothing at all for none."""
    parts = [line.removesuffix(b"\n") for line in lines]
    return b"[" + b",".join(parts) + b"]\n" if parts else b""
