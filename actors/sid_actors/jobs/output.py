"""What a job printed: its head and its tail, with the middle counted instead of kept.

`process.run_job` fills a `Capture` for each stream of a job and hands out the frozen `Captured`; whoever reads
a score or an answer asks that. It never touches a file or a pipe. The rule (output is read with a cap, head
and tail kept, the middle counted) is containment's: neither 200 MB of output nor one endless line may fill a
pipe or the daemon's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

LINE_LIMIT_BYTES = 1 << 20  # a last line longer than this is no result; the limit of one JSON-RPC line


@dataclass(frozen=True, slots=True)
class Captured:
    """The output of one stream, in bytes: its `head`, its `tail`, and how many were `dropped` in between."""

    head: bytes = b""
    tail: bytes = b""
    dropped: int = 0

    @property
    def total(self) -> int:
        """How many bytes were printed, kept or not."""
        return len(self.head) + self.dropped + len(self.tail)

    def text(self) -> str:
        """Return the output as text; a line in the middle says how much was cut there, if anything was.

        Returns:
            The bytes decoded as UTF-8, each undecodable byte as U+FFFD.
        """
        if not self.dropped:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self.head, self.tail))
        return f"{head}\n[... {self.dropped} bytes cut ...]\n{tail}"

    def last_line(self) -> str | None:
        """Return the last line that is not blank, without its surrounding blanks.

        Returns:
            The line; "" where nothing but blanks was printed; None where the line is not known whole, because
            it is longer than `LINE_LIMIT_BYTES` or begins in what was cut: a fragment must never pass for
            a result.
        """
        kept = (self.tail if self.dropped else self.head + self.tail).rstrip()
        if not kept:
            return None if self.dropped else ""
        start = kept.rfind(b"\n") + 1
        cut = self.dropped and not start
        if cut or len(kept) - start > LINE_LIMIT_BYTES:
            return None
        return kept[start:].decode("utf-8", "replace").strip()


class Capture:
    """Collects a stream of any length in `limit_bytes` at most: half for the head, half for the tail.

    Args:
        limit_bytes: The most that is kept.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()  # a ring once it is full: the oldest byte is at `_oldest`
        self._oldest = 0
        self._dropped = 0

    def add(self, chunk: bytes) -> None:
        """Take in the next bytes of the stream."""
        if room := self._head_limit - len(self._head):
            self._head += chunk[:room]
            chunk = chunk[room:]
        if room := self._tail_limit - len(self._tail):
            self._tail += chunk[:room]
            chunk = chunk[room:]
        self._dropped += len(chunk)
        chunk = chunk[-self._tail_limit :] if self._tail_limit else b""
        while chunk:
            part = chunk[: self._tail_limit - self._oldest]
            self._tail[self._oldest : self._oldest + len(part)] = part
            self._oldest = (self._oldest + len(part)) % self._tail_limit
            chunk = chunk[len(part) :]

    def freeze(self) -> Captured:
        """Return what was collected so far."""
        tail = bytes(self._tail[self._oldest :] + self._tail[: self._oldest])
        return Captured(bytes(self._head), tail, self._dropped)
