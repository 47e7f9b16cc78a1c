"""`sictl attach` and `sictl logs`: the structured log, the last records and then live."""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import click

from sid_cli.client import Client
from sid_cli.console import Console, json_line
from sid_cli.follow import told
from sid_cli.log_text import log_body
from sid_cli.options import completed, run_argument, topic_option, verb
from sid_cli.runs import is_active
from sid_cli.session import Session
from sid_cli.since import is_before, parse_since
from sid_cli.stream import Dropped, Follower, Notice, Record, log_filter, notice_of
from sid_cli.text import clean_lines
from sid_protocol.errors import NoSuchRun, SidError, UsageError
from sid_protocol.jsonrpc import Notification
from sid_protocol.log_levels import LOG_LEVELS


@verb(
    "attach",
    example="sictl attach\nsictl attach --since 2h --no-follow\nsictl attach --json | jq .event\n"
    "sictl attach --no-follow --cursor-file ~/.cache/sid.cursor",
)
@run_argument
@topic_option
@click.option(
    "--since", metavar="N|10m|2h|TIME", help="Start at a cursor or a time.  [default: the last 20 records]"
)
@click.option(
    "--cursor-file",
    metavar="FILE",
    shell_complete=completed("file"),
    type=click.Path(dir_okay=False),
    help="Start after the cursor in FILE, and save the last one there.",
)
@click.option(
    "--follow/--no-follow", default=True, help="Keep following, or exit after the records that there are."
)
@click.option("--level", type=click.Choice(LOG_LEVELS), help="Only records of this level or above.")
@click.option("--actor", metavar="A", help="Only one actor, such as executor_2.")
@click.option("--output", type=click.Choice(("json", "text")), help="One JSON document per line, or text.")
def command(
    session: Session,
    *,
    run: str | None,
    topic: str | None,
    since: str | None,
    cursor_file: str | None,
    follow: bool,
    level: str | None,
    actor: str | None,
    output: str | None,
) -> None:
    """Follow a run's log; without any run, the daemon's. Ctrl-C detaches: the run goes on."""
    session.streams = True
    mark = CursorFile(Path(cursor_file)) if cursor_file is not None else None
    kept = mark.read() if mark is not None else None
    moment = parse_since(since, datetime.now(UTC)) if since is not None and kept is None else kept
    oldest = moment if isinstance(moment, datetime) else None
    cursor = 0 if isinstance(moment, datetime) else moment
    printer = Printer(session.console, as_json=output == "json" or (session.as_json and output is None))

    def show(notice: Notice) -> None:
        if oldest is None or not _too_old(notice, oldest):
            printer.show(notice)
        if mark is not None and isinstance(notice, Record):
            mark.write(notice.cursor)

    with session.daemon(spawn=False) as client:
        run_id = _meant(session, client, run, topic)
        if not follow:
            _what_there_is(client, log_filter(run=run_id, level=level, actor=actor), cursor, show)
    if follow:
        follower = Follower(session.socket_path, run=run_id, level=level, actor=actor, since=cursor)
        anyio.run(functools.partial(_follow, follower, show))
    printer.end()


def _what_there_is(
    client: Client, wanted: dict[str, Any], cursor: int | None, show: Callable[[Notice], None]
) -> None:
    def each(message: Notification) -> None:
        notice = notice_of(message)
        if notice is not None:
            show(notice)

    since = {} if cursor is None else {"since": cursor}
    client.call("log.subscribe", {**wanted, **since, "follow": False}, timeout_s=None, each=each)


async def _follow(follower: Follower, show: Callable[[Notice], None]) -> None:
    async with follower:
        if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            await _show_all(follower, show)
        # A pipe may be closed in a quiet hour, when nothing is written that would tell.
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(_until_unread, group.cancel_scope)
            try:
                await _show_all(follower, show)
            except (SidError, OSError) as error:  # which the group would wrap
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure


async def _show_all(follower: Follower, show: Callable[[Notice], None]) -> None:
    while True:
        show(await follower.next())


async def _until_unread(scope: anyio.CancelScope) -> None:
    # The writing end of a pipe becomes readable only by its error: nobody reads it any more.
    await anyio.wait_readable(sys.stdout.fileno())
    scope.cancel()


def _meant(session: Session, client: Client, run: str | None, topic: str | None) -> str | None:
    try:
        row = session.row(client, run, topic)
    except NoSuchRun:
        if run is not None or session.run is not None:
            raise
        session.interrupt_note = "the daemon goes on"
        return None
    run_id: str = row["run_id"]
    if is_active(row):
        session.interrupt_note = f"the run goes on; stop it with 'sictl stop {run_id}'"
    return run_id


def _too_old(notice: Notice, oldest: datetime) -> bool:
    # Asked for a time, what is no longer kept from before it is no loss.
    return isinstance(notice, Dropped) or (isinstance(notice, Record) and is_before(notice.record, oldest))


class CursorFile:
    """The cursor of the last record that a script has had, in a file of its own.

    Args:
        path: The file; it need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> int | None:
        """Return the cursor, None where there is none yet.

        Raises:
            UsageError: the file holds something else, or cannot be read.
        """
        try:
            text = self._path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            if not self._path.parent.is_dir():
                raise UsageError(f"there is no folder {self._path.parent} for the cursor file") from None
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self._path} cannot be read as a cursor file: {error}") from None
        if not text.isdecimal():
            raise UsageError(
                f"{self._path} holds no cursor", hint="remove it, or name a file that attach wrote"
            )
        return int(text)

    def write(self, cursor: int) -> None:
        """Put a cursor there, whole or not at all.

        Raises:
            UsageError: it cannot be written.
        """
        beside = self._path.with_name(f".{self._path.name}.new")
        try:
            beside.write_text(f"{cursor}\n", encoding="ascii")
            beside.replace(self._path)
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}") from None


class Printer:
    """Prints notices; on a terminal, lines that only repeat the one before are counted instead.

    Args:
        console: Where to.
        as_json: Whether to print a JSON document a line.
    """

    def __init__(self, console: Console, *, as_json: bool) -> None:
        self._console = console
        self._as_json = as_json
        self._folds = sys.stdout.isatty()
        self._last = ""
        self._repeats = 0

    def show(self, notice: Notice) -> None:
        """Print one notice."""
        if self._as_json:
            self._console.write(_document(notice))
            return
        body = log_body(notice.record, self._console.paint) if isinstance(notice, Record) else ""
        if self._folds and body and body == self._last:
            self._repeats += 1
            return
        self.end()
        self._last = body
        self._console.write(told(notice, self._console))
        if isinstance(notice, Record) and isinstance(summary := notice.record.get("summary"), str):
            self._console.write(clean_lines(summary.rstrip("\n")))

    def end(self) -> None:
        """Print what has been counted."""
        if self._repeats:
            self._console.write(f"(repeated {self._repeats} times)")
        self._last, self._repeats = "", 0


def _document(notice: Notice) -> str:
    match notice:
        case Record(cursor=cursor, record=record):
            content: dict[str, Any] = {"cursor": cursor, **record}
        case Dropped(count=count):
            content = {"event": "log_dropped", "count": count}
        case _:
            content = {"event": "log_reconnected", "seconds": round(notice.seconds, 3)}
    return json_line(content)
