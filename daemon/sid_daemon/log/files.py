"""The log on disk: one JSON object a line, in files that rotate, each line with its cursor.

Written by `logs`, read again by `subscribers`; both call it in worker threads, for every method
here blocks. `sid.jsonl` is the newest file; a full one is renamed after its first cursor, so that a
cursor's file is found by name. Lines are in the order of their cursors. Sizes come from the
interfaces page: files rotate at 64 MiB, 10 are kept (the newest included).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FILE_BYTES = 64 << 20
KEEP = 10
TAIL_BYTES = 16 << 20
"""How far back `tail` looks for lines that match."""

_NAME = "sid.jsonl"
_CHUNK_BYTES = 262_144
_MARK = b'"cursor":'


@dataclass(frozen=True, slots=True)
class Line:
    """One record as written: its cursor and its JSON, without a newline."""

    cursor: int
    data: bytes


def read_line(data: bytes) -> Line | None:
    """Return a line of a log file with its cursor, or None for one that a crash tore.

    The cursor is a record's last field, and a quote inside a JSON string is escaped, so the last
    unescaped `"cursor":` is it.
    """
    at = data.rfind(_MARK)
    number = data[at + len(_MARK) : -1]
    if at < 0 or not data.endswith(b"}") or not number.isdigit():
        return None
    return Line(int(number), data)


class LogFiles:
    """The log files of one state directory; one process writes them, under the state lock.

    Args:
        folder: Made with mode 0700 if it is missing.
        file_bytes: Size at which a file is full.
        keep: Files kept, the newest included.

    Raises:
        OSError: the folder or the file cannot be made or read.
    """

    def __init__(self, folder: Path, *, file_bytes: int = FILE_BYTES, keep: int = KEEP) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._keep = keep
        self._lock = threading.Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size
        self._torn = self._size > 0 and not self._ends_whole()
        self.last_cursor = self._find_last()

    def append(self, lines: Iterable[Line]) -> None:
        """Write lines at the end, and start a new file where one is full.

        Raises:
            OSError: the disk is full or broken; lines may be missing or torn, later ones will be whole.
        """
        waiting = bytearray()
        for line in lines:
            size = self._size + len(waiting)
            if size and size + len(line.data) >= self._file_bytes:
                self._write(waiting)
                waiting.clear()
                self._rotate()
            waiting += line.data + b"\n"
            self.last_cursor = line.cursor
        self._write(waiting)

    def read_after(self, cursor: int, limit_bytes: int = _CHUNK_BYTES) -> tuple[list[Line], int]:
        """Return the lines that follow a cursor, and how many before them are kept no longer.

        Args:
            cursor: The last one known.
            limit_bytes: About how much to return.

        Returns:
            Lines in order, none at the end of the log; and the number of cursors lost to rotation.

        Raises:
            OSError: a file cannot be read.
        """
        with self._lock:
            files = self._files()
            firsts = [first for first, _ in files]
            start = max((i for i, first in enumerate(firsts) if first <= cursor + 1), default=0)
            handles = [path.open("rb") for _, path in files[start : start + 2]]
        lost = max(0, firsts[0] - cursor - 1) if firsts else 0
        try:
            for handle in handles:
                if lines := _lines_after(handle, cursor, limit_bytes):
                    return lines, lost
        finally:
            for handle in handles:
                handle.close()
        return [], lost

    def tail(self, matches: Callable[[bytes], bool], count: int) -> list[Line]:
        """Return the last `count` lines that match, oldest first, within the last 16 MiB.

        Raises:
            OSError: a file cannot be read.
        """
        with self._lock:
            handles = [path.open("rb") for _, path in reversed(self._files())]
        found: list[Line] = []
        left = TAIL_BYTES
        try:
            for handle in handles:
                for data in _lines_backwards(handle, left):
                    left -= len(data) + 1
                    line = read_line(data) if matches(data) else None
                    if line is not None:
                        found.append(line)
                    if len(found) == count or left <= 0:
                        return found[::-1]
        finally:
            for handle in handles:
                handle.close()
        return found[::-1]

    def close(self) -> None:
        """Close the file that is written."""
        os.close(self._fd)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._folder / _NAME, flags, 0o600)

    def _ends_whole(self) -> bool:
        return os.pread(self._fd, 1, self._size - 1) == b"\n"

    def _write(self, lines: bytearray) -> None:
        if not lines:
            return
        # After a torn line, ours begins on a line of its own; readers skip the torn one.
        data = (b"\n" if self._torn else b"") + bytes(lines)
        while data:
            written = os.write(self._fd, data)
            self._size += written
            self._torn = not data[:written].endswith(b"\n")
            data = data[written:]

    def _rotate(self) -> None:
        with self._lock:
            first = self._first_of(self._folder / _NAME) or self.last_cursor
            (self._folder / _NAME).rename(self._folder / f"sid-{first:016d}.jsonl")
            full = sorted(self._folder.glob("sid-*.jsonl"))
            for path in full[: max(0, len(full) - self._keep + 1)]:
                path.unlink()
            fresh = self._open()
            os.close(self._fd)
            self._fd = fresh
            self._size = os.fstat(fresh).st_size
            self._torn = False

    def _files(self) -> list[tuple[int, Path]]:
        """Return (first cursor, path) of each file that holds lines, oldest first."""
        files = [
            (int(path.stem[4:]), path)
            for path in sorted(self._folder.glob("sid-*.jsonl"))
            if path.stem[4:].isdigit()
        ]
        current = self._folder / _NAME
        first = self._first_of(current)
        return files if first is None else [*files, (first, current)]

    def _first_of(self, path: Path) -> int | None:
        with path.open("rb") as file:
            for data in file:
                if line := read_line(data.rstrip(b"\n")):
                    return line.cursor
        return None

    def _find_last(self) -> int:
        last = self.tail(lambda data: read_line(data) is not None, 1)
        if last:
            return last[0].cursor
        files = self._files()
        return files[-1][0] if files else 0


def _lines_after(file: BinaryIO, cursor: int, limit_bytes: int) -> list[Line]:
    low, high = 0, os.fstat(file.fileno()).st_size
    while high - low > _CHUNK_BYTES // 16:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        line = next((found for data in file if (found := read_line(data.rstrip(b"\n")))), None)
        if line is None or line.cursor > cursor:
            high = middle
        else:
            low = middle
    file.seek(low)
    if low:
        file.readline()
    lines: list[Line] = []
    size = 0
    for data in file:
        # What has no newline yet is being written.
        line = read_line(data[:-1]) if data.endswith(b"\n") else None
        if line is None or line.cursor <= cursor:
            continue
        lines.append(line)
        size += len(data)
        if size >= limit_bytes:
            break
    return lines


def _lines_backwards(file: BinaryIO, limit_bytes: int) -> Iterable[bytes]:
    """Yield the lines of a file from its end, without their newlines."""
    position = os.fstat(file.fileno()).st_size
    stop = max(0, position - limit_bytes)
    rest = b""
    while position > stop:
        size = min(_CHUNK_BYTES, position - stop)
        position -= size
        file.seek(position)
        lines = (file.read(size) + rest).split(b"\n")
        rest = lines[0]
        yield from (line for line in reversed(lines[1:]) if line)
    if rest and position == 0:
        yield rest
