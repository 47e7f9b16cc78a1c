"""The structured log: every record gets a cursor and reaches the file, the journal and each follower.

`app` makes one `Logs` and runs it for the daemon's life; everything logs through structlog, from any
thread. A record is cleaned of secrets, encoded once, and queued; a worker thread writes the queue,
then the followers get it, so that no cursor is ever given twice, even after a crash. A broken disk or
a stuck journal loses records, which are counted and told, and never stops the daemon. Decides nothing.
The rules come from the interfaces page, Log records.
"""

from __future__ import annotations

import collections
import json
import os
import select
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import structlog
import trio

from sid_daemon.log.files import FILE_BYTES, KEEP, Line, LogFiles
from sid_daemon.log.record import LogRecord
from sid_daemon.log.subscribers import RING_BYTES, Entry, Subscribers, entry_of
from sid_daemon.redaction import Redactor
from sid_protocol.log_levels import LogLevel

FLUSH_S = 0.02
"""Records are written and handed on together at most so often."""

QUEUE_BYTES = 8 << 20
RECORD_BYTES = 65_536
"""Longest record kept whole, as JSON; of a longer one only the leading fields stay."""

_LEADING = (
    "timestamp",
    "level",
    "event",
    "run_id",
    "iteration",
    "step",
    "actor",
    "candidate",
    "duration_s",
)
_OTHERS = 64  # records of a run that no event of its journal tells of, between those that are looked for
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_PRIORITIES: dict[LogLevel, int] = {
    "debug": 7,
    "info": 6,
    "warning": 4,
    "error": 3,
    "critical": 2,
}  # syslog's
_PIPE_BYTES = 4096  # what poll(2) promises that a pipe takes without waiting: PIPE_BUF


class StandardError:
    """Standard error, one line a record; never waits for its reader.

    Args:
        fd: The descriptor.
        prefixed: Begin each line with `<N>`, the priority that the journal reads.
    """

    def __init__(self, fd: int, *, prefixed: bool) -> None:
        self._fd = fd
        self._prefixed = prefixed
        self._torn = False
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @classmethod
    def of_this_process(cls, env: Mapping[str, str]) -> StandardError:
        """Return ours, with priorities where systemd reads it."""
        return cls(2, prefixed=under_systemd(env, 2))

    def write(self, data: bytes, level: LogLevel) -> None:
        """Write one line, or as much of it as is taken at once."""
        head = b"<%d>" % _PRIORITIES[level] if self._prefixed else b""
        line = (b"\n" if self._torn else b"") + head + data + b"\n"
        try:
            for start in range(0, len(line), _PIPE_BYTES):
                if not self._takes_more():
                    return
                part = line[start : start + _PIPE_BYTES]
                written = os.write(self._fd, part)
                self._torn = not part[:written].endswith(b"\n")
                if written < len(part):
                    return
        except OSError:
            return  # nobody reads it any more; the files have the record

    def _takes_more(self) -> bool:
        return any(mask & select.POLLOUT for _, mask in self._poll.poll(0))


def under_systemd(env: Mapping[str, str], fd: int) -> bool:
    """Return whether the journal reads a descriptor (`JOURNAL_STREAM`), or we are a systemd service."""
    device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
    if device.isdecimal() and inode.isdecimal():
        state = os.fstat(fd)
        return (int(device), int(inode)) == (state.st_dev, state.st_ino)
    return "INVOCATION_ID" in env


