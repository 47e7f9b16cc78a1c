"""Serves calls on a Unix socket: who may call, and how what came of a call is told.

Started by `app` before there are methods (`dispatcher`), so that the socket answers at once; turns errors into their codes,
and never decides anything about a run. One slow, silent or hostile client costs its own connection and nothing else. The
rules come from the interfaces page, JSON-RPC.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from sid_daemon.rpc.connection import Call, Connection, HangUps
from sid_daemon.rpc.listening import Listening, Peer, peer_of
from sid_protocol.errors import FAILED, INTERNAL_ERROR, SidError
from sid_protocol.jsonrpc import (
    REPLY_LIMIT,
    Notification,
    Request,
    encode_error,
    encode_response,
)

CONNECTIONS = 256
"""Clients at once; one more is told so and closed."""

TURNS = 16
"""Calls of all clients that begin in one turn of the loop: however many ask, the runs go on beside them."""

GRACE_S = 2.0
"""How long calls may still run, and replies be read, when the server stops."""

_ACCEPT_PAUSE_S = 0.1
_AT_ONCE = 64
"""Connections taken in a turn of the loop: with one at a time, whoever comes after many waits for as many turns."""
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

CarryOut = Callable[[str, Any, Call], Awaitable[Any]]
"""Carries a call out: method, parameters as they came, the call → the result as a JSON value; raises `SidError`."""


class Log(Protocol):
    """What the server needs of a structured logger."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log what is normal."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Log what somebody may want to look at."""

    def exception(self, event: str, **fields: Any) -> Any:
        """Log the exception being handled."""


class RpcServer:
    """The daemon's JSON-RPC server.

    Args:
        carry_out: Carries calls out.
        log: Where it tells what happened.
        owner_uid: Who is served, beside root; by default the user that the daemon runs as.
        connections: Clients at once.
    """

    def __init__(
        self,
        carry_out: CarryOut,
        log: Log,
        *,
        owner_uid: int | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._carry_out = carry_out
        self._log = log
        self._served_uids = {0, os.geteuid() if owner_uid is None else owner_uid}
        self._limit = connections
        self._open: set[Connection] = set()
        self._turns = trio.Semaphore(TURNS)
        self._accepted = 0
        self._accepting = trio.CancelScope()
        self._on_this_socket = trio.CancelScope()
        self._hang_ups: HangUps
        self._ended = trio.Event()
        self._faults = 0
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return len(self._open)

    async def clients_changed(self) -> None:
        """Wait until a client has come or gone."""
        await self._changed.park()

    async def serve(
        self,
        listening: Listening,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop` or cancelled; every connection is closed then, the listener is not."""
        self._hang_ups = HangUps()
        try:
            async with trio.open_nursery() as watchers:
                watchers.start_soon(self._hang_ups.run)
                async with trio.open_nursery() as detached, trio.open_nursery() as clients:
                    task_status.started()
                    with self._accepting:
                        while True:
                            # Its own descriptor, since closing a listener of trio closes the socket.
                            sock = listening.sock.dup()
                            async with trio.SocketListener(trio.socket.from_stdlib_socket(sock)) as listener:
                                with trio.CancelScope() as self._on_this_socket:
                                    await self._accept(listener, sock, clients, detached)
                    detached.cancel_scope.deadline = trio.current_time() + 2 * GRACE_S
                watchers.cancel_scope.cancel()
        finally:
            self._hang_ups.close()
            self._ended.set()

    def listen_anew(self) -> None:
        """Take connections from the socket that `listening` has now; those that there are stay."""
        self._on_this_socket.cancel()

    def stop(self) -> None:
        """Take no more connections and no more calls; those under way get `GRACE_S` seconds."""
        self._accepting.cancel()
        for connection in self._open:
            connection.stop(GRACE_S)

    async def finish(self) -> None:
        """Call `stop` and wait until every client has its replies, at most twice `GRACE_S` seconds."""
        self.stop()
        await self._ended.wait()

    async def _accept(
        self,
        listener: trio.SocketListener,
        same: socket.socket,
        clients: trio.Nursery,
        detached: trio.Nursery,
    ) -> None:
        def greet(stream: trio.SocketStream) -> None:
            clients.start_soon(self._welcome, stream, peer_of(stream.socket), detached)

        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                # The connection stays in the backlog; without a pause this would be a busy loop.
                self._log.warning("rpc_out_of_descriptors", error=str(error))
                await trio.sleep(_ACCEPT_PAUSE_S)
                continue
            greet(stream)
            # Until nobody waits any more, or there is no room, which the next turn finds out.
            with contextlib.suppress(OSError):
                for _ in range(_AT_ONCE):
                    greet(trio.SocketStream(trio.socket.from_stdlib_socket(same.accept()[0])))

    async def _welcome(self, stream: trio.SocketStream, peer: Peer, detached: trio.Nursery) -> None:
        if peer.uid not in self._served_uids:
            self._log.warning("rpc_peer_refused", peer_uid=peer.uid, peer_pid=peer.pid)
            await trio.aclose_forcefully(stream)
            return
        if len(self._open) >= self._limit:
            self._log.warning("rpc_too_many_clients", clients=len(self._open))
            text = f"too many clients ({self._limit}); close one and try again"
            with contextlib.suppress(trio.BrokenResourceError), trio.move_on_after(GRACE_S):
                await stream.send_all(encode_error(None, FAILED, text))
            await trio.aclose_forcefully(stream)
            return
        self._accepted += 1
        connection = Connection(self._accepted, peer, stream, self._answer, detached, self._turns)
        self._open.add(connection)
        self._changed.unpark_all()
        try:
            await connection.serve(self._hang_ups)
        finally:
            self._open.remove(connection)
            self._changed.unpark_all()

    async def _answer(self, message: Request | Notification, call: Call) -> bytes:
        identity = message.id if isinstance(message, Request) else None
        try:
            result = await self._carry_out(message.method, message.params, call)
            line = encode_response(identity, result)
        except SidError as error:
            return _error_line(identity, error)
        except Exception as error:  # noqa: BLE001 - one faulty method must not take the daemon along
            if known := _only_sid_error(error):
                return _error_line(identity, known)
            return self._fault(identity, message.method)
        if len(line) > REPLY_LIMIT:
            return encode_error(identity, FAILED, f"the result is {len(line)} bytes long: too much")
        return line

    def _fault(self, identity: Any, method: str) -> bytes:
        self._faults += 1
        fault = f"{os.getpid()}-{self._faults}"
        self._log.exception("rpc_fault", method=method, fault=fault)
        hint = f"the log has the details: look for fault {fault}"
        return encode_error(
            identity, INTERNAL_ERROR, f"a fault of the daemon ({fault})", {"fault": fault, "hint": hint}
        )


def _error_line(identity: Any, error: SidError) -> bytes:
    data = {**error.data, "hint": error.hint} if error.hint else error.data
    return encode_error(identity, error.rpc_code, error.message, data or None)


def _only_sid_error(error: Exception) -> SidError | None:
    """Return the one error of ours that a nursery of the method has wrapped into a group."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, SidError) else None
