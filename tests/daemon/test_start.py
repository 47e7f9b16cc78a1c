"""The daemon's start: what it answers before all is loaded, and what it has not loaded by then."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sid_protocol.status import DaemonInfo

FIRST = """
import sys
from sid_daemon.lean import import_structlog
import_structlog()
import sid_daemon.main, sid_daemon.app
"""
GATED = """
import sys

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name == "sid_daemon.assembly":
            sys.stdin.read()

sys.meta_path.insert(0, Gate())
from sid_daemon.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_little_is_loaded_before_the_socket_answers() -> None:
    late = {
        "pydantic",
        "pygit2",
        "asyncio",
        "rich",
        "sid_actors",
        "sid_protocol.rpc",
        "sid_protocol.status",
        "tomllib",
    }
    code = f"{FIRST}print(sorted({late!r} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "[]\n"


class Client:
    """One connection of a daemon whose methods are held back until `let_it_load`."""

    def __init__(self, connection: socket.socket, gate: IO[bytes]) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self.let_it_load = gate.close

    def ask(self, identity: int, method: str, **params: Any) -> None:
        request = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        self._connection.sendall(json.dumps(request).encode() + b"\n")

    def reply(self) -> Any:
        return json.loads(self._lines.readline())

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


@contextmanager
def gated_daemon(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    env = {
        **os.environ,
        "HOME": str(folder),
        "SID_SOCKET": str(folder / "s.sock"),
        "SID_STATE_DIR": str(folder / "state"),
        "SID_CONFIG": str(folder / "none.toml"),
    }
    read_end, write_end = os.pipe()
    words = [sys.executable, "-c", GATED, "--ready-fd", str(write_end)]
    with subprocess.Popen(words, env=env, pass_fds=(write_end,), stdin=subprocess.PIPE) as process:
        os.close(write_end)
        assert process.stdin is not None
        with os.fdopen(read_end, "rb") as ready, socket.socket(socket.AF_UNIX) as connection:
            assert ready.readline() == b"ready\n"
            connection.connect(env["SID_SOCKET"])
            client = Client(connection, process.stdin)
            try:
                yield process, client
            finally:
                client.let_it_load()
                client.close()
                process.terminate()
                assert process.wait(60) == 0


def test_what_daemon_it_is_is_told_before_all_is_loaded_and_the_rest_after(tmp_path: Path) -> None:
    with gated_daemon(tmp_path) as (process, client):
        client.ask(1, "run.list")
        client.ask(2, "daemon.info", unknown=1)
        client.ask(3, "daemon.info")
        first = client.reply()
        assert first["id"] == 3
        info = DaemonInfo.model_validate(first["result"])
        assert (info.pid, info.runs, info.socket) == (process.pid, 0, str(tmp_path / "s.sock"))

        client.let_it_load()
        later = {reply["id"]: reply for reply in (client.reply(), client.reply())}
        assert later[1]["result"] == {"runs": []}
        assert later[2]["error"]["code"] == -32602
        client.ask(4, "daemon.info")
        assert client.reply()["result"].keys() == first["result"].keys()


def test_a_daemon_that_is_told_to_leave_while_it_loads_leaves(tmp_path: Path) -> None:
    with gated_daemon(tmp_path) as (process, client):
        process.terminate()
        client.ask(1, "daemon.info")
        assert client.reply()["result"]["pid"] == process.pid
        client.let_it_load()
        assert process.wait(60) == 0
