"""Starting a daemon where none answers: by exec, detached, ready when it says so.

Called by the verbs that may do so and by `demo`. The daemon writes one line to a pipe, `ready` or what went
wrong, so nothing here polls. Never imports the daemon.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sid_protocol.errors import SidError

IDLE_EXIT_S = 600
"""A daemon that `sictl` started leaves so many seconds after its last run and client."""

READY_S = 30.0
_children: list[subprocess.Popen[bytes]] = []


def daemon_command() -> list[str]:
    """Return how the daemon is started: the `sid` installed beside this `sictl`, else the first on PATH."""
    for folder in (Path(sys.argv[0]).resolve().parent, Path(sys.executable).parent):
        candidate = folder / "sid"
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return [str(candidate)]
    found = shutil.which("sid")
    return [found] if found else [sys.executable, "-m", "sid_daemon.main"]


def start_daemon(
    state_dir: Path,
    *,
    idle_exit_s: int = IDLE_EXIT_S,
    environ: Mapping[str, str] | None = None,
    command: Sequence[str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a daemon in a session of its own and return once it answers.

    Args:
        state_dir: Its state; what it prints to stderr goes to `sid.stderr` there.
        idle_exit_s: After how many idle seconds it leaves.
        environ: Its environment; None is this process's.
        command: How it is started; None finds it.

    Raises:
        SidError: it did not come up; the message is its own.
    """
    argv = list(command or daemon_command())
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = state_dir / "sid.stderr"
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as ready:
        try:
            with _private_log(log) as output:
                process = subprocess.Popen(
                    [*argv, "--idle-exit", str(idle_exit_s), "--ready-fd", str(write_end)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=output,
                    cwd="/",
                    env=environ,
                    pass_fds=(write_end,),
                    start_new_session=True,
                )
        except OSError as error:
            raise SidError(
                f"cannot start the daemon {argv[0]}: {error.strerror}", hint="is sid installed beside sictl?"
            ) from None
        finally:
            os.close(write_end)
        _children.append(process)  # it outlives this process, so nobody waits for it
        line = _first_line(ready)
    if not line.lower().startswith("ready"):
        raise SidError(line or f"the daemon ended before it was ready{_last_line(log)}", hint=f"see {log}")
    return process


def _private_log(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _first_line(pipe: IO[Any]) -> str:
    deadline = time.monotonic() + READY_S
    data = b""
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return f"the daemon was not ready within {READY_S:.0f} s"
        chunk = os.read(pipe.fileno(), 4096)
        if not chunk:
            break
        data += chunk
    return data.split(b"\n", 1)[0].decode(errors="replace").strip()


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            return f": {lines[-1][:300]}"
    return ""
