"""A server on the loopback that speaks the Messages API, as JSON and as a stream: what a model answers is a script.

A test gives it `reply`, which gets each request's body and returns a `Say`, or names a behaviour in the model's
name (`fail-429-2` fails twice, `stall`, `drop`, `cut`, `malformed`, `errmid`, `slow`). It counts what it was asked, keeps
every body and header, and knows how many connections are open. `test_model_server` holds it against the SDK's own types.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import trio


@dataclass(frozen=True)
class Say:
    """One reply of the model: texts and tool calls, in order."""

    blocks: tuple[dict[str, Any], ...] = ()
    stop: str | None = None
    output: int = 50
    pause_s: float = 0.0
    manner: str = ""
    """A behaviour of this reply alone, as in a model's name."""

    @property
    def stop_reason(self) -> str:
        return self.stop or ("tool_use" if any(b["type"] == "tool_use" for b in self.blocks) else "end_turn")


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(name: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{name}_{number}", "name": name, "input": arguments}


def say(*blocks: dict[str, Any], **more: Any) -> Say:
    return Say(blocks, **more)


@dataclass
class Failure:
    """An answer that is no reply."""

    status: int
    kind: str
    message: str = "no"
    headers: dict[str, str] = field(default_factory=dict)


Reply = Callable[[dict[str, Any]], "Say | Failure"]


@dataclass
class ModelServer:
    """One server; its base URL is `url`."""

    reply: Reply = lambda body: say(text("hello"))
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    open: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    usage_input: Callable[[dict[str, Any]], int] = lambda body: len(json.dumps(body)) // 4
    gate: trio.Event | None = None
    arrived: trio.Event = field(default_factory=trio.Event)
    all_closed: trio.Event = field(default_factory=trio.Event)
    spent_tokens: int = 0
    closed: threading.Event = field(default_factory=threading.Event)

    def wait_closed(self, limit_s: float) -> bool:
        """Say whether no connection is open, waiting for it; from another thread."""
        return self.open == 0 or self.closed.wait(limit_s)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.open += 1
        self.closed.clear()
        try:
            await self._connection(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass
        finally:
            self.open -= 1
            if self.open == 0:
                self.all_closed.set()
                self.closed.set()
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _connection(self, stream: trio.SocketStream) -> None:
        wire = h11.Connection(h11.SERVER)
        while True:
            request, body = await self._request(wire, stream)
            if request is None:
                return
            assert request.target.split(b"?")[0].endswith(b"/v1/messages"), request.target
            self.headers.append({name.decode(): value.decode() for name, value in request.headers})
            asked = json.loads(body)
            self.bodies.append(asked)
            self.arrived.set()
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                whole = await self._answer(wire, stream, asked)
            finally:
                self.in_flight -= 1
            if not whole or wire.our_state is not h11.DONE:
                return
            wire.start_next_cycle()

    async def _request(
        self, wire: h11.Connection, stream: trio.SocketStream
    ) -> tuple[h11.Request | None, bytes]:
        request, body = None, b""
        while True:
            event = wire.next_event()
            if event is h11.NEED_DATA:
                wire.receive_data(await stream.receive_some(65_536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return request, body
            else:
                return None, b""

    async def _answer(self, wire: h11.Connection, stream: trio.SocketStream, asked: dict[str, Any]) -> bool:
        model = asked["model"]
        if self.gate is not None:
            await self.gate.wait()
        answer: Say | Failure
        if match := re.match(r"fail-(\d+)-(\d+)(?:-after-(\S+))?$", model):
            status, times = int(match[1]), int(match[2])
            self.failed[model] = self.failed.get(model, 0) + 1
            kinds = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error"}
            headers = {"retry-after": match[3]} if match[3] else {}
            answer = (
                Failure(status, kinds.get(status, "api_error"), "slow down", headers)
                if self.failed[model] <= times
                else self.reply(asked)
            )
        else:
            answer = self.reply(asked)
        if isinstance(answer, Failure):
            error = {"type": "error", "error": {"type": answer.kind, "message": answer.message}}
            await self._json(wire, stream, answer.status, error, answer.headers)
            return True
        usage = {
            "input_tokens": self.usage_input(asked),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 10,
            "output_tokens": min(answer.output, asked["max_tokens"]),
        }
        self.spent_tokens += usage["input_tokens"] + 10 + usage["output_tokens"]
        if not asked.get("stream"):
            await self._json(wire, stream, 200, message(model, answer, usage), {})
            return True
        return await self._events(wire, stream, model, answer, usage)

    async def _json(
        self,
        wire: h11.Connection,
        stream: trio.SocketStream,
        status: int,
        body: dict[str, Any],
        headers: dict[str, str],
    ) -> None:
        raw = json.dumps(body).encode()
        told = {"content-type": "application/json", "content-length": str(len(raw)), **headers}
        await stream.send_all(
            (wire.send(h11.Response(status_code=status, headers=list(told.items()))) or b"")
            + (wire.send(h11.Data(data=raw)) or b"")
            + (wire.send(h11.EndOfMessage()) or b"")
        )

    async def _events(
        self, wire: h11.Connection, stream: trio.SocketStream, model: str, answer: Say, usage: dict[str, int]
    ) -> bool:
        headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        await stream.send_all(wire.send(h11.Response(status_code=200, headers=headers)) or b"")

        async def send(raw: bytes) -> None:
            await stream.send_all(wire.send(h11.Data(data=raw)) or b"")

        events = events_of(model, answer, usage)
        model = answer.manner or model
        if answer.pause_s:
            with trio.move_on_after(answer.pause_s):
                await stream.receive_some(1)  # until the client gives up
            return False
        for number, event in enumerate(events):
            if model == "slow":
                await trio.sleep(0.02)
            if number == len(events) // 2:
                if model == "stall":
                    await stream.receive_some(1)  # until the client gives up
                    return False
                if model == "drop" or (model == "drop-once" and self._first(model)):
                    return False
                if model == "malformed":
                    await send(b'event: content_block_delta\ndata: {"type": "content_blo\n\n')
                    continue
                if model == "cut":
                    break
                if model == "errmid":
                    wrong = {"type": "overloaded_error", "message": "Overloaded"}
                    await send(sse({"type": "error", "error": wrong}))
                    break
            await send(sse(event))
        await stream.send_all(wire.send(h11.EndOfMessage()) or b"")
        return True

    def _first(self, model: str) -> bool:
        self.failed[model] = self.failed.get(model, 0) + 1
        return self.failed[model] == 1


def message(model: str, answer: Say, usage: dict[str, int]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(answer.blocks),
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def events_of(model: str, answer: Say, usage: dict[str, int]) -> list[dict[str, Any]]:
    """The events of a streamed reply, each text and each tool's input in two pieces."""
    empty: dict[str, Any] = message(model, Say(), {**usage, "output_tokens": 1}) | {"stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}, {"type": "ping"}]
    begun: dict[str, Any]
    for index, block in enumerate(answer.blocks):
        if block["type"] == "text":
            begun, whole, kind, key = {"type": "text", "text": ""}, block["text"], "text_delta", "text"
        elif block["type"] == "thinking":
            begun, whole = {"type": "thinking", "thinking": "", "signature": ""}, block["thinking"]
            kind, key = "thinking_delta", "thinking"
        else:
            begun, whole = {**block, "input": {}}, block.get("raw", json.dumps(block["input"]))
            begun.pop("raw", None)
            kind, key = "input_json_delta", "partial_json"
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        half = len(whole) // 2
        events += [
            {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}}
            for piece in (whole[:half], whole[half:])
            if piece
        ]
        if block["type"] == "thinking":
            signed = {"type": "signature_delta", "signature": "signed"}
            events.append({"type": "content_block_delta", "index": index, "delta": signed})
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": answer.stop_reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": usage})
    events.append({"type": "message_stop"})
    return events


@asynccontextmanager
async def model_server(reply: Reply | None = None) -> AsyncIterator[ModelServer]:
    """Serve on a free port of the loopback for as long as the block runs."""
    server = ModelServer()
    if reply is not None:
        server.reply = reply
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(lambda task_status: _serve(server, task_status))
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()


async def _serve(server: ModelServer, task_status: trio.TaskStatus[Any]) -> None:  # noqa: ASYNC128 - serve_tcp calls it
    await trio.serve_tcp(server.serve, 0, host="127.0.0.1", task_status=task_status)
