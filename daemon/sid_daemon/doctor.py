"""What this machine offers, checked by trying: `sid --doctor`, which `sictl doctor` shows.

A process of its own, so it works without a daemon and may take its time. Each check has a stable id, says what
it found and the one command or act that fixes it; nothing is ever fixed by itself. `FAIL` means that runs
cannot work, `warn` that they work with less.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import trio

from sid_actors.backends.local.lint import find_ruff
from sid_actors.jobs import cgroup
from sid_actors.workbench.sandbox.probe import probe_bwrap
from sid_daemon.daemon_settings import read_daemon_settings
from sid_protocol import locations
from sid_protocol.errors import SidError

Verdict = Literal["ok", "warn", "FAIL", "skip"]
LOW_SPACE_MB = 2048
NO_SPACE_MB = 200
OLDEST_GIT = (2, 31)
BUSY_SHARE = 0.5
AGENTS = ("claude", "codex", "gemini", "opencode")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor.

    Attributes:
        id: Stable, for scripts.
        verdict: ok, warn, FAIL or skip.
        found: What was found.
        mend: What to do, or empty.
    """

    id: str
    verdict: Verdict
    found: str
    mend: str = ""


def examine() -> list[dict[str, Any]]:
    """Run every check; blocks for a second or two."""
    home = os.environ["HOME"]
    checks = [
        *_tools(),
        trio.run(_sandbox),
        _cgroup(),
        _backends(),
        _ruff(),
        *_places(home),
        _settings(home),
        *_service(),
        *_noise(),
        _clock(),
    ]
    return [asdict(check) for check in checks]


def _said(*argv: str) -> tuple[int, str]:
    """Return exit code and first line of a command; 127 where it is missing."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return 127, ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return done.returncode, lines[0] if lines else ""


def _tools() -> Iterator[Check]:
    code, line = _said("git", "--version")
    numbers = tuple(int(part) for part in line.removeprefix("git version ").split(".")[:2] if part.isdigit())
    if code != 0:
        yield Check("git", "FAIL", "git is missing", "apt-get install git")
    elif numbers < OLDEST_GIT:
        yield Check("git", "warn", line, "sid is tested with git 2.39; update git")
    else:
        yield Check("git", "ok", line)
    yield Check("python", "ok", f"Python {platform.python_version()} at {sys.executable}")
    name = _said("git", "config", "--global", "user.email")[1]
    if name:
        yield Check("git_identity", "ok", f"commits carry {name}")
    else:
        yield Check(
            "git_identity",
            "warn",
            "no git identity: commits will carry sid@localhost",
            "git config --global user.email YOU@EXAMPLE",
        )


async def _sandbox() -> Check:
    fault = await probe_bwrap()
    if fault is None:
        return Check("sandbox", "ok", "bubblewrap contains agents and benchmarks")
    return Check("sandbox", "warn", f"{fault}; only the local back end runs", "apt-get install bubblewrap")


def _cgroup() -> Check:
    home = cgroup.claim(f"doctor{os.getpid()}", end=lambda _: None)
    if home is None:
        return Check(
            "cgroup",
            "warn",
            "no cgroup is delegated: memory limits apply to each process, not to a whole job",
            "run sid as a service: sictl service install",
        )
    limits = ", ".join(home.controllers) or "none"
    home.remove()
    return Check("cgroup", "ok", f"delegated; limits of a job: {limits}")


def _backends() -> Check:
    programs = [name for name in AGENTS if shutil.which(name)]
    if os.environ.get("ANTHROPIC_API_KEY"):
        programs.append("an API key")
    if programs:
        return Check("backends", "ok", f"besides local: {', '.join(programs)}")
    return Check("backends", "ok", "only the local back end: no coding agent on PATH, no API key")


def _ruff() -> Check:
    program = find_ruff(os.environ.get("PATH", os.defpath), sys.prefix)
    if program is not None:
        return Check("ruff", "ok", f"{program} adds ideas to those of the local back end")
    return Check("ruff", "skip", "no ruff: the local back end has only ideas of its own", "pip install ruff")


def _try(identity: str, look: Callable[[], str]) -> tuple[str, Check | None]:
    try:
        return look(), None
    except SidError as error:
        return "", Check(identity, "FAIL", error.message, error.hint)


def _places(home: str) -> Iterator[Check]:
    path, fault = _try("socket", lambda: locations.socket_path(os.environ, home))
    yield fault or Check("socket", "ok", path)
    state, fault = _try("state", lambda: locations.state_dir(os.environ, home))
    if fault is not None:
        yield fault
        return
    folder = Path(state)
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        yield Check("state", "FAIL", f"{folder} cannot be written", "set SID_STATE_DIR to a folder of yours")
        return
    free_mb = shutil.disk_usage(folder).free >> 20
    verdict: Verdict = "ok" if free_mb > LOW_SPACE_MB else "warn" if free_mb > NO_SPACE_MB else "FAIL"
    yield Check("state", verdict, f"{state}, {free_mb} MB free", "" if verdict == "ok" else "free some space")


def _settings(home: str) -> Check:
    path = Path(locations.config_path(os.environ, home))
    try:
        read_daemon_settings(path)
    except SidError as error:
        return Check("settings", "FAIL", error.message, error.hint or f"fix {path}")
    return Check("settings", "ok", f"{path}{'' if path.exists() else ' (missing: defaults apply)'}")


def _service() -> Iterator[Check]:
    if shutil.which("systemctl") is None:
        yield Check("service", "skip", "no systemd here")
        return
    code, line = _said("systemctl", "--user", "is-enabled", "sid.socket")
    if code == 0:
        yield Check("service", "ok", f"sid.socket is {line}")
    else:
        yield Check("service", "skip", "sid is not installed as a service", "sictl service install")
    user = os.environ.get("USER", "")
    code, line = _said("loginctl", "show-user", user, "--property=Linger", "--value")
    if code == 0 and line != "yes":
        yield Check("linger", "warn", "runs end when you log out", f"loginctl enable-linger {user}")
    elif code == 0:
        yield Check("linger", "ok", "runs go on when you log out")
    else:
        yield Check("linger", "skip", "no login manager answers")


def _noise() -> Iterator[Check]:
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    busy = load / cores
    verdict: Verdict = "warn" if busy > BUSY_SHARE else "ok"
    yield Check(
        "load",
        verdict,
        f"load {load:.1f} on {cores} cores",
        "measure on an idle machine, or score work that can be counted" if verdict == "warn" else "",
    )
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.exists():
        name = governor.read_text().strip()
        fine = name == "performance"
        mend = "" if fine else "cpupower frequency-set -g performance"
        yield Check("governor", "ok" if fine else "warn", f"CPU governor {name}", mend)
    else:
        yield Check("governor", "skip", "the CPU's frequency governor cannot be read")


def _clock() -> Check:
    year = time.gmtime().tm_year
    if year < 2026:
        return Check("clock", "FAIL", f"the clock says {year}", "set the clock: timedatectl set-ntp true")
    return Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
