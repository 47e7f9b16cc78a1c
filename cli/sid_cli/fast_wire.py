"""The wire of `sictl status`: calls over a Unix socket, with no more of Python loaded than that takes.

Used by `fast_status` alone; every other verb has `client`. `socket` and `json` load enumerations and regular expressions,
each for about as much again as half of Python's own start, so what they wrap is used as it is: `_socket`, and the scanner
and quoting of `_json`. Knows no method and prints nothing.
"""

from __future__ import annotations

import _socket

from sid_protocol.errors import WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

_TIMEOUT_S = 10.0
_READ_BYTES = 65_536


class _Plain:
    """How JSON becomes values: as `json.loads` does it by default."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


try:
    from _json import encode_basestring_ascii, make_scanner
except ImportError:  # not CPython: it has both in Python
    from json import JSONDecoder
    from json.encoder import encode_basestring_ascii

    _scan = JSONDecoder().scan_once  # type: ignore[attr-defined]  # typeshed leaves it out
else:
    _scan = make_scanner(_Plain)  # type: ignore[arg-type]  # any object with these attributes does


def read_json(text: str) -> Any:
    """Return the value of one JSON text, as `json.loads` would.

    Raises:
        ValueError: it is none.
    """
    text = text.strip(" \t\r\n")
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("it answered no JSON") from None
    if end != len(text):
        raise ValueError("it answered more than JSON")
    return value


def quoted(value: str | int | bool) -> str:  # noqa: FBT001 - a JSON value, no flag
    """Return a parameter as JSON."""
    if isinstance(value, str):
        return str(encode_basestring_ascii(value))
    return str(value).lower()


class Wire:
    """A connection to the daemon, to be used in a `with` statement.

    Args:
        path: Its socket.

    Raises:
        NoDaemon: nobody listens there.
        WireError: so many wait there that there is no room for one more.
        SidError: the socket cannot be used.
        Refused: it is another user's.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._rest = b""
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(_TIMEOUT_S)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            from sid_cli.unreachable import unreachable  # of no use to an answer

            raise unreachable(path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def call(
        self,
        calls: Sequence[tuple[str, Mapping[str, str | int | bool]]],
        records: list[dict[str, Any]] | None = None,
    ) -> list[Any]:
        """Send all requests at once and return their results in order; replies may come in any.

        Args:
            calls: Methods and their parameters.
            records: Log records that come with the replies are appended to it.

        Raises:
            WireError: the connection broke, nothing came for 10 s, or what came is no answer.
            SidError: the daemon says no.
            Refused: the daemon is another user's.
        """
        try:
            return self._call(calls, records)
        except WireError as error:
            from sid_cli.unreachable import refusal  # as above

            raise refusal(self._path, self._socket) or error from None

    def _call(
        self,
        calls: Sequence[tuple[str, Mapping[str, str | int | bool]]],
        records: list[dict[str, Any]] | None,
    ) -> list[Any]:
        results: dict[Any, Any] = {}
        try:
            self._send("".join(_line(*numbered) for numbered in enumerate(calls)).encode())
            while len(results) < len(calls):
                message = read_json(self._read_line().decode())
                if not isinstance(message, dict):
                    raise WireError(
                        "lost the daemon: it answered junk", hint="'sictl daemon shutdown' ends it"
                    )
                if "id" in message:
                    results[message["id"]] = _result(message)
                elif records is not None and message.get("method") == "log.record":
                    records.append(message["params"]["record"])
        except TimeoutError:
            from sid_cli.unreachable import no_answer  # as above

            raise no_answer(self._path) from None
        except (OSError, ValueError) as error:
            raise WireError(f"lost the daemon: {error}", hint="try again") from None
        return [results[number] for number in range(len(calls))]

    def _send(self, lines: bytes) -> None:
        try:
            self._socket.sendall(lines)
        except BrokenPipeError:
            return  # it has closed: why may be waiting to be read

    def _read_line(self) -> bytes:
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise WireError("lost the daemon: it closed the connection", hint="try again")
            parts.append(data)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line


def _line(number: int, call: tuple[str, Mapping[str, str | int | bool]]) -> str:
    method, params = call
    given = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in params.items())
    return f'{{"jsonrpc":"2.0","id":{number},"method":{quoted(method)},"params":{{{given}}}}}\n'


def _result(message: dict[str, Any]) -> Any:
    error = message.get("error")
    if error is None:
        return message.get("result")
    from sid_cli.client import error_of  # the whole table of errors, seldom needed here
    from sid_protocol.jsonrpc import ErrorObject

    raise error_of(ErrorObject(error["code"], error["message"], error.get("data")))
