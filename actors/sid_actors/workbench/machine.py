"""One benchmark at a time on this machine: a lock file, waited for in order within the daemon.

`LocalBench` holds it around every measured run. Two daemons of one user take turns through the file; the order
between them is the kernel's, within one it is first come first served. A daemon that dies gives it back,
because the kernel does.
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

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock; waiting for it can be cancelled.

        Raises:
            OSError: the file cannot be made.
        """
        async with self._turn:
            descriptor = await self._acquire()
            try:
                yield
            finally:
                os.close(descriptor)

    async def _acquire(self) -> int:
        waiter = _Waiter(self._path)
        try:
            # The kernel's wait cannot be interrupted: an abandoned thread gives the lock back when it gets it.
            return await trio.to_thread.run_sync(waiter.wait, abandon_on_cancel=True)
        except trio.Cancelled:
            waiter.abandon()
            raise


class _Waiter:
    """One wait for the lock, whose result is closed if nobody wants it any more."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._abandoned = False
        self._descriptor: int | None = None

    def wait(self) -> int:
        Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
        with self._mutex:
            self._descriptor = descriptor
            if self._abandoned:
                os.close(descriptor)
        return descriptor

    def abandon(self) -> None:
        with self._mutex:
            self._abandoned = True
            if self._descriptor is not None:
                os.close(self._descriptor)


def lock_path(environ: Mapping[str, str], state_dir: str) -> str:
    """Return where the lock lies: in the user's runtime folder, else in the daemon's state folder."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    return (
        f"{runtime}/sid-bench.lock" if runtime and Path(runtime).is_dir() else f"{state_dir}/sid-bench.lock"
    )
