"""Many followers of a daemon's log in one process, which check what they are sent: `followers.py SOCKET COUNT DEAF`.

Prints `ready` once all have asked. A cursor on standard input says how far to read: when each has come so far, or the daemon has closed,
a JSON list is printed: for each what it got, what it was told that it lost, the last cursor, and how many records were missing or
out of order without a word. The first DEAF of them read nothing before that. Only the standard library, so that it starts quickly.
"""

from __future__ import annotations

import functools
import json
import re
import selectors
import socket
import sys
from dataclasses import dataclass

SUBSCRIBE = b'{"jsonrpc":"2.0","id":1,"method":"log.subscribe","params":{"since":0}}\n'
NOTICE = re.compile(
    rb'"log\.(?:record","params":\{"subscription":\d+,"cursor":(\d+)|dropped.*?"count":(\d+))'
)
OUT_OF_ORDER = 1_000_000


@dataclass(frozen=True, slots=True)
class Told:
    """What some whole lines tell: cursors from `first` to `last`, both 0 where there is no record."""

    got: int
    lost: int
    first: int
    last: int
    unexplained: int


@functools.lru_cache(maxsize=256)  # most followers get the same
def look(lines: bytes) -> Told:
    """Look at whole lines; every cursor is a record, so that none may be left out."""
    got = lost = first = last = unexplained = 0
    for cursor, count in NOTICE.findall(lines):
        if count:
            lost += int(count)
            continue
        number = int(cursor)
        if got:
            unexplained += gap(last, number)
        got, first, last = got + 1, first or number, number
    return Told(got, lost, first, last, unexplained - lost)


def gap(before: int, number: int) -> int:
    """Return how many records are missing between two."""
    return number - before - 1 if number > before else OUT_OF_ORDER


class Follower:
    """One of them."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.got = self.lost = self.last = self.unexplained = 0
        self._rest = b""

    def read(self) -> bool:
        """Take what there is; False at the end."""
        try:
            data = self.connection.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        lines, _, self._rest = (self._rest + data).rpartition(b"\n")
        told = look(lines)
        self.got, self.lost = self.got + told.got, self.lost + told.lost
        self.unexplained += told.unexplained + (gap(self.last, told.first) if told.got else 0)
        self.last = told.last or self.last
        return bool(data)

    def report(self) -> dict[str, int]:
        """Return what there is to say."""
        return {"got": self.got, "lost": self.lost, "last": self.last, "unexplained": self.unexplained}


def main() -> None:
    """Follow, and tell."""
    path, count, deaf = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    selector = selectors.EpollSelector()
    followers = []
    for _ in range(count):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        connection.sendall(SUBSCRIBE)
        followers.append(Follower(connection))
    for follower in followers[deaf:]:
        selector.register(follower.connection, selectors.EVENT_READ, follower)
    selector.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    until, reading = sys.maxsize, set(followers)
    while reading or until == sys.maxsize:
        for key, _ in selector.select():
            if key.data is None:
                until = int(sys.stdin.readline())
                selector.unregister(sys.stdin)
                for follower in followers[:deaf]:
                    selector.register(follower.connection, selectors.EVENT_READ, follower)
            elif not key.data.read():
                selector.unregister(key.data.connection)
                reading.discard(key.data)
        if until < sys.maxsize:
            reading = {follower for follower in reading if follower.last < until}
    print(json.dumps([follower.report() for follower in followers]))


if __name__ == "__main__":
    main()
