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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from sid_daemon.log.files import Line, LogFiles
from sid_daemon.rpc.connection import Call, Connection
from sid_protocol.errors import Refused, UsageError
from sid_protocol.jsonrpc import encode_notification
from sid_protocol.log_levels import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from sid_protocol.status import SubscriptionResult

RING_BYTES = 1 << 20
FIRST_RECORDS = 20
"""How many records a subscription without a cursor begins with."""

SUBSCRIPTIONS = 16
"""Of one connection."""

READERS = 4
"""Threads that read old records for followers; the runs have others."""

IN_A_TURN = 16
"""Followers that records are handed on to in one turn of the loop: other work waits no longer than that takes."""

_BATCH_BYTES = 32_768
_BATCHES_KEPT = 64
_OVERHEAD_BYTES = 300


@dataclass(frozen=True, slots=True)
class Entry:
    """One record in the ring."""

    line: Line
    level: LogLevel
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
    level: LogLevel = "debug"
    actor: str | None = None

    def admits(self, entry: Entry) -> bool:
        """Return whether a record is wanted."""
        return (
            LOG_LEVELS.index(entry.level) >= LOG_LEVELS.index(self.level)
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
    return entry_of(line, record)


def entry_of(line: Line, record: Mapping[str, Any]) -> Entry:
    """Return a record as an entry; one without a known level counts as `info`."""
    level = record.get("level")
    return Entry(line, level if level in LOG_LEVELS else "info", record.get("run_id"), record.get("actor"))


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
        # Those that had to go are held no longer, and few are moved for it.
        if self._start > len(self._entries) // 8:
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


@dataclass(frozen=True, slots=True)
class _Batch:
    """What followers are sent at once: notifications, and the cursor that they lead to."""

    lines: bytes
    cursor: int


@dataclass(eq=False, slots=True)
class _Follower:
    number: int
    connection: Connection
    wanted: Filter
    cursor: int
    lost: int = 0
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    idle: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    """Where its task waits while the follower has all there is."""

    async def send(self, batch: _Batch) -> None:
        self.cursor = batch.cursor
        if batch.lines:
            await self.connection.send(batch.lines)
        else:
            await trio.lowlevel.checkpoint()

    def offer(self, batch: _Batch) -> bool:
        """Send a batch if the client takes it at once; whether it does."""
        if batch.lines and not self.connection.offer(batch.lines):
            return False
        self.cursor = batch.cursor
        return True

    async def tell_lost(self) -> None:
        lost, self.lost = self.lost, 0
        if lost:
            told = {"subscription": self.number, "count": lost}
            await self.connection.send(encode_notification("log.dropped", told))


def _batch_of(follower: _Follower, entries: Iterable[Entry], cursor: int, until: int | None = None) -> _Batch:
    """Return those of the records that a follower wants, as notifications; `until` is the last cursor to send."""
    number, admits = follower.number, follower.wanted.admits
    notices = [
        b'{"jsonrpc":"2.0","method":"log.record","params":{"subscription":%d,"cursor":%d,"record":%b}}\n'
        % (number, entry.line.cursor, entry.line.data)
        for entry in entries
        if admits(entry) and (until is None or entry.line.cursor <= until)
    ]
    return _Batch(b"".join(notices), cursor)


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
        self._known: dict[tuple[Connection, int], _Follower] = {}
        self._batches: dict[tuple[int, int, Filter], _Batch] = {}
        self._readers = trio.CapacityLimiter(READERS)
        self._closed = False

    def publish(self, entries: Sequence[Entry]) -> None:
        """Hand records on, each follower by its own task; to be called in the event loop, with growing cursors."""
        self._take(entries)
        for follower in self._live:
            follower.idle.unpark_all()

    async def hand_on(self, entries: Sequence[Entry]) -> None:
        """Hand records on as `publish` does, but at once to those who take them, a few followers in a turn of the loop.

        Waking a task costs several times what sending does; only a follower that cannot take a batch, or has more than one to
        take, is left to its own.
        """
        self._take(entries)
        for count, follower in enumerate([*self._live], 1):
            if follower.idle and not self._offer(follower):
                follower.idle.unpark_all()
            if count % IN_A_TURN == 0:
                await trio.lowlevel.checkpoint()

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
        from sid_protocol.status import SubscriptionResult  # not before the socket answers

        connection = call.connection
        if sum(1 for owner, _ in self._known if owner is connection) >= SUBSCRIPTIONS:
            raise Refused(f"a connection may have {SUBSCRIPTIONS} subscriptions", hint="end one of them")
        newest = self._ring.newest
        start = await self._start(wanted) if since is None else min(since, newest)
        follower = _Follower(connection.next_subscription(), connection, wanted, start)
        if not follow:
            await self._catch_up(follower, newest)
            return SubscriptionResult(subscription=follower.number, cursor=newest)
        self._known[connection, follower.number] = follower
        call.when_replied(lambda: self._follow(follower))
        return SubscriptionResult(subscription=follower.number, cursor=start)

    def unsubscribe(self, connection: Connection, number: int) -> None:
        """End a subscription (`log.unsubscribe`).

        Raises:
            UsageError: the connection has none of that number.
        """
        follower = self._known.pop((connection, number), None)
        if follower is None:
            raise UsageError(f"this connection has no subscription {number}", data={"field": "subscription"})
        follower.scope.cancel()

    def close(self) -> None:
        """Let every follower have what there is, and then end."""
        self._closed = True
        self.publish([])

    def _take(self, entries: Sequence[Entry]) -> None:
        """Put records into the ring, and count what followers lose by it."""
        self._batches.clear()
        evicted = self._ring.extend(entries)
        if not evicted:
            return
        missed: dict[tuple[int, Filter], int] = {}  # those who are behind mostly stand at one place
        for follower in self._live:
            if follower.cursor < self._ring.gone:
                place = follower.cursor, follower.wanted
                if place not in missed:
                    first = bisect.bisect_right(evicted, follower.cursor, key=_cursor_of)
                    missed[place] = sum(map(follower.wanted.admits, evicted[first:]))
                follower.lost += missed[place]
                follower.cursor = self._ring.gone

    def _offer(self, follower: _Follower) -> bool:
        """Send a follower what the ring holds for it, if it takes that at once and there is nothing else to tell it."""
        if follower.lost:
            return False
        batch = self._batch(follower)
        return batch is None or (follower.offer(batch) and batch.cursor == self._ring.newest)

    def _batch(self, follower: _Follower) -> _Batch | None:
        """Return what the ring has for a follower next, made once for all who stand at the same place; None: nothing."""
        if follower.cursor >= self._ring.newest:
            return None
        key = follower.cursor, follower.number, follower.wanted
        batch = self._batches.get(key)
        if batch is None:
            entries = self._ring.after(follower.cursor, _BATCH_BYTES)
            batch = _batch_of(follower, entries, entries[-1].line.cursor)
            if len(self._batches) < _BATCHES_KEPT:
                self._batches[key] = batch
        return batch

    async def _follow(self, follower: _Follower) -> None:
        try:
            with follower.scope:
                await self._catch_up(follower, None)
                self._live.add(follower)
                while True:
                    await follower.tell_lost()
                    if batch := self._batch(follower):
                        await follower.send(batch)
                    elif self._closed:
                        return
                    elif not follower.lost:
                        await follower.idle.park()
        finally:
            self._live.discard(follower)
            self._known.pop((follower.connection, follower.number), None)

    async def _catch_up(self, follower: _Follower, until: int | None) -> None:
        """Send what the files hold, until the ring goes on from there; or all, until a cursor."""
        while follower.cursor < (self._ring.gone if until is None else until):
            if follower.cursor < self._ring.gone:
                batch = await self._read_files(follower, until)
            elif entries := self._ring.after(follower.cursor, _BATCH_BYTES):
                batch = _batch_of(follower, entries, entries[-1].line.cursor, until)
            else:
                return
            await follower.tell_lost()
            await follower.send(batch)

    async def _read_files(self, follower: _Follower, until: int | None) -> _Batch:
        """Return the next records from the files; notes what is not there."""
        gone, cursor = self._ring.gone, follower.cursor
        batch, lost = await self._blocking_read(follower, until)
        if batch is None:
            # Neither in the files nor in the ring: the disk was broken then.
            follower.lost += gone - cursor
            return _Batch(b"", gone)
        follower.lost += lost
        return batch

    async def _blocking_read(self, follower: _Follower, until: int | None) -> tuple[_Batch | None, int]:
        files = self._files

        def read() -> tuple[_Batch | None, int]:
            lines, lost = files.read_after(follower.cursor, _BATCH_BYTES) if files else ([], 0)
            entries = filter(None, map(read_entry, lines))
            return (_batch_of(follower, entries, lines[-1].cursor, until) if lines else None), lost

        try:
            return await trio.to_thread.run_sync(read, limiter=self._readers)
        except OSError:
            return None, 0

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
