"""Following a run to its end: a live block on a terminal, a line an event elsewhere.

Called by `start --wait` and `demo`. Follows by subscription alone; what is drawn is made by pure functions.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from sid_cli.console import Console
from sid_cli.log_text import log_line
from sid_cli.runs import is_active
from sid_cli.since import is_before
from sid_cli.status_text import Look, detail
from sid_cli.stream import Dropped, Follower, Notice, Reconnected, Record
from sid_cli.text import clean_lines

EXIT_CODES = {
    "target_reached": 0,
    "plateau": 0,
    "max_iterations": 0,
    "circuit_breaker": 10,
    "blocked": 10,
    "user_stopped": 11,
    "budget": 12,
    "failed": 1,
}
"""How a run ended → what `start --wait` leaves with."""

_FRAME_S = 0.25
_TICK_S = 1.0
_LAST_EVENTS = 5
_ROUNDS = 60
_LAST_WORDS_S = 1.0
_CLOCK_GRAIN = timedelta(milliseconds=2)
"""Log times may be cut to milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended: its last row, the summary as text, and the same as data."""

    row: dict[str, Any]
    text: str
    fields: dict[str, Any]

    @property
    def status(self) -> str:
        """How it ended, such as `plateau`."""
        return str(self.row["status"])

    @property
    def exit_code(self) -> int:
        """What `start --wait` leaves with."""
        return EXIT_CODES.get(self.status, 1)

    @property
    def shown(self) -> str:
        """The summary for a terminal: hypotheses in it were written by agents."""
        return clean_lines(self.text.rstrip("\n"))


def start_and_follow(
    path: str,
    start: Mapping[str, Any],
    console: Console,
    *,
    started: Callable[[dict[str, Any]], None],
    method: str = "run.start",
) -> Outcome:
    """Start a run, follow it until it has ended, and tell how it ended.

    Args:
        path: The daemon's socket.
        start: Parameters of the method.
        console: Where to show what happens; nothing is shown with `--json`.
        started: Called once with its result.
        method: What starts it.

    Raises:
        SidError: the run was not started.
        NoDaemon: the daemon was gone for longer than it takes to restart.
    """
    outcome: Outcome = anyio.run(functools.partial(_follow, path, method, start, console, started))
    return outcome


async def _follow(
    path: str,
    method: str,
    start: Mapping[str, Any],
    console: Console,
    started: Callable[[dict[str, Any]], None],
) -> Outcome:
    # Subscribed before it starts, so that nothing is missed; what is older is left out by its time. To all runs,
    # since a track whose database was lost goes on as a new one.
    began = datetime.now(UTC) - _CLOCK_GRAIN
    async with Follower(path, level="info") as follower:
        result = await follower.call(method, dict(start), timeout_s=None, again=False)
        started(result)
        run = {"run": result["run_id"]}
        end: Mapping[str, Any] = {}
        if is_active(result):
            watch = _Watch(follower, result["run_id"], began)
            show = _on_screen if console.is_screen and not console.as_json else _in_lines
            end = await show(watch, console)
        row = await follower.call("run.status", run)
        summary = await follower.call("run.summary", run)
    if is_active(row) and "status" in end:  # the record may be ahead of the state that others see
        row = {**row, "status": end["status"]}
    return Outcome(row=row, text=summary["text"], fields=summary["fields"])


class _Watch:
    """The notices of one run from a moment on, and whether it has ended."""

    def __init__(self, follower: Follower, run_id: str, began: datetime) -> None:
        self.follower = follower
        self.run_id = run_id
        self._began = began
        self._has_begun = False
        self._is_doubtful = False
        self._over_at: float | None = None

    async def next(self) -> Notice:
        """Return what comes next of this run; may be cancelled without losing anything."""
        while True:
            notice = await self.follower.next()
            if not isinstance(notice, Record):
                return notice
            if notice.record.get("run_id") == self.run_id and not is_before(notice.record, self._began):
                return notice

    async def picture(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return the run's row and its last rounds."""
        row = await self.follower.call("run.status", {"run": self.run_id})
        since = max(0, row["iteration"] - _ROUNDS)
        history = await self.follower.call("run.history", {"run": self.run_id, "since": since})
        return row, history["rounds"]

    async def end(self, notice: Notice) -> dict[str, Any] | None:
        """Return the record of the run's end if this is it.

        Before the record of its beginning it may be the end that another client's stop made, which this start came after.
        """
        if isinstance(notice, Reconnected) and not await self._is_active():
            self._over_at = time.monotonic() + _LAST_WORDS_S
        record = notice.record if isinstance(notice, Record) else {}
        if record.get("event") == "run_started":
            self._has_begun, self._is_doubtful, self._over_at = True, False, None
        if record.get("event") != "run_ended":
            return None
        self._is_doubtful = not self._has_begun
        return record if self._has_begun else None

    async def _is_active(self) -> bool:
        return is_active(await self.follower.call("run.status", {"run": self.run_id}))

    async def is_over(self) -> bool:
        """Say whether the run has ended untold.

        Its daemon was killed in that moment, and the next one has no more to tell; or the run had begun before this
        client could be told of it.
        """
        if self._is_doubtful and self._over_at is None and not await self._is_active():
            self._over_at = time.monotonic() + _LAST_WORDS_S
        return self._over_at is not None and time.monotonic() > self._over_at


