"""One client of the socket: reads lines, runs calls beside each other, writes whole lines in turn.

Made by `server` for each connection; knows the wire and nothing of the methods, which stand
behind `Answer`. Calls of a client that hung up are cancelled; its notifications are carried out, since
nobody waits for them. A client that does not read, or asks faster than it is answered, is not read from
any more: it slows nobody but itself. Framing and limits come from the interfaces page, JSON-RPC.
"""

from __future__ import annotations

import os
import select
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from sid_daemon.rpc.listening import Peer
from sid_protocol.errors import FAILED, INVALID_REQUEST, WireError
from sid_protocol.jsonrpc import (
    REPLY_LIMIT,
    Fault,
    LineReader,
    Message,
    Notification,
    Parsed,
    Request,
    Response,
    encode_batch,
    encode_error,
    parse_line,
)

CALLS = 32
"""Calls of one client that run beside each other; then its next line waits."""

_READ_BYTES = 65_536
_DRAIN_S = 2.0
"""How long a client may go on sending after a line that was too long, to learn why it is closed."""

_DRAIN_BYTES = 64 << 20

Task = Callable[[], Awaitable[None]]


@dataclass(eq=False, slots=True)
class Call:
    """One call, as its method sees it.

    Attributes:
        connection: Where it came from.
        tasks: What starts once the reply is on its way; ends with the connection.
    """

    connection: Connection
    tasks: list[Task] = field(default_factory=list)

    def when_replied(self, task: Task) -> None:
        """Start `task` after the reply of this call; it is cancelled when the client hangs up."""
        self.tasks.append(task)


Answer = Callable[[Request | Notification, Call], Awaitable[bytes]]
"""Carries out one call and returns its reply (a line), whatever happens but cancellation."""


class HangUps:
    """Tells who has hung up, even of connections that are not being read.

    The end of a stream alone does not tell it: a client may close its sending side and still wait.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, told: Callable[[], None]) -> None:
        """Call `told` once when the other end of `fd` is gone."""
        self._watched[fd] = told
        self._epoll.register(fd, select.EPOLLONESHOT)

    def forget(self, fd: int) -> None:
        """Watch `fd` no longer; to be called before it is closed."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for fd, _ in self._epoll.poll(0):
                if told := self._watched.get(fd):
                    told()

    def close(self) -> None:
        """Let go of the kernel's table; nothing may be watched any more."""
        self._epoll.close()


