"""`sictl status`, answered before click is imported: a socket, JSON, and text.

Called by `entry` for plain arguments and by the verb for all others. It is typed by hand and stands in shell prompts, so
it costs about twice what starting Python does: it and what it imports load none of `typing`, `re`, `json`, `socket`
and `datetime` unless there is need; a test looks at what it loads.
"""

from __future__ import annotations

import os
import sys

from sid_cli import places, runs
from sid_cli.color import CHOICES
from sid_cli.console import Console
from sid_cli.fast_wire import Wire
from sid_cli.status_text import Look, detail, fitted, one_line, overview
from sid_protocol.errors import NoDaemon, NoSuchRun, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
        with Wire(path) as wire:
            _show(wanted, console, wire)
    except NoDaemon:
        if not wanted.line:
            raise
        console.result({"run": None}, "")
    return 0


def _show(wanted: Wanted, console: Console, wire: Wire) -> None:
    info, listed = wire.call([("daemon.info", {}), ("run.list", {})])
    rows = listed["runs"]
    if wanted.run is None and not wanted.line and wanted.topic is None:
        if wanted.as_json:
            console.result({"daemon": info, "runs": rows}, "")
            return
        print_overview(console, wire, info, rows)
        return
    path = places.existing(wanted.run) if wanted.run is not None else None
    try:
        row = runs.choose(rows, text=wanted.run, path=path, cwd=places.here(), topic=wanted.topic)
    except (NoSuchRun, UsageError):
        if not wanted.line or wanted.run is not None:
            raise
        console.result({"run": None}, "")
        return
    (fresh,) = wire.call([("run.status", {"run": row["run_id"]})])
    if wanted.as_json:
        # As with the other verbs, the fields of the call's result stand beside the schema; `run` is the same row whole.
        console.result({**fresh, "run": fresh}, "")
    elif wanted.line:
        console.result({}, one_line(fresh))
    else:
        console.write(_detail(console, wire, fresh))


def print_overview(console: Console, wire: Wire, info: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Print the daemon and its runs, and the only active run in detail."""
    look = _look(console)
    console.write(fitted(overview(info, rows, look), look))
    active = [row for row in rows if runs.is_active(row)]
    if len(active) == 1:
        console.write(_detail(console, wire, active[0]))


def _detail(console: Console, wire: Wire, row: dict[str, Any]) -> str:
    run, since = {"run": row["run_id"]}, max(0, row["iteration"] - _ROUNDS)
    records: list[dict[str, Any]] = []
    asked = [("run.history", {**run, "since": since}), ("log.subscribe", {**run, "follow": False})]
    history, _ = wire.call(asked, records)
    look = _look(console)
    return fitted(detail(row, history["rounds"], records[-_LAST_EVENTS:], look), look)


def _look(console: Console) -> Look:
    return Look(paint=console.paint, marks=console.marks, width=console.width)


def quiet_stdout() -> None:
    """Point stdout at nothing, so that what is still buffered for a closed pipe is dropped in silence."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