async def _in_lines(watch: _Watch, console: Console) -> Mapping[str, Any]:
    while not await watch.is_over():
        notice: Notice | None = None
        with anyio.move_on_after(_TICK_S):
            notice = await watch.next()
        if notice is None:
            continue
        console.say(told(notice, console))
        if end := await watch.end(notice):
            return end
    return {}


def told(notice: Notice, console: Console) -> str:
    """Return what came as one line."""
    match notice:
        case Record(record=record):
            return log_line(record, console.paint)
        case Dropped(count=count):
            return console.paint(f"({count} records were dropped)", "yellow")
        case Reconnected(seconds=seconds):
            return console.paint(f"(the daemon was away for {seconds:.0f} s)", "yellow")


async def _on_screen(watch: _Watch, console: Console) -> Mapping[str, Any]:
    from rich.console import Console as Screen
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    records: deque[dict[str, Any]] = deque(maxlen=_LAST_EVENTS)
    row, rounds = await watch.picture()
    read_at = drawn_at = time.monotonic()
    dirty = True
    # Live starts a thread that draws by the clock unless it is told not to.
    with Live(console=Screen(), auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        while not await watch.is_over():
            notice: Notice | None = None
            with anyio.move_on_after(
                max(0.0, drawn_at + (_FRAME_S if dirty else _TICK_S) - time.monotonic())
            ):
                notice = await watch.next()
                dirty = True
            if isinstance(notice, Record):
                records.append(notice.record)
            if notice is not None and (end := await watch.end(notice)):
                return end
            if time.monotonic() - drawn_at < _FRAME_S:
                continue
            if dirty:
                (row, rounds), read_at = await watch.picture(), time.monotonic()
            drawn_at, dirty = time.monotonic(), False
            frame = detail(aged(row, drawn_at - read_at), rounds, list(records), _look(console))
            lines = frame.split("\n")
            events = len(lines) - len(records)
            live.update(
                Group(
                    Text.from_ansi("\n".join(lines[:events])),
                    Text.from_ansi("\n".join(lines[events:]), no_wrap=True, overflow="ellipsis"),
                ),
                refresh=True,
            )
    return {}


def aged(row: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return a run as it looks so many seconds later if nothing happened: only its clocks have moved."""
    actors = [
        {
            **actor,
            "idle_s": None if actor["idle_s"] is None else actor["idle_s"] + seconds,
            "left_s": None if actor["left_s"] is None else max(0.0, actor["left_s"] - seconds),
        }
        for actor in row["actors"]
    ]
    return {**row, "actors": actors}


def _look(console: Console) -> Look:
    return Look(paint=console.paint, marks=console.marks, width=console.width)