class Connection:
    """One client.

    Args:
        number: Counts the connections of this daemon.
        peer: Who it is.
        stream: The socket.
        answer: Carries out a call.
        detached: Where notifications run, which outlive the connection.
        turns: Shared by all clients; whoever begins a call has one for a turn of the loop.
    """

    def __init__(
        self,
        number: int,
        peer: Peer,
        stream: trio.SocketStream,
        answer: Answer,
        detached: trio.Nursery,
        turns: trio.Semaphore,
    ) -> None:
        self.number = number
        self.peer = peer
        self._stream = stream
        self._answer = answer
        self._detached = detached
        self._turns = turns
        self._reader = LineReader()
        self._slots = trio.Semaphore(CALLS)
        # No room: what is to be sent waits with whoever sends it, so that a slow client costs little.
        self._lines_in, self._lines_out = trio.open_memory_channel[bytes](0)
        self._whole = trio.CancelScope()
        self._live = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._background: trio.Nursery
        self._hung_up = False
        self._subscriptions = 0

    def next_subscription(self) -> int:
        """Return the number of a new subscription: of this connection the first, second and so on."""
        self._subscriptions += 1
        return self._subscriptions

    async def send(self, lines: bytes) -> None:
        """Send one or more whole lines; waits while the client is slow to read. Of a task that is cancelled, nothing."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.offer(lines):
            await trio.lowlevel.checkpoint()
        else:
            await self._lines_in.send(lines)

    def offer(self, lines: bytes) -> bool:
        """Send whole lines if the client takes them now; whether it does. What it takes a part of is sent to its end."""
        if not self._lines_in.statistics().tasks_waiting_receive:
            return False  # something is being sent, or this connection is about to end
        try:
            sent = os.write(self._stream.socket.fileno(), lines)
        except OSError:  # it is slow or gone; the writer finds out which
            return False
        if sent < len(lines):
            self._lines_in.send_nowait(lines[sent:])
        return True

    async def serve(self, hang_ups: HangUps) -> None:
        """Serve until the client hangs up, breaks the framing, or `stop` is called."""
        fd = self._stream.socket.fileno()
        hang_ups.watch(fd, self._on_hang_up)
        try:
            with self._whole:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    with self._lines_in:
                        too_long = await self._serve_calls()
                    if self._hung_up:
                        await self._last_notifications()
                if too_long:
                    await self._drain()
        finally:
            hang_ups.forget(fd)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    def stop(self, grace_s: float) -> None:
        """Read nothing more; calls that run, and replies to be read, get `grace_s` seconds."""
        self._reading.cancel()
        self._live.deadline = trio.current_time() + grace_s
        self._whole.deadline = trio.current_time() + 2 * grace_s

    def _on_hang_up(self) -> None:
        self._hung_up = True
        self._live.cancel()

    async def _serve_calls(self) -> bool:
        """Serve until nothing is to be done any more; True if a line was too long."""
        too_long = False
        with self._live:
            async with trio.open_nursery() as self._background, trio.open_nursery() as calls:
                with self._reading:
                    too_long = await self._read(calls)
                if too_long:
                    self._live.cancel()
        if too_long:
            text = "Invalid Request: a line is longer than 1 MiB"
            await self.send(encode_error(None, INVALID_REQUEST, text))
        return too_long

    async def _read(self, calls: trio.Nursery) -> bool:
        """Start a task for each line until the end of the stream; True if a line was too long."""
        try:
            while data := await self._stream.receive_some(_READ_BYTES):
                self._reader.receive(data)
                while True:
                    # First the slot: a line that was taken must not be lost to a cancellation.
                    try:
                        self._slots.acquire_nowait()
                    except trio.WouldBlock:
                        await self._slots.acquire()
                    async with self._turns:
                        line = self._reader.next_line()
                        if line is None:
                            self._slots.release()
                            break
                        self._start(parse_line(line), calls)
        except WireError:
            return True
        except trio.BrokenResourceError:
            self._on_hang_up()
        return False

    def _start(self, parsed: Parsed, calls: trio.Nursery) -> None:
        first = parsed.messages[0]
        if isinstance(first, Notification) and not parsed.is_batch:
            self._detached.start_soon(self._notified, first)
        else:
            calls.start_soon(self._carry_out, parsed)

    async def _notified(self, message: Notification) -> None:
        try:
            await self._answer(message, Call(self))
        finally:
            self._slots.release()

    async def _carry_out(self, parsed: Parsed) -> None:
        try:
            call = Call(self)
            if parsed.is_batch:
                reply = await self._batch(parsed.messages, call)
            else:
                reply = await self._one(parsed.messages[0], call)
            if reply:
                await self.send(reply)
            for task in call.tasks:
                self._background.start_soon(task)
        finally:
            self._slots.release()

    async def _one(self, message: Message, call: Call) -> bytes:
        match message:
            case Request():
                return await self._answer(message, call)
            case Notification():
                await self._answer(message, call)
                return b""
            case Fault(code, text, identity):
                return encode_error(identity, code, text)
            case Response():
                return encode_error(None, INVALID_REQUEST, "Invalid Request: this end asks nothing")

    async def _batch(self, messages: tuple[Message, ...], call: Call) -> bytes:
        replies: list[bytes] = []
        length = 0
        for message in messages:
            if length > REPLY_LIMIT and isinstance(message, Request):
                text = "not done: the replies of this batch are too long already"
                reply = encode_error(message.id, FAILED, text)
            else:
                reply = await self._one(message, call)
            replies.append(reply)
            length += len(reply)
        return encode_batch(reply for reply in replies if reply)

    async def _write(self) -> None:
        gone = False
        async for lines in self._lines_out:
            if gone:
                continue
            try:
                await self._stream.send_all(lines)
            except trio.BrokenResourceError:
                gone = True
                self._on_hang_up()

    async def _drain(self) -> None:
        # Closing with bytes unread would break the client's sending before it reads why.
        left = _DRAIN_BYTES
        with trio.move_on_after(_DRAIN_S):
            try:
                await self._stream.send_eof()
                while left > 0 and (data := await self._stream.receive_some(_READ_BYTES)):
                    left -= len(data)
            except trio.BrokenResourceError:
                return

    async def _last_notifications(self) -> None:
        """Carry out the notifications that were sent just before the client hung up."""
        try:
            while True:
                while (line := self._reader.next_line()) is not None:
                    for message in parse_line(line).messages:
                        if isinstance(message, Notification):
                            await self._answer(message, Call(self))
                data = await self._stream.receive_some(_READ_BYTES)
                if not data:
                    return
                self._reader.receive(data)
        except (WireError, trio.BrokenResourceError):
            return
