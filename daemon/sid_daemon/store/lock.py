"""One daemon a state directory: an advisory lock on one file in it.

Taken first by `main`, before the socket is touched, and held until the process ends; the kernel lets
go of it however that end comes. Never waits, never deletes the file (a lock on a deleted file guards
nothing). The rule comes from the interfaces page: one daemon a state directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from sid_protocol.errors import Refused, StoreError

NAME = "sid.lock"


class StateLock:
    """The lock of a state directory, held until `release` or the end of the process.

    Args:
        state_dir: Made, if missing, and closed to others (0700).

    Raises:
        Refused: another process holds it; the message names its pid.
        StoreError: the directory cannot be made or written.
    """

    def __init__(self, state_dir: str) -> None:
        self.state_dir = state_dir
        folder = Path(state_dir)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise Refused(
                f"another daemon (pid {holder}) uses {state_dir}",
                hint=f"'sictl daemon shutdown' ends it; where its socket is gone, 'kill {holder}' does",
            ) from None
        try:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.release()
            raise self._unusable(error) from None

    def release(self) -> None:
        """Let go; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _unusable(self, error: OSError) -> StoreError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return StoreError(
            f"the state directory {self.state_dir} cannot be used: {error.strerror}",
            hint="free some space" if full else "set SID_STATE_DIR to a directory that is yours",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
