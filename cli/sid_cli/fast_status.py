"""`sictl status`, answered before click is imported: a socket, JSON, and text.

Called by `entry` for plain arguments and by the verb for all others. Imports the standard library and the few
modules here that do, so that it costs little more than starting Python; a test looks at what it loads.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from sid_cli import places, runs
from sid_cli.color import CHOICES
from sid_cli.console import Console
from sid_cli.status_text import Look, detail, fitted, one_line, overview
from sid_protocol.errors import NoDaemon, NoSuchRun, UsageError, WireError

_TIMEOUT_S = 10.0
_ROUNDS = 60
_LAST_EVENTS = 5
_VALUED = ("--socket", "--run", "--color", "--topic")
_FLAGS = ("--json", "--no-spawn", "--line")


class Wanted:
    """What `status` was asked for."""

    __slots__ = ("as_json", "color", "line", "run", "socket", "topic")

    def __init__(self) -> None:
        self.as_json = False
        self.line = False
        self.color = "auto"
        self.run: str | None = None
        self.socket: str | None = None
        self.topic: str | None = None


def parse(args: Sequence[str]) -> Wanted | None:
    """Read plain arguments of `status`; None for another verb or anything unusual, which click is for."""
    wanted, words, rest = Wanted(), [], list(args)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in _FLAGS and not equals:
            if name != "--no-spawn":
                setattr(wanted, {"--json": "as_json", "--line": "line"}[name], True)
        elif name in _VALUED:
            if not equals:
                if not rest:
                    return None
                value = rest.pop(0)
            setattr(wanted, name.removeprefix("--"), value)
        elif name.startswith("-") or equals:
            return None
        else:
            words.append(name)
    if not words or words[0] != "status" or len(words) > 2 or wanted.color not in CHOICES:
        return None
    if len(words) == 2:
        if wanted.run is not None:
            return None
        wanted.run = words[1]
    return wanted


def show(wanted: Wanted) -> int:
    """Print the status that was asked for and return the exit code.

    Raises:
        NoDaemon: nobody answers; `status` never starts a daemon.
        Refused: the daemon is another user's.
        SidError: the daemon says no, or no run fits.
    """
    path = places.own_socket(wanted.socket)
    console = Console(as_json=wanted.as_json, color=wanted.color)
    try:
        with _connected(path) as connection:
            try:
                _show(wanted, console, connection)
            except WireError as error:
                from sid_cli import foreign  # of no use to an answer

                raise foreign.refusal(path, connection) or error from None
    except NoDaemon:
        if wanted.line:
            return 0
        raise
    return 0


def _show(wanted: Wanted, console: Console, connection: socket.socket) -> None:
    info, listed = _call(connection, [("daemon.info", {}), ("run.list", {})])
    rows = listed["runs"]
    if wanted.run is None and not wanted.line and wanted.topic is None:
        if wanted.as_json:
            console.result({"daemon": info, "runs": rows}, "")
            return
        print_overview(console, connection, info, rows)
        return
    path = places.existing(wanted.run) if wanted.run is not None else None
    try:
        row = runs.choose(rows, text=wanted.run, path=path, cwd=places.here(), topic=wanted.topic)
    except (NoSuchRun, UsageError):
        if wanted.line and wanted.run is None:
            return
        raise
    (fresh,) = _call(connection, [("run.status", {"run": row["run_id"]})])
    if wanted.as_json:
        console.result({"run": fresh}, "")
    elif wanted.line:
        console.result({}, one_line(fresh))
    else:
        console.write(_detail(console, connection, fresh))


def print_overview(
    console: Console, connection: socket.socket, info: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    """Print the daemon and its runs, and the only active run in detail."""
    look = _look(console)
    console.write(fitted(overview(info, rows, look), look))
    active = [row for row in rows if runs.is_active(row)]
    if len(active) == 1:
        console.write(_detail(console, connection, active[0]))


def _detail(console: Console, connection: socket.socket, row: dict[str, Any]) -> str:
    run, since = {"run": row["run_id"]}, max(0, row["iteration"] - _ROUNDS)
    records: list[dict[str, Any]] = []
    asked = [("run.history", {**run, "since": since}), ("log.subscribe", {**run, "follow": False})]
    history, _ = _call(connection, asked, records)
    look = _look(console)
    return fitted(detail(row, history["rounds"], records[-_LAST_EVENTS:], look), look)


def _look(console: Console) -> Look:
    return Look(paint=console.paint, marks=console.marks, width=console.width)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_TIMEOUT_S)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, TimeoutError):
        connection.close()
        hint = "start one with 'systemctl --user start sid' or 'sictl start'"
        raise NoDaemon(f"no daemon at {path}", hint=hint) from None
    except OSError as error:
        connection.close()
        from sid_cli import foreign  # as above

        raise foreign.unusable(path, error) from None
    return connection


def _call(
    connection: socket.socket,
    calls: Sequence[tuple[str, dict[str, Any]]],
    records: list[dict[str, Any]] | None = None,
) -> list[Any]:
    """Send all requests at once and return their results in order; replies may come in any.

    Log records that come with them are appended to `records`.
    """
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(calls)
    ]
    results: dict[Any, Any] = {}
    try:
        connection.sendall("".join(f"{line}\n" for line in lines).encode())
        with connection.makefile("rb") as stream:
            while len(results) < len(calls):
                line = stream.readline()
                if not line:
                    raise WireError("lost the daemon: it closed the connection", hint="try again")
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise WireError(
                        "lost the daemon: it answered junk", hint="'sictl daemon shutdown' ends it"
                    )
                if "id" in message:
                    results[message["id"]] = _result(message)
                elif records is not None and message.get("method") == "log.record":
                    records.append(message["params"]["record"])
    except (OSError, ValueError) as error:
        raise WireError(f"lost the daemon: {error}", hint="try again") from None
    return [results[number] for number in range(len(calls))]


def _result(message: dict[str, Any]) -> Any:
    error = message.get("error")
    if error is None:
        return message.get("result")
    from sid_cli.client import error_of  # the whole table of errors, seldom needed here
    from sid_protocol.jsonrpc import ErrorObject

    raise error_of(ErrorObject(error["code"], error["message"], error.get("data")))


def quiet_stdout() -> None:
    """Point stdout at nothing, so that what is still buffered for a closed pipe is dropped in silence."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
