"""Which interpreters agents get: asked of the daemon's PATH when it starts and when a run does.

Asking may take a quarter of a second where a shim stands in for an interpreter, so `app` begins while the rest of the daemon is
loaded, and a run that starts right then need not ask again. Later ones do: what a shim leads to may have changed.
"""

from __future__ import annotations

import contextlib
import os

import trio

from sid_actors.workbench.sandbox.toolchain import Toolchain, find_toolchain

FRESH_S = 10.0
"""An answer that is older is asked for again."""


class Tools:
    """What the PATH of this process leads to."""

    def __init__(self) -> None:
        self._asking = trio.Lock()
        self._found: Toolchain | None = None
        self._found_at = 0.0

    async def begin(self) -> None:
        """Ask before anybody wants to know; what hinders it is told to the run that asks again."""
        with contextlib.suppress(OSError):
            await self.find()

    async def find(self) -> Toolchain:
        """Return what agents get whose run starts now."""
        async with self._asking:
            found = self._found
            if found is None or trio.current_time() - self._found_at > FRESH_S:
                path, home = os.environ.get("PATH", os.defpath), os.environ.get("HOME", "/")
                found = await trio.to_thread.run_sync(lambda: find_toolchain(path, home=home))
                self._found, self._found_at = found, trio.current_time()
            return found
