"""Hands the log to those who follow it: one shared ring, and a cursor each.

`logs` publishes what it has written; `log.subscribe` and `log.unsubscribe` are served from here. A
record that is still in the ring costs a follower nothing but its sending; one that is asked for by an
older cursor is read from the files. A follower that is overtaken by the ring loses records, is told
how many, and holds up nobody. The rules come from the interfaces page, JSON-RPC and Log records.
"""

from __future__ import annotations

import bisect
import itertools
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from sid_daemon.connection import Call, Connection
from sid_daemon.store.log_files import Line, LogFiles
from sid_protocol.errors import Refused, UsageError
from sid_protocol.status import SubscriptionResult

RING_BYTES = 1 << 20
FIRST_RECORDS = 20
"""How many records a subscription without a cursor begins with."""

SUBSCRIPTIONS = 16
"""Of one connection."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_BATCH_BYTES = 32_768
_OVERHEAD_BYTES = 300


@dataclass(frozen=True, slots=True)
class Entry:
    """One record in the ring."""

    line: Line
    level: int
    run_id: str | None
    actor: str | None


_cursor_of = operator.attrgetter("line.cursor")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records a follower wants.

    Attributes:
        run_id: Of this run alone, or None for every record.
        level: At least so grave.
        actor: Of this actor alone, or None.
    """

    run_id: str | None = None
    level: str = "debug"
    actor: str | None = None

    def admits(self, entry: Entry) -> bool:
        """Return whether a record is wanted."""
        return (
            entry.level >= LEVELS[self.level]
            and self.run_id in (None, entry.run_id)
            and self.actor in (None, entry.actor)
        )

    def admits_data(self, data: bytes) -> bool:
        """Return whether a line of a log file is wanted; a torn one is not."""
        if self.run_id is not None and self.run_id.encode() not in data:
            return False
        entry = read_entry(Line(0, data))
        return entry is not None and self.admits(entry)


def read_entry(line: Line) -> Entry | None:
    """Return a line of a log file as an entry, or None if it is no record."""
    try:
        record = json.loads(line.data)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    return Entry(line, LEVELS.get(record.get("level", ""), 20), record.get("run_id"), record.get("actor"))


class Ring:
    """The newest records, limited in bytes.

    Args:
        limit_bytes: At most so much is kept, the newest record always.
        cursor: The last cursor before the first record.
    """

    def __init__(self, limit_bytes: int, cursor: int) -> None:
        self.gone = cursor
        """The newest cursor that is not in the ring any more."""
        self.newest = cursor
        self._limit_bytes = limit_bytes
        self._entries: list[Entry] = []
        self._start = 0
        self._bytes = 0

    def extend(self, entries: Sequence[Entry]) -> list[Entry]:
        """Add records, and return those that had to go for them, oldest first."""
        self._entries += entries
        self._bytes += sum(len(entry.line.data) + _OVERHEAD_BYTES for entry in entries)
        if entries:
            self.newest = entries[-1].line.cursor
        first = self._start
        while self._bytes > self._limit_bytes and self._start < len(self._entries) - 1:
            self._bytes -= len(self._entries[self._start].line.data) + _OVERHEAD_BYTES
            self._start += 1
        evicted = self._entries[first : self._start]
        if evicted:
            self.gone = evicted[-1].line.cursor
        if self._start > len(self._entries) // 2:
            del self._entries[: self._start]
            self._start = 0
        return evicted

    def after(self, cursor: int, limit_bytes: int) -> list[Entry]:
        """Return records after a cursor, about `limit_bytes` of them."""
        at = bisect.bisect_right(self._entries, cursor, lo=self._start, key=_cursor_of)
        found: list[Entry] = []
        size = 0
        for entry in itertools.islice(self._entries, at, None):
            found.append(entry)
            size += len(entry.line.data)
            if size >= limit_bytes:
                break
        return found

    def last(self, wanted: Filter, count: int) -> list[Entry]:
        """Return the last `count` records that are wanted, oldest first."""
        newest_first = (self._entries[i] for i in range(len(self._entries) - 1, self._start - 1, -1))
        return list(itertools.islice(filter(wanted.admits, newest_first), count))[::-1]


@dataclass(eq=False, slots=True)
class _Follower:
    number: int
    connection: Connection
    wanted: Filter
    cursor: int
    lost: int = 0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def pass_over(self, evicted: Sequence[Entry], gone: int) -> None:
        """Count what the ring gave up before this follower took it."""
        missed = evicted[bisect.bisect_right(evicted, self.cursor, key=_cursor_of) :]
        self.lost += sum(map(self.wanted.admits, missed))
        self.cursor = gone

    async def send(self, entries: Sequence[Entry]) -> None:
        notices = [
            b'{"jsonrpc":"2.0","method":"log.record","params":{"subscription":%d,"cursor":%d,"record":%b}}\n'
            % (self.number, entry.line.cursor, entry.line.data)
            for entry in entries
            if self.wanted.admits(entry)
        ]
        if notices:
            await self.connection.send(b"".join(notices))
        else:
            await trio.lowlevel.checkpoint()

    async def tell_lost(self) -> None:
        lost, self.lost = self.lost, 0
        if lost:
            params = b'{"subscription":%d,"count":%d}' % (self.number, lost)
            await self.connection.send(b'{"jsonrpc":"2.0","method":"log.dropped","params":%b}\n' % params)


