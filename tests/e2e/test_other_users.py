"""The daemon of an ordinary user beside other users: only its owner and root are served, whatever the file modes say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.harness import HANG_S, World

TOP = Path(__file__).parents[2]
OWNER, OTHER = 61001, 61002
KNOCKS = 300
"""More than the daemon has places for clients."""
CALL = b'{"jsonrpc":"2.0","id":1,"method":"daemon.info"}\n'
KNOCK = """
import socket, sys
path, often, line = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
for _ in range(often):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(60)
    s.connect(path)
    try:
        s.sendall(line)
        got = s.makefile("rb").readline()
    except (BrokenPipeError, ConnectionResetError):
        got = b""
    s.close()
    print(got.decode().strip() or "refused")
"""


class Users:
    """Runs Python as an ordinary user, with this project's packages."""

    def __init__(self, world: World) -> None:
        self.world = world
        folders = [TOP / name for name in ("protocol", "actors", "daemon", "cli")]
        self.paths = ":".join(map(str, [*folders, Path(psutil.__file__).parents[1]]))
        self.python = ""
        tried = []
        for python in (sys.executable, "/usr/bin/python3"):
            try:
                done = self.run(OWNER, "import sid_daemon.app, sid_cli", python=python)
            except OSError as error:
                tried.append(f"{python}: {error.strerror}")
                continue
            if done.returncode == 0:
                self.python = python
                return
            tried.append(f"{python}: {done.stderr.strip().splitlines()[-1]}")
        pytest.skip(f"no Python that an ordinary user can run this with: {'; '.join(tried)}")

    def options(self, uid: int) -> dict[str, Any]:
        """Return what makes a child of ours another user's."""
        env = {**self.world.env, "PYTHONPATH": self.paths, "PYTHONDONTWRITEBYTECODE": "1"}
        return {"user": uid, "group": uid, "extra_groups": [], "env": env, "cwd": "/"}

    def run(
        self, uid: int, program: str, *args: str | bytes, python: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        argv = [python or self.python, "-c", program, *args]
        return subprocess.run(
            argv, **self.options(uid), capture_output=True, text=True, check=False, timeout=HANG_S
        )

    def knock(self, uid: int, times: int = 1) -> list[str]:
        """Connect and call a method, so many times; returns each answer."""
        done = self.run(uid, KNOCK, str(self.world.socket), str(times), CALL)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def users(world: World) -> Iterator[Users]:
    """Two ordinary users; the world belongs to the first, and its file modes keep nobody out."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    session = world.base.parent
    mode = session.stat().st_mode
    session.chmod(0o711)
    world.base.chmod(0o755)
    for folder in (world.base, *world.base.iterdir()):
        os.chown(folder, OWNER, OWNER)
    yield Users(world)
    session.chmod(mode)


def test_only_the_owner_and_root_are_served(world: World, users: Users) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as ready:
        options = users.options(OWNER)
        world.env.update(options.pop("env"))
        daemon = world.spawn(
            [users.python, "-m", "sid_daemon.main", "--ready-fd", str(write_end)],
            pass_fds=(write_end,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **options,
        )
        os.close(write_end)
        assert ready.readline() == b"ready\n"
    assert world.socket.stat().st_uid == OWNER
    world.socket.parent.chmod(0o777)  # the kernel's own wall, taken down to see the daemon's
    world.socket.chmod(0o666)

    with world.wire() as root:
        assert set(users.knock(OTHER, KNOCKS)) == {"refused"}
        (answer,) = users.knock(OWNER)
        assert json.loads(answer)["result"]["pid"] == daemon.pid
        assert root.call("daemon.info")["pid"] == daemon.pid
    for verb in (["status", "--json"], ["history"], ["attach"]):
        says_whose_it_is(users, *verb)
    world.socket.chmod(0o600)
    says_whose_it_is(users, "start", "/")
    world.socket.parent.chmod(0o700)
    says_whose_it_is(users, "status")
    assert daemon.poll() is None


def says_whose_it_is(users: Users, *verb: str) -> None:
    """Another user is told whose daemon it is and what to do, in one line and with the exit code 5."""
    told = users.run(OTHER, "import sys; from sid_cli.entry import main; main()", *verb)
    assert told.returncode == 5, told
    (line,) = told.stderr.splitlines()
    assert f"belongs to uid {OWNER} and serves nobody else" in line
    assert "SID_SOCKET" in line
    if "--json" in verb:
        assert json.loads(told.stdout)["error"]["code"] == "refused"
