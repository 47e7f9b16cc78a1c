"""The socket under use and abuse: replies, order, errors, hang-ups, floods and silence."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio

from sid_daemon.rpc import connection as connection_module
from sid_daemon.rpc import server as server_module
from sid_daemon.rpc.connection import Call
from sid_daemon.rpc.dispatcher import Dispatcher
from sid_protocol.errors import NoSuchRun, SettingsInvalid
from sid_protocol.jsonrpc import LINE_LIMIT
from sid_protocol.params import RunParams
from sid_protocol.status import DaemonInfo, Empty, RunStatusResult
from tests.conftest import Spawn
from tests.daemon.rpc_world import World, serving

INFO = DaemonInfo(version="9.9", pid=1, uptime_s=0.0, runs=0, protocol=1)


class Daemon:
    """Methods that can be held, and that remember what became of them."""

    def __init__(self) -> None:
        self.gates: dict[str, trio.Event] = {}
        self.started: dict[str, trio.Event] = {}
        self.cancelled: dict[str, trio.Event] = {}
        self.ideas: list[str] = []
        self.idea_came = trio.Event()
        self.running = self.most = 0
        self.full = trio.Event()

    def hold(self, run: str) -> None:
        self.gates[run], self.started[run], self.cancelled[run] = (
            trio.Event(),
            trio.Event(),
            trio.Event(),
        )

    async def info(self, _params: Any, _call: Call) -> DaemonInfo:
        return INFO

    async def cancel(self, params: RunParams, _call: Call) -> RunStatusResult:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running == connection_module.CALLS:
            self.full.set()
        try:
            if params.run in self.gates:
                self.started[params.run].set()
                await self.gates[params.run].wait()
        except trio.Cancelled:
            self.cancelled[params.run].set()
            raise
        finally:
            self.running -= 1
        return RunStatusResult(status="user_stopped")

    async def pause(self, params: RunParams, _call: Call) -> dict[str, Any]:
        match params.run:
            case "gone":
                raise NoSuchRun("no run gone", hint="'sictl status' lists all")
            case "bad settings":
                raise SettingsInvalid("plateau_window", "must be at least 1")
            case "in a nursery":
                async with trio.open_nursery():
                    raise NoSuchRun("no run in a nursery")
            case "fault":
                raise ZeroDivisionError("secret detail")
            case "wrong result":
                return {"status": "no such status"}
        return {"status": "paused"}

    async def idea(self, params: Any, _call: Call) -> Empty:
        self.ideas.append(params.text)
        self.idea_came.set()
        return Empty()

    async def resume(self, params: RunParams, call: Call) -> RunStatusResult:
        async def tail() -> None:
            for number in range(3):
                await call.connection.send(b'{"tail": %d}\n' % number)

        call.when_replied(tail)
        return RunStatusResult(status="running")

    async def big(self, params: RunParams, _call: Call) -> dict[str, Any]:
        return {"diff": "x" * 1_000_000, "base": "", "head": "", "stat": ""}


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
async def world(short_dir: Path, daemon: Daemon) -> AsyncIterator[World]:
    async with open_world(short_dir, daemon) as world:
        yield world


def open_world(folder: Path, daemon: Daemon, **options: Any):
    handlers: dict[str, Any] = {
        "daemon.info": daemon.info,
        "run.cancel": daemon.cancel,
        "run.pause": daemon.pause,
        "run.resume": daemon.resume,
        "run.idea": daemon.idea,
        "run.diff": daemon.big,
    }
    return serving(folder, handlers, **options)


async def test_a_call_is_answered(world: World) -> None:
    client = await world.connect()
    await client.call("daemon.info", "seven")

    assert await client.read() == {"jsonrpc": "2.0", "id": "seven", "result": INFO.model_dump()}


async def test_a_faster_call_overtakes_a_slower_one(world: World, daemon: Daemon) -> None:
    daemon.hold("slow")
    client = await world.connect()
    await client.call("run.cancel", 1, run="slow")
    await client.call("run.cancel", 2, run="fast")

    assert (await client.read())["id"] == 2
    daemon.gates["slow"].set()
    assert (await client.read())["id"] == 1


@pytest.mark.parametrize(
    ("method", "params", "code", "said"),
    [
        ("run.cancle", {}, -32601, "did you mean run.cancel?"),
        ("run.plot", {"run": "abcd"}, -32601, "Method not found"),
        ("run.cancel", {}, -32602, "run: is missing"),
        ("run.cancel", {"run": 7}, -32602, "run: "),
        ("run.cancel", {"run": "abcd", "really": True}, -32602, "really: is not a parameter"),
        ("run.cancel", ["abcd"], -32602, "by name"),
        ("run.cancel", {"run": "../x"}, -32602, "absolute path"),
        ("run.cancel", {"run": "a\0bcd"}, -32602, "NUL"),
        ("run.pause", {"run": "gone"}, -32001, "'sictl status' lists all"),
        ("run.pause", {"run": "in a nursery"}, -32001, "no run in a nursery"),
        ("run.pause", {"run": "bad settings"}, -32005, "plateau_window"),
    ],
)
async def test_what_cannot_be_done_says_why(
    world: World, method: str, params: object, code: int, said: str
) -> None:
    client = await world.connect()
    await client.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    reply = await client.read()

    assert reply["error"]["code"] == code
    assert said in json.dumps(reply["error"], ensure_ascii=False)


@pytest.mark.parametrize("run", ["fault", "wrong result"])
async def test_a_faulty_method_costs_one_reply(world: World, run: str) -> None:
    client = await world.connect()
    error = await client.ask("run.pause", run=run)

    assert error["code"] == -32603
    assert "secret detail" not in json.dumps(error)
    assert world.notes.records[-1] == (
        "rpc_fault",
        {"method": "run.pause", "fault": error["data"]["fault"]},
    )
    assert (await client.ask("daemon.info"))["version"] == "9.9"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"junk", -32700),
        (b"", -32700),
        (b"\xff\x00\xfe", -32700),
        (b'{"jsonrpc":"2.0","method":"daemon.info","id":1', -32700),
        (b"[" * 65 + b"]" * 65, -32700),
        (b'{"jsonrpc":"2.0","method":"daemon.info","id":1,"id":2}', -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":7}', -32600),
    ],
)
async def test_junk_is_answered_and_the_connection_stays(world: World, line: bytes, code: int) -> None:
    client = await world.connect()
    await client.raw(line + b"\n")
    reply = await client.read()

    assert (reply["error"]["code"], reply["id"]) == (code, None)
    assert (await client.ask("daemon.info"))["version"] == "9.9"


@pytest.mark.parametrize("ends", [True, False], ids=["whole", "endless"])
async def test_a_line_too_long_is_answered_and_closes(world: World, daemon: Daemon, ends: bool) -> None:
    daemon.hold("slow")
    client = await world.connect()
    await client.call("run.cancel", 1, run="slow")
    await client.raw(b"x" * (LINE_LIMIT + 70_000) + (b"\n" if ends else b""))
    reply = await client.read()

    assert (reply["error"]["code"], reply["id"]) == (-32600, None)
    assert await client.read() is None
    assert daemon.cancelled["slow"].is_set()
    await client.stream.aclose()
    await world.until_clients(0)


async def test_a_line_may_be_as_long_as_the_limit(world: World) -> None:
    client = await world.connect()
    call = b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}'
    await client.raw(call + b" " * (LINE_LIMIT - len(call)) + b"\n")

    assert (await client.read())["id"] == 1


async def test_a_line_may_come_in_pieces_and_half_a_line_is_no_call(world: World, daemon: Daemon) -> None:
    client = await world.connect()
    for byte in b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}\n':
        await client.raw(bytes([byte]))
    assert (await client.read())["id"] == 1

    await client.raw(b'{"jsonrpc":"2.0","method":"run.idea","params":{"run":"abcd","text":"half"}}')
    await client.stream.aclose()
    await world.until_clients(0)
    assert daemon.ideas == []


async def test_a_batch_is_answered_as_one(world: World, daemon: Daemon) -> None:
    client = await world.connect()
    await client.send(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "daemon.info"},
            {"jsonrpc": "2.0", "method": "run.idea", "params": {"run": "abcd", "text": "quietly"}},
            7,
            {"jsonrpc": "2.0", "id": 2, "method": "no.such"},
            {"jsonrpc": "2.0", "method": "no.such"},
        ]
    )
    replies = await client.read()

    assert [(r["id"], r.get("error", {}).get("code")) for r in replies] == [
        (1, None),
        (None, -32600),
        (2, -32601),
    ]
    assert daemon.ideas == ["quietly"]


async def test_notifications_get_no_answer_and_are_carried_out(world: World, daemon: Daemon) -> None:
    client = await world.connect()
    await client.notify("run.pause", run="fault")
    await client.notify("no.such")
    await client.send(
        [{"jsonrpc": "2.0", "method": "run.idea", "params": {"run": "abcd", "text": "batched"}}]
    )
    await daemon.idea_came.wait()

    assert (await client.ask("daemon.info"))["version"] == "9.9"


async def test_a_notification_of_a_client_that_left_at_once_is_carried_out(
    world: World, daemon: Daemon
) -> None:
    for number in range(20):
        daemon.idea_came = trio.Event()
        with socket.socket(socket.AF_UNIX) as plain:
            plain.connect(world.listening.path)
            idea = {"run": "abcd", "text": str(number)}
            plain.sendall(
                json.dumps({"jsonrpc": "2.0", "method": "run.idea", "params": idea}).encode() + b"\n"
            )
        with trio.fail_after(5):
            await daemon.idea_came.wait()

    assert daemon.ideas == [str(number) for number in range(20)]


async def test_a_call_ends_when_its_client_hangs_up(world: World, daemon: Daemon) -> None:
    daemon.hold("slow")
    client = await world.connect()
    await client.call("run.cancel", run="slow")
    await daemon.started["slow"].wait()
    await client.stream.aclose()

    with trio.fail_after(5):
        await daemon.cancelled["slow"].wait()
        await world.until_clients(0)


async def test_hanging_up_is_seen_even_while_nothing_is_read(world: World, daemon: Daemon) -> None:
    daemon.hold("slow")
    client = await world.connect()
    for number in range(connection_module.CALLS + 1):
        await client.call("run.cancel", number, run="slow")
    await daemon.full.wait()
    await client.stream.aclose()

    with trio.fail_after(5):
        await world.until_clients(0)
    assert daemon.running == 0


async def test_a_client_that_closed_its_sending_side_still_gets_its_answers(
    world: World, daemon: Daemon
) -> None:
    daemon.hold("slow")
    client = await world.connect()
    await client.call("run.cancel", 1, run="slow")
    await client.call("run.resume", 2, run="abcd")
    await client.stream.send_eof()
    await daemon.started["slow"].wait()
    assert (await client.read())["id"] == 2
    assert [await client.read() for _ in range(3)] == [{"tail": 0}, {"tail": 1}, {"tail": 2}]
    daemon.gates["slow"].set()

    assert (await client.read())["id"] == 1
    assert await client.read() is None


async def test_what_follows_a_reply_comes_after_it(world: World) -> None:
    client = await world.connect()
    await client.send(
        [
            {"jsonrpc": "2.0", "id": 1, "method": "run.resume", "params": {"run": "abcd"}},
            {"jsonrpc": "2.0", "id": 2, "method": "daemon.info"},
        ]
    )
    assert [reply["id"] for reply in await client.read()] == [1, 2]
    assert [await client.read() for _ in range(3)] == [{"tail": 0}, {"tail": 1}, {"tail": 2}]


async def test_one_client_runs_so_many_calls_at_once_and_no_more(world: World, daemon: Daemon) -> None:
    daemon.hold("slow")
    client, other = await world.connect(), await world.connect()
    for number in range(100):
        await client.call("run.cancel", number, run="slow")
    await daemon.started["slow"].wait()
    assert (await other.ask("daemon.info"))["version"] == "9.9"
    daemon.gates["slow"].set()

    assert {(await client.read())["id"] for _ in range(100)} == set(range(100))
    assert daemon.most == connection_module.CALLS


async def test_a_client_that_does_not_read_holds_up_nobody(world: World, daemon: Daemon) -> None:
    stuck, other = await world.connect(), await world.connect()
    async with trio.open_nursery() as nursery:

        async def flood() -> None:
            for number in range(10_000):
                await stuck.call("run.diff", number, run="abcd")

        nursery.start_soon(flood)
        for _ in range(50):
            assert (await other.ask("daemon.info"))["version"] == "9.9"
        nursery.cancel_scope.cancel()
    await stuck.stream.aclose()
    with trio.fail_after(10):
        await world.until_clients(1)


async def test_two_hundred_clients_at_once(world: World) -> None:
    done = 0

    async def talk() -> None:
        nonlocal done
        client = await world.connect()
        for _ in range(5):
            assert (await client.ask("daemon.info"))["version"] == "9.9"
        done += 1
        await client.stream.aclose()

    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(talk)

    assert done == 200
    with trio.fail_after(5):
        await world.until_clients(0)


async def test_one_client_too_many_is_told_so(short_dir: Path, daemon: Daemon) -> None:
    async with open_world(short_dir, daemon, connections=2) as world:
        first, second = await world.connect(), await world.connect()
        await first.ask("daemon.info")
        await second.ask("daemon.info")
        third = await world.connect()
        refused = await third.read()
        assert "too many clients (2)" in refused["error"]["message"]
        assert await third.read() is None

        await first.stream.aclose()
        await world.until_clients(1)
        fourth = await world.connect()
        assert (await fourth.ask("daemon.info"))["version"] == "9.9"


async def test_whoever_comes_after_many_is_taken_with_them(short_dir: Path, daemon: Daemon) -> None:
    """Turns of the loop are counted, since each is long where many clients ask."""
    many = 128
    async with open_world(short_dir, daemon, connections=many) as world:
        with contextlib.ExitStack() as clients:
            for _ in range(many):
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(world.listening.path)
            turns = 0
            while world.server.clients < many:
                await trio.lowlevel.checkpoint()
                turns += 1
    assert turns < many / 4


async def test_of_many_calls_a_few_begin_in_a_turn_of_the_loop(short_dir: Path) -> None:
    """What else the daemon does takes its turn between them."""
    many, turn = 8 * server_module.TURNS, 0
    begun: Counter[int] = Counter()

    async def info(_params: Any, _call: Call) -> DaemonInfo:  # noqa: ASYNC124 - a method is one
        begun[turn] += 1
        return INFO

    async with serving(short_dir, {"daemon.info": info}, connections=many) as world:
        clients = [await world.connect() for _ in range(many)]
        await world.until_clients(many)
        request = {"jsonrpc": "2.0", "id": 1, "method": "daemon.info", "params": {}}
        for client in clients:  # without a turn of the loop in between, so that all are there at once
            os.write(client.stream.socket.fileno(), json.dumps(request).encode() + b"\n")
        while begun.total() < many:
            await trio.lowlevel.checkpoint()
            turn += 1
    # Before and after this task has its own.
    assert max(begun.values()) <= 2 * server_module.TURNS


async def test_stopping_lets_calls_end_and_replies_arrive(short_dir: Path, daemon: Daemon) -> None:
    daemon.hold("slow")
    async with open_world(short_dir, daemon) as world:
        client = await world.connect()
        await client.call("run.cancel", 1, run="slow")
        await daemon.started["slow"].wait()
        daemon.gates["slow"].set()
        await world.server.finish()
        assert (await client.read())["id"] == 1
        assert await client.read() is None


async def test_stopping_does_not_wait_for_ever(
    short_dir: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "GRACE_S", 0.05)
    daemon.hold("slow")
    with trio.fail_after(10):
        async with open_world(short_dir, daemon) as world:
            client, stuck = await world.connect(), await world.connect()
            await client.call("run.cancel", 1, run="slow")
            for number in range(20):
                await stuck.call("run.diff", number, run="abcd")
            await daemon.started["slow"].wait()
            world.server.stop()
    assert daemon.cancelled["slow"].is_set()


async def test_discovery_describes_every_method(world: World) -> None:
    client = await world.connect()
    document = await client.ask("rpc.discover")

    assert document["info"]["version"] == "9.9"
    methods = {method["name"]: method for method in document["methods"]}
    schema = {**methods["daemon.info"]["result"]["schema"], "components": document["components"]}
    jsonschema.validate(await client.ask("daemon.info"), schema)


def test_a_handler_without_a_method_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"run\.fly"):
        Dispatcher({"run.fly": Daemon().info})


PEER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
try:
    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}\\n')
    print(s.recv(1000))
except (BrokenPipeError, ConnectionResetError):
    print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_not_served(world: World, short_dir: Path, real_process: Spawn) -> None:
    for folder in (Path(world.listening.path), *Path(world.listening.path).parents[:3]):
        folder.chmod(0o777)  # the kernel's own wall, taken down to see ours
    child = real_process([sys.executable, "-c", PEER, world.listening.path], stdout=-1, cwd="/")
    output = await trio.to_thread.run_sync(lambda: child.communicate()[0])

    assert output == b"b''\n"
    assert world.notes.events() == ["rpc_peer_refused"]


async def test_only_the_owner_is_served(short_dir: Path, daemon: Daemon) -> None:
    if os.geteuid() == 0:
        pytest.skip("root is served by everybody's daemon")
    async with open_world(short_dir, daemon, owner_uid=os.geteuid() + 1) as world:
        client = await world.connect()
        assert await client.read() is None


async def test_noise_of_any_kind_leaves_the_server_well(world: World) -> None:
    dice = random.Random(7)
    whole = [
        b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}\n',
        b'[{"jsonrpc":"2.0","id":1,"method":"run.pause","params":{"run":"abcd"}},1]\n',
        b'{"jsonrpc":"2.0","method":"run.idea","params":{"run":"abcd","text":"\\ud800"}}\n',
        b'{"jsonrpc":"2.0","id":{"a":[]},"method":[],"params":{}}\n',
        b"\n\r\n\0\n",
    ]
    for _ in range(60):
        client = await world.connect()
        data = bytearray(b"".join(dice.choices(whole, k=dice.randint(1, 8))))
        for _ in range(dice.randint(0, 6)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        await client.raw(bytes(data[: dice.randint(1, len(data))]))
        if dice.random() < 0.5:
            await client.stream.send_eof()
            while await client.read() is not None:
                pass
        await client.stream.aclose()

    last = await world.connect()
    assert (await last.ask("daemon.info"))["version"] == "9.9"
    assert "rpc_fault" not in world.notes.events()
