"""The wire: what the standard's examples mean, and two ends over a wire that splits bytes anywhere."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sid_protocol import jsonrpc
from sid_protocol.errors import INVALID_REQUEST, PARSE_ERROR, WireError
from sid_protocol.jsonrpc import (
    DEPTH_LIMIT,
    ErrorObject,
    Fault,
    LineReader,
    Notification,
    Parsed,
    Request,
    Response,
    parse_line,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)
ids = st.none() | st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
params = st.none() | st.dictionaries(st.text(), values, max_size=3) | st.lists(values, max_size=3)
requests = st.builds(Request, ids, st.text(), params)
notifications = st.builds(Notification, st.text(), params)
errors = st.builds(ErrorObject, st.integers(), st.text(), st.none() | st.dictionaries(st.text(), values))
responses = st.builds(Response, ids, values) | st.builds(lambda i, e: Response(i, error=e), ids, errors)


def encode(message):
    match message:
        case Request(identity, method, given):
            return jsonrpc.encode_request(identity, method, given)
        case Notification(method, given):
            return jsonrpc.encode_notification(method, given)
        case Response(identity, _, ErrorObject(code, text, data)):
            return jsonrpc.encode_error(identity, code, text, data)
        case Response(identity, result):
            return jsonrpc.encode_response(identity, result)
    raise AssertionError(message)


def faults(line: bytes) -> list[tuple[int, object]]:
    return [(m.code, m.id) for m in parse_line(line).messages if isinstance(m, Fault)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b'{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}',
            Request(1, "subtract", [42, 23]),
        ),
        (
            b'{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 3}',
            Request(3, "subtract", {"minuend": 42, "subtrahend": 23}),
        ),
        (b'{"jsonrpc": "2.0", "method": "update", "params": [1]}', Notification("update", [1])),
        (b'{"jsonrpc": "2.0", "method": "foobar"}', Notification("foobar")),
        (b'{"jsonrpc": "2.0", "method": "x", "id": null}', Request(None, "x")),
        (b'{"jsonrpc": "2.0", "result": 19, "id": 1}', Response(1, 19)),
        (
            b'{"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "1"}',
            Response("1", error=ErrorObject(-32601, "Method not found")),
        ),
    ],
)
def test_the_standards_messages(line: bytes, expected: jsonrpc.Message) -> None:
    assert parse_line(line) == Parsed((expected,))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]', PARSE_ERROR),
        (
            b'[{"jsonrpc": "2.0", "method": "sum", "params": [1], "id": "1"}, {"jsonrpc": "2.0", "method"',
            PARSE_ERROR,
        ),
        (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b"", PARSE_ERROR),
        (b"   ", PARSE_ERROR),
        (b"\xff\xfe{}", PARSE_ERROR),
        ('{"jsonrpc":"2.0"}'.encode("utf-16"), PARSE_ERROR),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","id":NaN}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","params":[-Infinity]}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","params":[1e999]}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","params":[' + b"9" * 5000 + b"]}", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","method":"n"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":1,"\\u0061":2}}', PARSE_ERROR),
        (b"[" * 500_000, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"m","params":"text"}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","method":"m","params":null}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","method":"m","id":true}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","method":"m","id":[1]}', INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":null}', INVALID_REQUEST),
        (b'{"jsonrpc":"1.0","method":"m"}', INVALID_REQUEST),
        (b'{"method":"m"}', INVALID_REQUEST),
        (b"1", INVALID_REQUEST),
        (b'"text"', INVALID_REQUEST),
        (b"null", INVALID_REQUEST),
    ],
)
def test_what_is_no_message_is_a_fault(line: bytes, code: int) -> None:
    assert faults(line) == [(code, None)]


def test_a_fault_carries_the_id_where_there_is_one() -> None:
    assert faults(b'{"jsonrpc":"2.0","method":1,"id":7}') == [(INVALID_REQUEST, 7)]


def test_a_batch_is_read_item_by_item() -> None:
    parsed = parse_line(
        b'[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},1,[],{"foo":"boo"}]'
    )

    assert parsed.is_batch
    assert parsed.messages[:2] == (Request(1, "a"), Notification("b"))
    assert [m.code for m in parsed.messages[2:] if isinstance(m, Fault)] == [INVALID_REQUEST] * 3


@pytest.mark.parametrize(("depth", "taken"), [(DEPTH_LIMIT, True), (DEPTH_LIMIT + 1, False)])
def test_nesting_is_limited(depth: int, taken: bool) -> None:
    inner = b"[" * (depth - 1) + b"]" * (depth - 1)
    line = b'{"jsonrpc":"2.0","method":"m","params":' + inner + b"}"

    assert faults(line) == ([] if taken else [(PARSE_ERROR, None)])


def test_many_brackets_side_by_side_are_not_deep() -> None:
    line = b'{"jsonrpc":"2.0","method":"m","params":[' + b"[]," * 500 + b'"[[[["]}'

    assert faults(line) == []


@given(st.binary(max_size=200))
def test_no_line_raises(line: bytes) -> None:
    assert parse_line(line).messages


@given(values)
def test_no_json_value_raises(value: object) -> None:
    assert parse_line(json.dumps(value).encode()).messages


@given(st.data(), st.lists(requests | notifications | responses, max_size=6))
def test_two_ends_over_a_wire_that_splits_anywhere(data, messages) -> None:
    wire = b"".join(encode(message) for message in messages)
    reader = LineReader()
    received: list[jsonrpc.Message] = []
    while wire:
        size = data.draw(st.integers(1, len(wire)))
        reader.receive(wire[:size])
        wire = wire[size:]
        while (line := reader.next_line()) is not None:
            received += parse_line(line).messages

    assert received == messages


@given(st.lists(requests, min_size=1, max_size=4))
def test_a_batch_is_one_line(messages) -> None:
    line = jsonrpc.encode_batch(encode(message) for message in messages)

    assert line.count(b"\n") == 1
    assert parse_line(line[:-1]) == Parsed(tuple(messages), is_batch=True)


def test_a_batch_of_notifications_has_no_answer() -> None:
    assert jsonrpc.encode_batch([]) == b""


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_line_may_be_as_long_as_the_limit_and_no_longer(piece: int) -> None:
    reader = LineReader(limit_bytes=10)
    stream = b"short\n" + b"x" * 10 + b"\n" + b"y" * 11 + b"\nlater\n"
    lines = []
    with pytest.raises(WireError) as caught:
        for start in range(0, len(stream), piece):
            reader.receive(stream[start : start + piece])
            while (line := reader.next_line()) is not None:
                lines.append(line)

    assert lines == [b"short", b"x" * 10]
    assert caught.value.rpc_code == INVALID_REQUEST
    reader.receive(b"again\n")
    with pytest.raises(WireError):
        reader.next_line()
    assert not reader._buffer


def test_an_endless_line_is_refused_before_its_end() -> None:
    reader = LineReader()
    with pytest.raises(WireError):
        for _ in range(2000):
            reader.receive(b"x" * 1024)
            reader.next_line()


def test_any_string_travels_and_no_raw_control_does() -> None:
    text = "\x1b[31m\u202e\ud800 \u2028 ü"
    line = jsonrpc.encode_notification("m", {"text": text})

    assert all(byte >= 0x20 for byte in line[:-1])
    assert parse_line(line[:-1]) == Parsed((Notification("m", {"text": text}),))


def test_what_is_no_json_is_never_sent() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        jsonrpc.encode_response(1, float("nan"))


@pytest.mark.parametrize("module", ["jsonrpc", "locations", "errors", "ids"])
def test_everyday_verbs_need_no_pydantic(module: str) -> None:
    code = f"import sys, sid_protocol.{module}; sys.exit('pydantic' in sys.modules or 'trio' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
