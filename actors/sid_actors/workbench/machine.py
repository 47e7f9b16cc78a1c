"""Whose turn it is to measure on this machine: lock files, waited for in order within the daemon.

`LocalBench` holds a turn around every measured run. A run that wants the machine for itself locks `sid-bench.lock`
alone; one that may have others beside it shares that lock and locks one of its slots (`sid-bench.lock.1`, `.2` …).
Who waits for the first lock holds the gate meanwhile, so that a stream of shared turns keeps nobody out who wants
to be alone. Daemons of one user take turns through the files; the order between them is the kernel's, within one
it is first come first served. A daemon that dies gives all of it back, because the kernel does.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio


class MachineLock:
    """The machine's lock; a daemon makes one and hands it to every bench.

    Args:
        path: The lock file; its folder is made, for this user only, if it is missing.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = trio.Lock()
        self._taken: set[int] = set()
        self._freed = trio.Event()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Have the machine alone; waiting for it can be cancelled.

        Raises:
            OSError: the file cannot be made.
        """
        async with self._turn:
            while self._taken:
                await self._freed.wait()
            descriptors = await self._acquire(_Waiter(self._path))
            try:
                yield
            finally:
                _close(descriptors)

    @asynccontextmanager
    async def shared(self, slots: int) -> AsyncIterator[None]:
        """Have one of so many slots, beside others who share; waiting for it can be cancelled.

        Args:
            slots: At least 1. Of those who share with different numbers, each keeps to the first of its own.

        Raises:
            OSError: a file cannot be made.
        """
        async with self._turn:
            while not (free := [slot for slot in range(1, slots + 1) if slot not in self._taken]):
                await self._freed.wait()
            waiter = _Waiter(self._path, free)
            descriptors = await self._acquire(waiter)
            self._taken.add(waiter.slot)
        try:
            yield
        finally:
            _close(descriptors)
            self._taken.discard(waiter.slot)
            self._freed.set()
            self._freed = trio.Event()

    async def _acquire(self, waiter: _Waiter) -> list[int]:
        try:
            # The kernel's wait cannot be interrupted: an abandoned thread gives the lock back when it gets it.
            return await trio.to_thread.run_sync(waiter.wait, abandon_on_cancel=True)
        except trio.Cancelled:
            waiter.abandon()
            raise


class _Waiter:
    """One wait for a turn, whose result is closed if nobody wants it any more.

    Args:
        path: The lock file.
        free: Slots that nobody of this daemon has; none to be alone.

    Attributes:
        slot: The one it got.
    """

    def __init__(self, path: str, free: list[int] | None = None) -> None:
        self._path = path
        self._free = free
        self._mutex = threading.Lock()
        self._abandoned = False
        self._descriptors: list[int] = []
        self.slot = 0

    def wait(self) -> list[int]:
        Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held: list[int] = []
        try:
            gate = _open(f"{self._path}.gate")
            try:
                fcntl.flock(gate, fcntl.LOCK_EX)
                held.append(_open(self._path))
                fcntl.flock(held[0], fcntl.LOCK_SH if self._free else fcntl.LOCK_EX)
                if self._free:
                    self._take_slot(held, self._free)
            finally:
                os.close(gate)
        except BaseException:
            _close(held)
            raise
        with self._mutex:
            self._descriptors = held
            if self._abandoned:
                _close(held)
        return held

    def _take_slot(self, held: list[int], free: list[int]) -> None:
        """Lock the first slot that no other daemon has, else wait for the first of ours."""
        for slot in free:
            descriptor = _open(f"{self._path}.{slot}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            held.append(descriptor)
            self.slot = slot
            return
        self.slot = free[0]
        held.append(_open(f"{self._path}.{self.slot}"))
        fcntl.flock(held[-1], fcntl.LOCK_EX)

    def abandon(self) -> None:
        with self._mutex:
            self._abandoned = True
            _close(self._descriptors)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def lock_path(environ: Mapping[str, str], state_dir: str) -> str:
    """Return where the lock lies: in the user's runtime folder, else in the daemon's state folder."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return (
        f"{runtime}/sid-bench.lock" if runtime and Path(runtime).is_dir() else f"{state_dir}/sid-bench.lock"
    )
