"""The shared fixtures keep their promises: each guard is seen to catch what it is there for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import MakeRepo, Spawn
from tests.leaks import Snapshot

pytest_plugins = ["pytester"]
SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def test_a_test_lives_in_its_own_world(short_dir: Path) -> None:
    assert Path.home().is_relative_to(short_dir)
    assert not [name for name in os.environ if name.startswith("ANTHROPIC_")]
    assert len(os.environ["SID_SOCKET"].encode()) < 60


def test_a_repository_is_real_and_needs_no_configuration(repo: MakeRepo) -> None:
    made = repo({"app.py": "x = 1\n", "a b/ü.txt": "text"}, name="späce y")

    assert made.git("log", "--format=%an: %s") == "Ada Tester: Start"
    assert made.branches() == ["main"]
    assert made.worktrees() == []


@pytest.mark.parametrize("harm", ["stage", "edit", "config", "stash", "hook", "branch"])
def test_a_fingerprint_sees_every_touch(repo: MakeRepo, harm: str) -> None:
    made = repo({"app.py": "x = 1\n"})
    made.write({"app.py": "x = 2\n"})
    before = made.fingerprint()
    assert made.fingerprint() == before

    match harm:
        case "stage":
            made.git("add", "app.py")
        case "edit":
            made.write({"app.py": "x = 3\n"})
        case "config":
            made.git("config", "user.name", "someone")
        case "stash":
            made.git("stash")
        case "hook":
            made.write({".git/hooks/pre-commit": "#!/bin/sh\n"})
        case "branch":
            made.git("checkout", "--quiet", "-b", "other")
    assert made.fingerprint() != before


@pytest.mark.parametrize("clean", [{}, {"PATH": "/usr/bin:/bin"}], ids=["marked", "scrubbed"])
def test_a_process_left_behind_is_found(
    session_dir: Path, short_dir: Path, real_process: Spawn, clean: dict[str, str]
) -> None:
    before = Snapshot.take(session_dir)
    child = real_process(SLEEP, cwd=short_dir, env=clean or None, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()

    assert any(line.startswith(f"process {child.pid} ") for line in before.leaks(grace_s=0))


def test_an_open_file_a_thread_and_a_socket_are_found(session_dir: Path, short_dir: Path) -> None:
    before = Snapshot.take(session_dir)
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="forgotten")
    thread.start()
    with socket.socket(socket.AF_UNIX) as listener, (short_dir / "kept").open("w"):
        listener.bind(str(short_dir / "s"))
        listener.listen()
        leaks = "\n".join(before.leaks(grace_s=0))
    done.set()
    thread.join()

    assert "kept" in leaks
    assert "thread forgotten" in leaks
    assert str(short_dir / "s") in leaks
    assert before.leaks(grace_s=0) == []


def test_a_leak_fails_the_suite_and_a_jumping_clock_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntrio_mode = true\n")
    pytester.makeconftest("from tests.conftest import own_world, real_process, session_dir, short_dir\n")
    pytester.makepyfile(
        "import os\n"
        "def test_leaves_a_descriptor():\n    os.open('/etc/passwd', os.O_RDONLY)\n"
        "async def test_jumps(real_process, autojump_clock):\n    pass\n"
    )
    root = Path(__file__).parent.parent
    result = pytester.runpytest_subprocess(
        f"--rootdir={pytester.path}", "-p", "no:cacheprovider", f"-opythonpath={root}"
    )

    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*leap past every deadline*", "*file descriptor * -> /etc/passwd*"])
