"""What a daemon is: the answer to `daemon.info`, which is given before anything else can be.

Used by `app` while the rest is loaded, and by `methods` after that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sid_protocol import PROTOCOL, __version__


class About:
    """One daemon, from its making on.

    Args:
        state_dir: Its state directory.
        socket: Where it listens.
    """

    def __init__(self, state_dir: Path, socket: str) -> None:
        self.version = __version__
        self._state_dir = state_dir
        self._socket = socket
        self._started = time.monotonic()

    def info(self, runs: int) -> dict[str, Any]:
        """Return the fields of `DaemonInfo`.

        Args:
            runs: How many are active.
        """
        return {
            "version": self.version,
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started, 3),
            "runs": runs,
            "state_dir": str(self._state_dir),
            "socket": self._socket,
        }
