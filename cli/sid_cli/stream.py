"""The async client: follows the daemon's log over one connection and survives the daemon's restart.

Used by `attach`, `start --wait` and `demo`; written on anyio, so that asyncio and trio programs can embed it. One
task at a time uses a `Stream` or a `Follower`. Never polls a daemon that answers.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream

from sid_cli.client import REPLY_S, error_of
from sid_cli.unreachable import no_daemon, refusal, unreachable
from sid_protocol.errors import NoDaemon, ShuttingDown, SidError, WireError
from sid_protocol.jsonrpc import (
    REPLY_LIMIT,
    LineReader,
    Message,
    Notification,
    Response,
    encode_request,
    parse_line,
)

RECONNECT_S = 60.0
"""How long a lost daemon is waited for, in seconds: a restart takes less."""

_RETRY_FIRST_S = 0.1
_RETRY_LAST_S = 2.0
_CLOSE_S = 1.0
"""Closing a socket does not wait for its peer; this bounds what should take no time at all."""


class Lost(WireError):
    """The connection broke."""


class Stream:
    """One connection to the daemon; made by `open_stream`, closed by `aclose`."""

    def __init__(self, socket: SocketStream, path: str) -> None:
        self._socket = socket
        self._path = path
        self._reader = LineReader(REPLY_LIMIT)
        self._waiting: deque[Notification] = deque()
        self._number = 0

    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout_s: float | None = REPLY_S
    ) -> Any:
        """Call a method and return its result; notifications that come meanwhile are kept.

        Args:
            method: Such as `run.status`.
            params: By name.
            timeout_s: How long the answer may take; None waits for ever.

        Raises:
            SidError: the daemon's error, as the class it was there.
            Lost: the connection broke, or no answer came in time.
            Refused: the daemon is another user's.
        """
        self._number += 1
        try:
            with anyio.fail_after(timeout_s):
                await self._socket.send(encode_request(self._number, method, params or {}))
                while True:
                    message = await self._receive()
                    if isinstance(message, Response) and message.id in (self._number, None):
                        break
                    if isinstance(message, Notification):
                        self._waiting.append(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError):
            raise self._lost() from None
        if message.error is not None:
            raise error_of(message.error)
        return message.result

    async def notification(self) -> Notification:
        """Return the next notification; may be cancelled without losing one.

        Raises:
            Lost: the connection broke.
        """
        while not self._waiting:
            message = await self._receive()
            if isinstance(message, Notification):
                self._waiting.append(message)
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._socket.aclose()

    async def _receive(self) -> Message:
        while (line := self._reader.next_line()) is None:
            try:
                self._reader.receive(await self._socket.receive(1 << 16))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise self._lost() from None
        return parse_line(line).messages[0]

    def _lost(self) -> SidError:
        socket = self._socket.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, no Django here
        return refusal(self._path, socket) or Lost(
            f"lost the daemon at {self._path}", hint="'sictl status' shows whether it is back"
        )


async def open_stream(path: str) -> Stream:
    """Connect to the daemon.

    Args:
        path: Its socket, an absolute path.

    Raises:
        NoDaemon: nobody answers there.
        SidError: the socket may not be used.
    """
    try:
        return Stream(await anyio.connect_unix(path), path)
    except OSError as error:
        raise unreachable(path, error) from None


def log_filter(*, run: str | None, level: str | None, actor: str | None) -> dict[str, Any]:
    """Return the parameters of `log.subscribe` that say which records are wanted."""
    given = {"run": run, "level": level, "actor": actor}
    return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log."""

    cursor: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dropped:
    """So many records were lost to this follower."""

    count: int


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The daemon was away for a while and is back; nothing was missed unless `Dropped` says so."""

    seconds: float


Notice = Record | Dropped | Reconnected


def notice_of(message: Notification) -> Record | Dropped | None:
    """Return what a notification of the log says; None for any other."""
    params = message.params if isinstance(message.params, dict) else {}
    if message.method == "log.record":
        return Record(int(params["cursor"]), params["record"])
    return Dropped(int(params["count"])) if message.method == "log.dropped" else None


class Follower:
    """Follows the log from a cursor, over as many connections as it takes; use it in `async with`.

    Args:
        path: The daemon's socket.
        run: Only records of this run; None for the daemon's own and all runs'.
        level: This level and graver ones.
        actor: Only records of this actor.
        since: Records after this cursor; None for the last 20 and what follows.
        reconnect_s: How long a lost daemon is waited for.
    """

    def __init__(
        self,
        path: str,
        *,
        run: str | None = None,
        level: str | None = None,
        actor: str | None = None,
        since: int | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        self.cursor = since
        self._path = path
        self._filter = log_filter(run=run, level=level, actor=actor)
        self._reconnect_s = reconnect_s
        self._stream: Stream | None = None
        self._lost_at: float | None = None

    async def __aenter__(self) -> Self:
        """Connect and subscribe.

        Raises:
            NoDaemon: nobody answers; only a daemon that was there is waited for.
        """
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self._close()

    async def next(self) -> Notice:
        """Return what comes next; may be cancelled without losing anything.

        Raises:
            NoDaemon: the daemon was gone for longer than `reconnect_s`.
        """
        while True:
            if self._stream is None:
                await self._reconnect()
                lost_at, self._lost_at = self._lost_at, None
                return Reconnected(time.monotonic() - (lost_at or 0.0))
            try:
                notice = notice_of(await self._stream.notification())
            except Lost:
                notice = None
                self._lost_at = time.monotonic()
            if self._lost_at is not None:
                await self._close()
            if isinstance(notice, Record):
                self.cursor = notice.cursor
            if notice is not None:
                return notice

    async def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout_s: float | None = REPLY_S,
        again: bool = True,
    ) -> Any:
        """Call a method over the same connection.

        Args:
            method: Such as `run.status`.
            params: By name.
            timeout_s: How long the answer may take; None waits for ever.
            again: Whether it is sent again over a new connection if this one breaks.

        Raises:
            SidError: the daemon's error.
            Lost: the connection broke, and `again` is false.
            NoDaemon: the daemon was gone for longer than `reconnect_s`.
        """
        while True:
            if self._stream is None:
                await self._reconnect()
                self._lost_at = None
            assert self._stream is not None
            try:
                return await self._stream.call(method, params, timeout_s=timeout_s)
            except (Lost, ShuttingDown) as error:
                lost = error
                self._lost_at = time.monotonic()
            await self._close()
            if not again:
                raise lost

    async def _connect(self) -> None:
        stream = await open_stream(self._path)
        try:
            since = {} if self.cursor is None else {"since": self.cursor}
            result = await stream.call("log.subscribe", {**self._filter, **since})
        except BaseException:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await stream.aclose()
            raise
        self._stream = stream
        if self.cursor is None:
            self.cursor = int(result["cursor"])

    async def _reconnect(self) -> None:
        delay_s = _RETRY_FIRST_S
        while True:
            try:
                await self._connect()
            except (NoDaemon, Lost, ShuttingDown):
                if time.monotonic() - (self._lost_at or 0.0) > self._reconnect_s:
                    raise no_daemon(self._path) from None
            else:
                return
            # Nothing tells when a socket of a daemon that is still starting is bound, so it is tried again.
            await anyio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_LAST_S)

    async def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()
