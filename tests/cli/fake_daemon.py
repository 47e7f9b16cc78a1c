"""A daemon for the tests of `sictl`: real JSON-RPC over a real socket, with answers that the test chooses.

Parameters and results are checked by the method table, so a test fails where `sictl` and the daemon would drift apart. Run as a
program it is a `sid` that `sictl` can start.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sid_protocol import rpc
from sid_protocol.errors import METHOD_NOT_FOUND, SidError
from sid_protocol.jsonrpc import (
    LineReader,
    Request,
    encode_error,
    encode_notification,
    encode_response,
    parse_line,
)

Answer = Callable[[dict[str, Any]], Any]


def run_row(**changes: Any) -> dict[str, Any]:
    """A row of `run.list`: a run in its third round, with what the test changes."""
    row: dict[str, Any] = {
        "run_id": "r7f3a9c2",
        "repo": "/src/primes",
        "topic": "default",
        "root": "/src/primes/.sid/topics/default",
        "status": "running",
        "iteration": 3,
        "max_iterations": 50,
        "current_step": "execution",
        "best_score": 812.4,
        "baseline": 616.2,
        "gain": 196.2,
        "interval": [809.3, 815.5],
        "counters": {
            "plateau": 1,
            "plateau_window": 3,
            "circuit_breaker": 0,
            "circuit_breaker_threshold": 3,
            "blocked": 0,
            "blocked_limit": 2,
            "force_kills": 0,
            "kill_threshold": 3,
        },
        "budget": {
            "usd": {"spent": 4.12, "limit": 20.0},
            "tokens": {"spent": 1_900_000, "limit": None},
            "calls": {"spent": 71, "limit": None},
            "wall_s": {"spent": 11520.0, "limit": None},
        },
        "actors": [
            {
                "id": "executor_1",
                "role": "executor",
                "state": "working",
                "doing": "bash: python -m pytest -q",
                "idle_s": 4.0,
                "left_s": 680.0,
                "family": "optimization",
                "score": None,
            },
            {
                "id": "executor_2",
                "role": "executor",
                "state": "benchmark",
                "doing": "benchmark 3/5",
                "idle_s": 0.0,
                "left_s": 185.0,
                "family": "architecture",
                "score": 798.1,
            },
        ],
        "goal_slug": "faster_sieve",
        "target": 1000.0,
        "metric": "ops",
    }
    return {**row, **changes}


def round_row(iteration: int, **changes: Any) -> dict[str, Any]:
    """A row of `run.history`."""
    row: dict[str, Any] = {
        "iteration": iteration,
        "status": "merged",
        "baseline_score": 600.0 + iteration,
        "score": 601.0 + iteration,
        "delta": 1.0,
        "gain": 0.0017,
        "family": "data",
        "hypothesis": f"hypothesis {iteration}",
        "commit": "a" * 40,
        "candidates": 3,
        "rejected": 1,
        "force_kills": 0,
        "duration_s": 60.0 * iteration,
    }
    return {**row, **changes}


class _UnknownMethod(SidError):
    rpc_code = METHOD_NOT_FOUND


NOBODY = 2**22 + 1
"""No process has this id: the kernel gives none so high."""


class FakeDaemon:
    """Serves `answers` (method → result, or a function of the parameters) on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.records: list[tuple[int, dict[str, Any]]] = []
        self.rows: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {
            "daemon.info": {"version": "0.1.0", "protocol": 1, "pid": NOBODY, "uptime_s": 60.0, "runs": 1},
            "daemon.shutdown": {},
            "run.list": lambda _: {"runs": self.rows},
            "run.status": self._status,
            "run.history": {"rounds": [], "next": None},
            "log.subscribe": self._subscribe,
        }
        self._subscribers: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._current = threading.local()
        self.after: dict[str, Callable[[], None]] = {}
        self.stopping = threading.Event()

    def start(self) -> None:
        """Listen; the socket answers when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.stopping.clear()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(16)
        self._run(self._accept, self._listener)

    def stop(self) -> None:
        """Close everything as a daemon that has died would, and wait for the threads."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self.path.unlink(missing_ok=True)
        with self._lock:
            victims = [listener, *self._open]
            self._subscribers.clear()
        for victim in victims:
            try:
                victim.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self.stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(10)
        self._threads.clear()
        listener.close()

    def push(self, event: str, **fields: Any) -> None:
        """Append a record to the log and tell every subscriber."""
        with self._lock:
            cursor = len(self.records) + 1
            stamp = "2026-03-01T12:03:41.000+00:00" if "timestamp" not in fields else fields.pop("timestamp")
            record = {"timestamp": stamp, "level": "info", "event": event, **fields}
            self.records.append((cursor, record))
            for subscriber in self._subscribers:
                subscriber.sendall(_notice(cursor, record))

    def drop(self, count: int) -> None:
        """Tell every subscriber that records were lost to it."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber.sendall(encode_notification("log.dropped", {"subscription": 1, "count": count}))

    def called(self, method: str) -> list[dict[str, Any]]:
        """The parameters of every call of a method."""
        return [params for name, params in self.calls if name == method]

    def _run(self, function: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.append(connection)
            self._run(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = LineReader()
        self._current.connection = connection
        with connection:
            while data := _received(connection):
                reader.receive(data)
                while (line := reader.next_line()) is not None:
                    for message in parse_line(line).messages:
                        if isinstance(message, Request):
                            self._answer(connection, message)
            with self._lock:
                self._open.remove(connection)
                self._subscribers = [one for one in self._subscribers if one is not connection]

    def _answer(self, connection: socket.socket, request: Request) -> None:
        try:
            reply = encode_response(request.id, self._result(request))
        except SidError as error:
            data = {**error.data, **({"hint": error.hint} if error.hint else {})}
            reply = encode_error(request.id, error.rpc_code, error.message, data or None)
        with self._lock:
            try:
                connection.sendall(reply)
            except OSError:
                return
        if after := self.after.get(request.method):
            self._run(after)

    def _result(self, request: Request) -> Any:
        method = rpc.METHODS.get(request.method)
        answer = self.answers.get(request.method)
        if method is None or answer is None:
            raise _UnknownMethod(f"Method not found: {request.method}")
        rpc.check_params(method, request.params)
        params = dict(request.params) if isinstance(request.params, dict) else {}
        self.calls.append((request.method, params))
        if isinstance(answer, SidError):
            raise answer
        result = answer(params) if callable(answer) else answer
        if isinstance(result, SidError):
            raise result
        return method.result.model_validate(result).model_dump(mode="json")

    def _status(self, params: dict[str, Any]) -> dict[str, Any]:
        return next(row for row in self.rows if row["run_id"] == params["run"])

    def _subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            wanted = [
                (cursor, record)
                for cursor, record in self.records
                if params.get("run") in (None, record.get("run_id"))
                and params.get("actor") in (None, record.get("actor"))
            ]
            since = params.get("since")
            wanted = wanted[-20:] if since is None else [one for one in wanted if one[0] > since]
            connection = self._current.connection
            for cursor, record in wanted:
                connection.sendall(_notice(cursor, record))
            if params.get("follow", True):
                self._subscribers.append(connection)
            return {"subscription": 1, "cursor": len(self.records) if since is None else since}


def _notice(cursor: int, record: dict[str, Any]) -> bytes:
    return encode_notification("log.record", {"subscription": 1, "cursor": cursor, "record": record})


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:
        return b""


def main() -> None:
    """Be `sid`: serve what FAKE_ANSWERS holds until the client says to shut down."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle-exit", type=float)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--demo-repo")
    options = parser.parse_args()
    given = json.loads(os.environ.get("FAKE_SID", "{}"))
    if options.demo_repo:
        print(json.dumps(given["demo"]))
        return
    if "fault" in given:
        os.write(options.ready_fd, f"{given['fault']}\n".encode())
        sys.exit(given.get("code", 1))
    if "crash" in given:
        sys.exit(f"sid: {given['crash']}")
    daemon = FakeDaemon(Path(os.environ["SID_SOCKET"]))
    leave = threading.Event()

    def shut_down(_params: dict[str, Any]) -> dict[str, Any]:
        leave.set()
        return {}

    daemon.rows = given.get("rows", [])
    daemon.answers.update({**given.get("answers", {}), "daemon.shutdown": shut_down})
    daemon.start()
    os.write(options.ready_fd, b"ready\n")
    os.close(options.ready_fd)
    leave.wait(60)
    daemon.stop()


if __name__ == "__main__":
    main()
