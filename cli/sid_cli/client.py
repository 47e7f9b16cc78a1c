"""The blocking client: one request at a time over the daemon's socket.

Used by every verb that ends by itself. Never starts a daemon (`spawn` does) and never polls.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from sid_cli.unreachable import no_answer, refusal, unreachable
from sid_protocol.errors import (
    ALREADY_RUNNING,
    INVALID_PARAMS,
    NO_SUCH_RUN,
    NOT_RUNNING,
    REFUSED,
    SETTINGS_INVALID,
    SHUTTING_DOWN,
    AlreadyRunning,
    NoSuchRun,
    NotRunning,
    Refused,
    SettingsInvalid,
    ShuttingDown,
    SidError,
    UsageError,
    WireError,
)
from sid_protocol.jsonrpc import (
    REPLY_LIMIT,
    ErrorObject,
    LineReader,
    Message,
    Notification,
    Response,
    encode_request,
    parse_line,
)

REPLY_S = 60.0
"""How long an ordinary request may take, in seconds; what runs benchmarks waits without a limit."""

_CONNECT_S = 5.0
_ERRORS: dict[int, type[SidError]] = {
    INVALID_PARAMS: UsageError,
    NO_SUCH_RUN: NoSuchRun,
    REFUSED: Refused,
    ALREADY_RUNNING: AlreadyRunning,
    NOT_RUNNING: NotRunning,
    SHUTTING_DOWN: ShuttingDown,
}


def error_of(error: ErrorObject) -> SidError:
    """Return the daemon's answer as the error it was there."""
    data = error.data if isinstance(error.data, dict) else {}
    hint = str(data.get("hint", ""))
    if error.code == SETTINGS_INVALID and "key" in data and "why" in data:
        return SettingsInvalid(str(data["key"]), str(data["why"]), hint=hint)
    return _ERRORS.get(error.code, SidError)(error.message, hint=hint, data=data)


class Client:
    """A connection to the daemon; use it in a `with` block.

    Args:
        path: The daemon's socket, an absolute path.

    Raises:
        NoDaemon: nobody listens there.
        WireError: so many wait there that there is no room for one more.
        SidError: the socket may not be used.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._reader = LineReader(REPLY_LIMIT)
        self._number = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_CONNECT_S)
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise unreachable(path, error) from None

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._socket.close()

    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout_s: float | None = REPLY_S,
        each: Callable[[Notification], None] | None = None,
    ) -> Any:
        """Call a method and return its result.

        Args:
            method: Such as `run.status`.
            params: By name.
            timeout_s: How long the answer may take; None waits for ever.
            each: Called with every notification that comes before the answer.

        Raises:
            SidError: the daemon's error, as the class it was there.
            WireError: the connection broke, or nothing came in time.
            Refused: the daemon is another user's.
        """
        self._number += 1
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._send(encode_request(self._number, method, params or {}))
        while True:
            message = self._receive(deadline)
            if isinstance(message, Response) and message.id in (self._number, None):
                if message.error is not None:
                    raise error_of(message.error)
                return message.result
            if isinstance(message, Notification) and each is not None:
                each(message)

    def _send(self, line: bytes) -> None:
        try:
            self._socket.settimeout(REPLY_S)
            self._socket.sendall(line)
        except BrokenPipeError:
            return  # it has closed: why may be waiting to be read
        except OSError as error:
            raise self._broken(error.strerror or "it does not read") from None

    def _receive(self, deadline: float | None) -> Message:
        while (line := self._reader.next_line()) is None:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            try:
                self._socket.settimeout(left)
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                raise no_answer(self.path) from None
            except OSError as error:
                raise self._broken(error.strerror or "unknown") from None
            if not data:
                raise self._broken("it closed the connection")
            self._reader.receive(data)
        return parse_line(line).messages[0]

    def _broken(self, why: str) -> SidError:
        return refusal(self.path, self._socket) or WireError(
            f"lost the daemon at {self.path}: {why}", hint="'sictl status' shows whether it is back"
        )
