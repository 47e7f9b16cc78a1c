"""What a test run may not leave behind: processes, file descriptors, threads, sockets, mounts, worktrees.

`conftest` takes a `Snapshot` when the session starts and fails the suite with what `leaks` finds at its end.
Tests run agents and benchmarks with a scrubbed environment, so a process is ours by any of three marks: the
session's marker in its environment, a working directory in the session's folder, or being our descendant.
"""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

MARKER = "SID_TEST_SESSION"
PROJECT = Path(__file__).parent.parent
GRACE_S = 5.0  # a killed tree is gone when init has reaped it, not when it was signalled

# A worker of trio's thread cache stays idle for 10 s on purpose, what starts processes for as long as this one lives;
# Python keeps one descriptor for its dice.
_IDLE_THREADS = ("Trio thread", "spawner")
_KEPT_FILES = ("/dev/urandom", "/dev/null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was there at the start: all that is not in it, is a leak at the end."""

    base: Path
    descriptors: frozenset[str]
    threads: frozenset[int]
    litter: frozenset[str]

    @classmethod
    def take(cls, base: Path) -> Snapshot:
        """Look around; `base` is the session's folder, below which every test works."""
        return cls(
            base=base,
            descriptors=frozenset(_descriptors()),
            threads=frozenset(_threads()),
            litter=frozenset(_litter()),
        )

    def leaks(self, grace_s: float = GRACE_S) -> list[str]:
        """Name everything left behind, one line each; processes get `grace_s` seconds to end."""
        gc.collect()
        _, alive = psutil.wait_procs(self.processes(), timeout=grace_s)
        found = [f"process {_describe(process)}" for process in alive]
        found += [f"file descriptor {name}" for name in sorted(set(_descriptors()) - self.descriptors)]
        found += [f"thread {name}" for ident, name in _threads().items() if ident not in self.threads]
        found += [f"socket {line}" for line in _lines_with("/proc/net/unix", self.base)]
        found += [f"mount {line}" for line in _lines_with("/proc/self/mounts", self.base)]
        found += [f"worktree or state in the project's own checkout: {n}" for n in _litter() - self.litter]
        return found

    def processes(self) -> list[psutil.Process]:
        """Every process that this session started, however far it has run away."""
        own = psutil.Process()
        ours = {process.pid: process for process in own.children(recursive=True)}
        for process in psutil.process_iter():
            if process.pid != own.pid and self._is_ours(process):
                ours[process.pid] = process
        return list(ours.values())

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            marked = process.environ().get(MARKER) == str(self.base)
            return marked or Path(process.cwd()).is_relative_to(self.base)
        except (psutil.Error, OSError):
            return False  # another user's, a zombie, just gone, or in a folder of too deep a name


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({process.status()}): {' '.join(process.cmdline()) or process.name()}"
    except psutil.Error:
        return f"{process.pid} (ending)"


def _descriptors() -> set[str]:
    found = set()
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue  # the one that listed the folder
        if target not in _KEPT_FILES:
            found.add(f"{entry.name} -> {target}")
    return found


def _threads() -> dict[int, str]:
    return {t.ident or 0: t.name for t in threading.enumerate() if not t.name.startswith(_IDLE_THREADS)}


def _litter() -> set[str]:
    folders = [PROJECT / ".sid" / "topics", PROJECT / "worktrees"]
    return {str(entry) for folder in folders if folder.is_dir() for entry in folder.iterdir()}


def _lines_with(table: str, base: Path) -> list[str]:
    return [line for line in Path(table).read_text().splitlines() if str(base) in line]
