"""Clients that send junk, too much, or nothing, and very many of them, while a run goes on."""

from __future__ import annotations

import contextlib
import socket

from tests.e2e.harness import World
from tests.e2e.test_lifecycle import check_every_round_once
from tests.repos import Repo

MIB = 1 << 20


def test_bad_clients_cost_a_run_nothing(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "wait": "gate"})
    world.daemon()
    world.init(numbers, agent)
    with world.wire() as good, contextlib.ExitStack() as stack:
        good.follow()
        world.sictl("start", numbers.path, "--rounds", "2")
        silent = [stack.enter_context(world.wire()) for _ in range(100)]
        half = stack.enter_context(world.wire())
        half.send(b'{"jsonrpc": "2.0", "id": 1, "meth')

        junk = stack.enter_context(world.wire())
        for line, code in (
            (b"junk", -32700),
            (b"\xff\xfe\x00", -32700),
            (b"[" * 70 + b"]" * 70, -32700),
            (b"[]", -32600),
            (b'{"jsonrpc": "2.0", "id": 1}', -32600),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "no.such"}', -32601),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "run.status", "params": {"run": "a\\u0000b"}}', -32602),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "run.status", "params": {"run": "../x"}}', -32602),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "run.status", "params": {"florp": 1}}', -32602),
        ):
            junk.send(line + b"\n")
            answer = junk.line()
            assert answer is not None
            assert answer["error"]["code"] == code, line[:60]

        long = stack.enter_context(world.wire())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            long.send(b"x" * (MIB + 2) + b"\n")
        answer = long.line()
        assert answer is not None
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        with contextlib.suppress(ConnectionResetError):
            assert long.line() is None, "the connection stayed open"

        deaf = stack.enter_context(world.wire())
        deaf.call("log.subscribe", since=0)
        deaf.socket.shutdown(socket.SHUT_RD)
        silent[0].socket.close()

        agent.open_gate("gate")
        assert good.until("run_ended")["status"] == "max_iterations"
        # Who was silent all the time is still served.
        assert silent[-1].call("daemon.info")["pid"] == world.daemon_pid()
    check_every_round_once(numbers, 2)
