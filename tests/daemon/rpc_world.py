"""A served socket and a client of it, for the tests of the RPC server and the log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from sid_daemon.rpc.dispatcher import Dispatcher, Handler
from sid_daemon.rpc.listening import Listening, bind
from sid_daemon.rpc.server import RpcServer
from sid_daemon.store.lock import StateLock


class Notes:
    """A log that remembers."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.records.append((event, fields))

    warning = exception = info

    def events(self) -> list[str]:
        return [event for event, _ in self.records]


class Client:
    """The other end: sends lines, reads lines."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def call(self, method: str, identity: object = 1, **params: object) -> None:
        await self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})

    async def notify(self, method: str, **params: object) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def send(self, value: object) -> None:
        await self.raw(json.dumps(value).encode() + b"\n")

    async def raw(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def read(self) -> Any:
        """The next line's value; None at the end of the stream."""
        while b"\n" not in self._buffer:
            data = await self.stream.receive_some(65_536)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    async def ask(self, method: str, **params: object) -> Any:
        """The result of a call, or its error."""
        await self.call(method, **params)
        reply = await self.read()
        return reply.get("result", reply.get("error"))


class World:
    """A server on a socket."""

    def __init__(self, server: RpcServer, listening: Listening, notes: Notes) -> None:
        self.server = server
        self.listening = listening
        self.notes = notes
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(await trio.open_unix_socket(self.listening.path))
        self.clients.append(client)
        return client

    async def until_clients(self, number: int) -> None:
        while self.server.clients != number:
            await self.server.clients_changed()


@asynccontextmanager
async def serving(folder: Path, handlers: Mapping[str, Handler], **options: Any) -> AsyncIterator[World]:
    notes = Notes()
    server = RpcServer(Dispatcher(handlers, "9.9").carry_out, notes, **options)
    with StateLock(str(folder / "state")) as lock:
        listening = bind(str(folder / "s" / "sid.sock"), lock)
        world = World(server, listening, notes)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.serve, listening)
                yield world
                server.stop()
        finally:
            listening.close()
            with trio.CancelScope(shield=True):
                for client in world.clients:
                    await trio.aclose_forcefully(client.stream)
