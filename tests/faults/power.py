"""A machine that loses power: what a process did to files, as strace saw it, and what of that a disk may hold at any moment.

`python -m tests.faults.power FOLDER` is the process: it records a played run. `Disk` follows its trace. After a crash a file has at
least what was there at its last flush, a name lasts once its folder is flushed (a new file's: once itself is), and of everything
else any part may be there.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trio

from sid_daemon.core.run import step
from sid_daemon.runs.runstore import RunStore
from sid_daemon.store.views import project
from sid_protocol.events import RoundClosed
from sid_protocol.settings import Settings
from tests.core.play import played

TRACED = "openat,write,pwrite64,sendfile,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,ftruncate"
_CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_FD = re.compile(r"(?:AT_FDCWD|\d+)<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


async def record(folder: Path) -> None:
    """Record a run of two rounds, and note in `acked` how many events are promised to be kept."""
    settings = Settings(number_of_agents=2, max_iterations=2, benchmark_command="b")
    store = RunStore(folder / "root", folder / "state/run.db")
    await store.open()
    with (folder / "acked").open("wb", buffering=0) as acked:
        for number, (before, event, after) in enumerate(played(settings).steps, 1):
            snapshot = step(before, event)[0] if isinstance(event, RoundClosed) else None
            await store.record([event], project(before, event, after), snapshot)
            acked.write(f"{number}\n".encode())
            if number % 3 == 0 or snapshot is not None:
                await store.show()
    await store.close()


@dataclass(eq=False)
class File:
    """One file's content: now, at its last flush, and what was written since."""

    now: bytearray = field(default_factory=bytearray)
    kept: bytes = b""
    since: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, at: int, data: bytes) -> None:
        """Write at a place."""
        self.now[len(self.now) : at] = bytes(max(0, at - len(self.now)))
        self.now[at : at + len(data)] = data
        self.since.append((at, data))

    def cut(self, size: int) -> None:
        """Set the size."""
        self.now[:] = self.now[:size] + bytes(max(0, size - len(self.now)))

    def flush(self) -> None:
        """Make it last."""
        self.kept, self.since = bytes(self.now), []

    def torn(self, dice: random.Random) -> bytes:
        """Return its kept content with some of what was written since, in pieces."""
        left = File(bytearray(self.kept))
        for at, data in self.since:
            if dice.random() < 0.6:
                left.write(at, data[: dice.choice((512, 4096, len(data)))])
        return bytes(left.now)


@dataclass
class Disk:
    """The files below a folder, as a trace tells of them.

    Attributes:
        names: What lies where now.
        kept: What would surely lie there after a crash.
        flushes: How many there were.
        acked: How many events the process had been promised.
    """

    folder: str
    names: dict[str, File] = field(default_factory=dict)
    kept: dict[str, File] = field(default_factory=dict)
    flushes: int = 0
    acked: int = 0
    _places: dict[str, int] = field(default_factory=dict)

    def follow(self, trace: Path) -> Iterator[int]:
        """Follow a trace, and stop after each flush."""
        with trace.open() as lines:
            for line in lines:
                assert "unfinished" not in line, "two threads wrote at once; the trace cannot be read"
                call = _CALL.match(line)
                if call and int(call[3]) >= 0 and self._call(call[1], call[2], int(call[3])):
                    self.flushes += 1
                    yield self.flushes

    def _call(self, name: str, rest: str, result: int) -> bool:
        paths = [unescaped(one).decode() for one in _FD.findall(rest)]
        texts = [unescaped(one) for one in _TEXT.findall(rest)]
        path = paths[0] if paths else ""
        match name:
            case "openat":
                made = str(Path(path, texts[0].decode()))
                if made.startswith(self.folder) and "O_CREAT" in rest:
                    file = self.names.setdefault(made, File())
                    if "O_TRUNC" in rest:
                        file.cut(0)
                    self._places[made] = 0
            case "write" if path in self.names:
                at = self._places.get(path, 0)
                self.names[path].write(at, texts[0][:result])
                self._places[path] = at + result
                if path.endswith("/acked"):
                    self.acked = int(texts[0])
            case "pwrite64" if path in self.names:
                self.names[path].write(int(rest.rsplit(",", 1)[1]), texts[0][:result])
            case "sendfile" if path in self.names:
                begin = int(re.search(r"\[(\d+)", rest)[1])  # type: ignore[index]  # strace writes it so
                kept = bytes(self.names[paths[1]].now[begin : begin + result])
                self.names[path].write(self._places[path], kept)
                self._places[path] += result
            case "ftruncate" if path in self.names:
                self.names[path].cut(int(rest.rsplit(",", 1)[1]))
            case "rename" | "renameat" | "renameat2":
                old, new = (text.decode() for text in texts)
                self.names[new] = self.names.pop(old)
            case "unlink" | "unlinkat" if texts[0].decode() in self.names:
                del self.names[texts[0].decode()]
            case "fsync" | "fdatasync" if path.startswith(self.folder):
                self._flush(path)
                return True
            case _:
                pass
        return False

    def _flush(self, path: str) -> None:
        file = self.names.get(path)
        if file is not None:
            if not any(one is file for one in self.kept.values()):
                self.kept.setdefault(path, file)
            file.flush()
            return
        for known in [one for one in {*self.names, *self.kept} if str(Path(one).parent) == path]:
            if known in self.names:
                self.kept[known] = self.names[known]
            else:
                del self.kept[known]

    def left(self, how: str, dice: random.Random) -> dict[str, bytes]:
        """Return the files after a crash now.

        Args:
            how: `least`: what must be there; `names`: all renames came through, of contents only what was flushed;
                `torn`: pieces of everything.
            dice: Chooses the pieces.
        """
        if how == "least":
            return {path: file.kept for path, file in self.kept.items()}
        if how == "names":
            return {path: file.kept for path, file in self.names.items()}
        return {path: file.torn(dice) for path, file in self.names.items()}


def unescaped(text: str) -> bytes:
    """Return what strace wrote as hexadecimal escapes."""
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()


if __name__ == "__main__":
    trio.run(record, Path(sys.argv[1]))