class Logs:
    """The log of one daemon.

    Args:
        folder: Where its files are; one that cannot be used is told, not raised.
        redactor: Takes secrets out.
        stderr: Where records go beside the files, or None.
        file_bytes: Size at which a file is full.
        keep: Files kept.
        ring_bytes: Size of the followers' ring.
    """

    def __init__(
        self,
        folder: Path,
        redactor: Redactor,
        *,
        stderr: StandardError | None = None,
        file_bytes: int = FILE_BYTES,
        keep: int = KEEP,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self.redactor = redactor
        self._stderr = stderr
        self._lock = threading.Lock()
        self._queue: collections.deque[Entry] = collections.deque()
        self._queue_bytes = 0
        self._lost = self._lost_told = 0
        self._broken = self._stopped = False
        self._cursor = 0
        self._writing = threading.Lock()
        self._news, self._progress = trio.lowlevel.ParkingLot(), trio.lowlevel.ParkingLot()
        self._written = 0
        self._loop: tuple[int, trio.lowlevel.TrioToken] | None = None
        self._files: LogFiles | None = None
        try:
            self._files = LogFiles(folder, file_bytes=file_bytes, keep=keep)
        except OSError as error:
            self._tell_broken(error)
        else:
            self._cursor = self._files.last_cursor
        self.subscribers = Subscribers(self._files, self._cursor, ring_bytes)

    def emit(self, fields: MutableMapping[str, Any]) -> None:
        """Take one record; from any thread, never waits."""
        record = self._ordered(fields)
        with self._lock:
            if self._queue_bytes > QUEUE_BYTES:
                self._lost += 1
                return
            self._cursor += 1
            entry = _encode(record, self._cursor)
            self._queue.append(entry)
            self._queue_bytes += len(entry.line.data)
        self._wake()

    def known_of(self, run_id: str, records: Sequence[LogRecord]) -> int | None:
        """Return how many of a run's records, the first ones, are in the files; blocks.

        Args:
            run_id: The run.
            records: What was to be told last, in order.

        Returns:
            None where there is none of them, or the files cannot be read.
        """
        mark = f'"run_id":"{run_id}"'.encode()
        try:
            last = self._files.tail(lambda data: mark in data, len(records) + _OTHERS) if self._files else []
        except OSError:
            return None
        told = {_told(line.data) for line in last}
        for count in range(len(records), 0, -1):
            level, event, fields = records[count - 1]
            record = self._ordered({"level": level, "event": event, "run_id": run_id, **fields})
            if _told(_dump(record, 0)) in told:
                return count
        return None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write and hand on until `stop` or cancelled; what is queued then is written before it returns."""
        limiter = trio.CapacityLimiter(1)
        self._loop = (threading.get_ident(), trio.lowlevel.current_trio_token())
        task_status.started()
        try:
            while not self._stopped:
                if not self._queue:
                    await self._news.park()
                entries = await trio.to_thread.run_sync(self._write, limiter=limiter)
                self._written = entries[-1].line.cursor if entries else self._written
                self._progress.unpark_all()
                begun = trio.current_time()
                await self.subscribers.hand_on(entries)
                # However many follow, half of the loop's time is left for others.
                await trio.sleep(max(FLUSH_S, trio.current_time() - begun))
        finally:
            self._loop = None
            self.flush()
            self._progress.unpark_all()
            self.subscribers.close()

    async def written(self) -> None:
        """Wait until what was logged before is in the file, or could not be written."""
        last = self._cursor
        while self._loop is not None and self._written < last:
            await self._progress.park()

    def stop(self) -> None:
        """End `run` and, once they have all there is, every subscription; for the end of the daemon.

        What is logged later is written at once. Call it before `RpcServer.stop`, which waits for the
        followers.
        """
        self._stopped = True
        self._news.unpark_all()

    def flush(self) -> None:
        """Write what is queued now, in this thread; used before and after `run`."""
        self.subscribers.publish(self._write())

    def close(self) -> None:
        """Write what is queued and close the file; nothing may be logged any more."""
        self.flush()
        if self._files is not None:
            self._files.close()

    def _ordered(self, fields: MutableMapping[str, Any]) -> dict[str, Any]:
        fields.pop("cursor", None)
        ordered = {name: fields.pop(name) for name in _LEADING if name in fields}
        cleaned: dict[str, Any] = self.redactor.clean({**ordered, **fields})
        return cleaned

    def _wake(self) -> None:
        if self._loop is None:
            self.flush()
            return
        thread, token = self._loop
        if thread == threading.get_ident():
            self._news.unpark_all()
        else:
            token.run_sync_soon(self._news.unpark_all, idempotent=True)

    def _write(self) -> list[Entry]:
        """Write the queue to the file and standard error, and return it."""
        with self._writing:
            with self._lock:
                entries = list(self._queue)
                self._queue.clear()
                self._queue_bytes = 0
            if entries:
                self._write_file(entries)
            if self._stderr is not None:
                for entry in entries:
                    self._stderr.write(entry.line.data, entry.level)
            self._tell_lost()
        return entries

    def _write_file(self, entries: list[Entry]) -> None:
        if self._files is None:
            return
        try:
            self._files.append(entry.line for entry in entries)
        except OSError as error:
            self._tell_broken(error)
        else:
            self._broken = False

    def _tell_broken(self, error: OSError) -> None:
        # Once for each time that it breaks, where it can still be read.
        if not self._broken:
            self._broken = True
            text = f"the log file cannot be written: {error.strerror}; the daemon goes on without it"
            self._requeue("log_file_broken", error=text)

    def _tell_lost(self) -> None:
        lost = self._lost - self._lost_told
        if lost:
            self._lost_told = self._lost
            self._requeue("log_records_lost", count=lost)

    def _requeue(self, event: str, **fields: Any) -> None:
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)(None, "", {})
        record = {"timestamp": stamp["timestamp"], "level": "warning", "event": event, **fields}
        with self._lock:
            self._cursor += 1
            self._queue.append(_encode(record, self._cursor))


def configure(logs: Logs, level: LogLevel = "info") -> None:
    """Send everything that is logged through structlog to `logs`.

    Args:
        logs: The daemon's log.
        level: Records below it are dropped at once.
    """

    def emit(_logger: object, _method: str, event: MutableMapping[str, Any]) -> NoReturn:
        logs.emit(event)
        raise structlog.DropEvent

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            emit,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _told(line: bytes) -> str:
    """Return what a record tells, whenever it does."""
    record = json.loads(line)
    return json.dumps({name: record[name] for name in sorted(record) if name not in ("timestamp", "cursor")})


def _encode(record: dict[str, Any], cursor: int) -> Entry:
    data = _dump(record, cursor)
    if len(data) > RECORD_BYTES:
        short = {name: record[name] for name in _LEADING if name in record}
        data = _dump({**short, "truncated_bytes": len(data)}, cursor)
    return entry_of(Line(cursor, data), record)


def _dump(record: dict[str, Any], cursor: int) -> bytes:
    return _ENCODER.encode({**record, "cursor": cursor}).encode("ascii")
