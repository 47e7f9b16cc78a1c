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

from sid_protocol.errors import SETTINGS_INVALID, OperatorError, Refused, SidError

IDLE_EXIT_S = 600
"""A daemon that `sictl` started leaves so many seconds after its last run and client."""

READY_S = 60.0


class _SettingsWrong(OperatorError):
    """The daemon's settings are wrong, in its words."""

    rpc_code = SETTINGS_INVALID


_FAULTS: dict[int, type[SidError]] = {2: _SettingsWrong, 5: Refused}
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
    own: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a daemon in a session of its own and return once it answers.

    Args:
        state_dir: Its state; what it prints to stderr goes to `sid.stderr` there.
        idle_exit_s: After how many idle seconds it leaves.
        environ: Its environment; None is this process's.
        command: How it is started; None finds it.
        own: Whether it is this command's alone, and ends where that is interrupted meanwhile.

    Raises:
        SidError: it did not come up; the message is its own.
    """
    argv = list(command or daemon_command())
    log = state_dir / "sid.stderr"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        output = _private_log(log)
    except OSError as error:
        raise SidError(
            f"the state directory {state_dir} cannot be used: {error.strerror}",
            hint="set SID_STATE_DIR to a directory that is yours, or free some space",
        ) from None
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as ready:
        try:
            with output:
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
                f"cannot start the daemon {argv[0]}: {error.strerror}", hint="install sid beside sictl"
            ) from None
        finally:
            os.close(write_end)
        _children.append(process)  # it outlives this process, so nobody waits for it
        try:
            line = _first_line(ready)
        except TimeoutError:
            process.terminate()
            raise SidError(f"the daemon was not ready within {READY_S:.0f} s", hint=f"see {log}") from None
        except BaseException:
            if own:  # whoever is interrupted here holds nothing yet by which it could be ended
                process.kill()
                process.wait()
            raise
    if line.lower().startswith("ready"):
        return process
    if not line:
        raise SidError(f"the daemon ended before it was ready{_last_line(log)}", hint=f"see {log}")
    # It says itself what to do, and its exit code is the one that this fault has everywhere.
    kind = _FAULTS.get(process.wait())
    raise kind(line) if kind else SidError(line, hint=f"see {log}")


def _private_log(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _first_line(pipe: IO[Any]) -> str:
    deadline = time.monotonic() + READY_S
    data = b""
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            raise TimeoutError
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