class Subscribers:
    """Everybody who follows the log of this daemon.

    Args:
        files: Where older records are read from, or None if the disk is broken.
        cursor: The last cursor of the daemon before.
        ring_bytes: Size of the ring.
    """

    def __init__(self, files: LogFiles | None, cursor: int, ring_bytes: int = RING_BYTES) -> None:
        self._files = files
        self._ring = Ring(ring_bytes, cursor)
        self._live: set[_Follower] = set()
        self._known: dict[int, _Follower] = {}
        self._numbers = itertools.count(1)
        self._news = trio.lowlevel.ParkingLot()
        self._closed = False

    def publish(self, entries: Sequence[Entry]) -> None:
        """Hand records on; to be called in the event loop, with growing cursors."""
        evicted = self._ring.extend(entries)
        if evicted:
            for follower in self._live:
                if follower.cursor < self._ring.gone:
                    follower.pass_over(evicted, self._ring.gone)
        self._news.unpark_all()

    async def subscribe(
        self, call: Call, wanted: Filter, since: int | None, *, follow: bool = True
    ) -> SubscriptionResult:
        """Begin a subscription (`log.subscribe`); its records come after the reply.

        Args:
            call: The call, whose connection they go to.
            wanted: Which records.
            since: Records after this cursor; None for the last 20 that are wanted.
            follow: Go on with what comes. False: send what there is before the reply, and end.

        Raises:
            Refused: the connection has too many subscriptions.
        """
        mine = sum(1 for known in self._known.values() if known.connection is call.connection)
        if mine >= SUBSCRIPTIONS:
            raise Refused(f"a connection may have {SUBSCRIPTIONS} subscriptions", hint="end one of them")
        newest = self._ring.newest
        start = await self._start(wanted) if since is None else min(since, newest)
        follower = _Follower(next(self._numbers), call.connection, wanted, start)
        if not follow:
            await self._catch_up(follower, newest)
            return SubscriptionResult(subscription=follower.number, cursor=newest)
        self._known[follower.number] = follower
        call.when_replied(lambda: self._follow(follower))
        return SubscriptionResult(subscription=follower.number, cursor=start)

    def unsubscribe(self, connection: Connection, number: int) -> None:
        """End a subscription (`log.unsubscribe`).

        Raises:
            UsageError: the connection has none of that number.
        """
        follower = self._known.get(number)
        if follower is None or follower.connection is not connection:
            raise UsageError(f"this connection has no subscription {number}", data={"field": "subscription"})
        follower.scope.cancel()
        del self._known[number]

    def close(self) -> None:
        """Let every follower have what there is, and then end."""
        self._closed = True
        self._news.unpark_all()

    async def _follow(self, follower: _Follower) -> None:
        try:
            with follower.scope:
                await self._catch_up(follower, None)
                self._live.add(follower)
                while True:
                    await follower.tell_lost()
                    entries = self._ring.after(follower.cursor, _BATCH_BYTES)
                    if entries:
                        follower.cursor = entries[-1].line.cursor
                        await follower.send(entries)
                    elif self._closed:
                        return
                    elif not follower.lost:
                        await self._news.park()
        finally:
            self._live.discard(follower)
            self._known.pop(follower.number, None)

    async def _catch_up(self, follower: _Follower, until: int | None) -> None:
        """Send what the files hold, until the ring goes on from there; or all, until a cursor."""
        while follower.cursor < (self._ring.gone if until is None else until):
            if follower.cursor < self._ring.gone:
                entries = await self._read_files(follower)
            elif entries := self._ring.after(follower.cursor, _BATCH_BYTES):
                follower.cursor = entries[-1].line.cursor
            else:
                return
            await follower.tell_lost()
            await follower.send([e for e in entries if until is None or e.line.cursor <= until])

    async def _read_files(self, follower: _Follower) -> list[Entry]:
        """Return the next records from the files; moves the follower on in any case."""
        gone = self._ring.gone
        lines, lost = await self._blocking_read(follower.cursor)
        if not lines:
            # Neither in the files nor in the ring: the disk was broken then.
            follower.lost += gone - follower.cursor
            follower.cursor = gone
            return []
        follower.lost += lost
        follower.cursor = lines[-1].cursor
        return [entry for line in lines if (entry := read_entry(line))]

    async def _blocking_read(self, cursor: int) -> tuple[list[Line], int]:
        if self._files is None:
            return [], 0
        try:
            return await trio.to_thread.run_sync(self._files.read_after, cursor)
        except OSError:
            return [], 0

    async def _start(self, wanted: Filter) -> int:
        """Return the cursor before the last 20 records that are wanted."""
        cursors = [entry.line.cursor for entry in self._ring.last(wanted, FIRST_RECORDS)]
        newest = self._ring.newest
        if len(cursors) < FIRST_RECORDS and self._files is not None:
            try:
                lines = await trio.to_thread.run_sync(self._files.tail, wanted.admits_data, FIRST_RECORDS)
            except OSError:
                lines = []
            cursors += [line.cursor for line in lines]
        return min(cursors, default=newest + 1) - 1
