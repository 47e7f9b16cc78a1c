"""Fixtures of every test: a world of its own, real repositories, real processes, and nothing left behind.

Paths are short (a Unix socket's is at most 107 bytes) and in memory where /dev/shm is there, since a busy
disk makes git slow enough to look like a hang.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from tests.leaks import MARKER, Snapshot
from tests.repos import Repo

# A variable that begins so would let the developer's own world leak into a test, or the other way round.
FOREIGN = ("ANTHROPIC_", "CLAUDE", "GIT_", "LISTEN_", "SID_", "WATCHDOG_", "XDG_", "DBUS_")
FOREIGN_NAMES = ("NOTIFY_SOCKET", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PAGER", "EDITOR", "VISUAL")
_numbers = itertools.count(1)

# A property is about values, not about how busy the machine is.
settings.register_profile("sid", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("sid")


class MakeRepo(Protocol):
    """Makes a repository: `repo({"app.py": "x = 1"})`, with one commit unless it has no files."""

    def __call__(
        self, files: Mapping[str, str | bytes] | None = None, *, name: str = "repo", bare: bool = False
    ) -> Repo: ...


Spawn = Callable[..., subprocess.Popen[Any]]


@pytest.fixture(scope="session")
def session_dir() -> Iterator[Path]:
    """The folder of the whole session, and the check that the session left nothing behind."""
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else None
    base = Path(tempfile.mkdtemp(prefix="sid-", dir=parent)).resolve()
    os.environ[MARKER] = str(base)
    before = Snapshot.take(base)
    yield base
    leaks = before.leaks()
    for process in before.processes():
        process.kill()
    shutil.rmtree(base, ignore_errors=True)
    del os.environ[MARKER]
    if leaks:
        pytest.fail("the tests left behind:\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.fixture
def short_dir(session_dir: Path) -> Iterator[Path]:
    """A folder of this test with a short path, gone after it."""
    path = session_dir / str(next(_numbers))
    path.mkdir(mode=0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def world_of(base: Path) -> dict[str, Path | str]:
    """Return the environment of a user whose home, socket, state and identity lie in `base`."""
    home, runtime = base / "home", base / "run"
    return {
        "HOME": home,
        "XDG_RUNTIME_DIR": runtime,
        "XDG_STATE_HOME": home / ".local/state",
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local/share",
        "XDG_CACHE_HOME": home / ".cache",
        "SID_SOCKET": runtime / "sid.sock",
        "SID_STATE_DIR": base / "state",
        "SID_CONFIG": base / "sid.toml",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Ada Tester",
        "GIT_AUTHOR_EMAIL": "ada@example.invalid",
        "GIT_COMMITTER_NAME": "Ada Tester",
        "GIT_COMMITTER_EMAIL": "ada@example.invalid",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@pytest.fixture(autouse=True)
def own_world(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a HOME, XDG folders, git identity and places of sid that are its own."""
    for name in list(os.environ):
        if (name.startswith(FOREIGN) or name in FOREIGN_NAMES) and name != MARKER:
            monkeypatch.delenv(name)
    for name in ("home", "run"):
        (short_dir / name).mkdir(mode=0o700)
    for name, value in world_of(short_dir).items():
        monkeypatch.setenv(name, str(value))


@pytest.fixture
def repo(short_dir: Path) -> MakeRepo:
    """A factory of real git repositories with the branch `main`."""

    def make(
        files: Mapping[str, str | bytes] | None = None, *, name: str = "repo", bare: bool = False
    ) -> Repo:
        path = short_dir / name
        path.mkdir(parents=True)
        made = Repo(path)
        made.git("init", "--quiet", "--initial-branch=main", *(["--bare"] if bare else []))
        if files is not None:
            made.commit(files, "Start")
        return made

    return make


@pytest.fixture
def real_process(request: pytest.FixtureRequest) -> Iterator[Spawn]:
    """Start child processes as `subprocess.Popen` does; all their groups are killed and reaped after the test.

    Request it also where the code under test starts processes: it refuses a clock that jumps, because beside
    a real child such a clock leaps past every deadline at once.
    """
    if jumping := {"autojump_clock", "mock_clock"} & set(request.fixturenames):
        pytest.fail(f"a real process beside {jumping.pop()}: the clock would leap past every deadline")
    started: list[subprocess.Popen[Any]] = []

    def spawn(argv: list[str | Path], **options: Any) -> subprocess.Popen[Any]:
        process = subprocess.Popen(argv, start_new_session=True, **options)
        started.append(process)
        return process

    yield spawn
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes its pipes and waits
            pass
