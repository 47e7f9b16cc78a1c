"""Starting processes: what they inherit, by the C library's way and by Python's, and the threads that start them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.jobs import spawner
from sid_actors.jobs.spawner import Program, by_libc, by_subprocess, in_thread

pytestmark = pytest.mark.usefixtures("short_dir")
needs_libc = pytest.mark.skipif(not spawner.can_close_others(), reason="this C library cannot close others")
both = pytest.mark.parametrize("way", [pytest.param(by_libc, marks=needs_libc), by_subprocess])
TELL = """
import json, os, sys
fds = [fd for fd in range(400) if os.path.exists(f"/proc/self/fd/{fd}")]
print(json.dumps(dict(fds=fds, session=os.getsid(0), group=os.getpgid(0), pid=os.getpid(), cwd=os.getcwd(), words=sys.argv[1:],
                      read=sys.stdin.read(), env=dict(os.environ))))
print("an error", file=sys.stderr)
"""
# Python would set them again before it could tell.
IGNORED = 'IGNORED=$(sed -n "s/SigIgn:.//p" /proc/self/status) exec "$@"'


@pytest.fixture
def program(short_dir: Path) -> Iterator[Program]:
    (short_dir / "in").write_text("to be read\n")
    names = ("in", "out", "err", "more", "inheritable")
    fds = [os.open(short_dir / name, os.O_RDWR | os.O_CREAT) for name in names]
    os.set_inheritable(fds[4], True)
    yield Program(
        argv=("/bin/sh", "-c", IGNORED, "sh", sys.executable, "-I", "-c", TELL, "two words", ""),
        env={"NAME": "ä=b", "LC_ALL": "C.UTF-8"},
        cwd=str(short_dir),
        streams=(fds[0], fds[1], fds[2]),
        passed=fds[3],
        session=True,
    )
    for fd in fds:
        os.close(fd)


def told_by(program: Program, way: Callable[[Program], int]) -> dict[str, Any]:
    """Start it, wait for its end, and return what it has told."""
    pid = way(program)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, os.pread(program.streams[2], 4000, 0)
    told: dict[str, Any] = json.loads(os.pread(program.streams[1], 10_000, 0))
    assert told["pid"] == pid
    return told


@both
def test_a_process_gets_what_is_named_and_nothing_else(
    program: Program, way: Callable[[Program], int]
) -> None:
    told = told_by(program, way)
    assert program.passed is not None
    passed = 3 if way is by_libc else program.passed
    assert set(told["fds"]) <= {0, 1, 2, passed, max(told["fds"])}, "besides the one that tells of them"
    assert passed in told["fds"]
    assert (told["read"], os.pread(program.streams[2], 100, 0)) == ("to be read\n", b"an error\n")
    assert told["cwd"] == program.cwd
    assert told["words"] == ["two words", ""]
    ignored = int(told["env"].pop("IGNORED"), 16)
    assert not ignored & sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    told["env"].pop("PWD", None)  # the shell's own
    assert told["env"] == program.env
    assert told["session"] == told["group"] == told["pid"]


@both
def test_without_a_session_of_its_own_it_has_a_group(program: Program, way: Callable[[Program], int]) -> None:
    told = told_by(replace(program, session=False, passed=None, cwd=None), way)
    assert (told["session"], told["group"]) == (os.getsid(0), told["pid"])
    assert told["cwd"] == str(Path.cwd())


@both
def test_what_cannot_be_started_says_why(
    program: Program, way: Callable[[Program], int], short_dir: Path
) -> None:
    missing = str(short_dir / "missing")
    with pytest.raises(FileNotFoundError, match=missing):
        way(replace(program, argv=(missing, "word")))
    with pytest.raises(FileNotFoundError, match=missing):
        way(replace(program, cwd=missing))
    with pytest.raises(PermissionError, match=str(short_dir / "in")):
        way(replace(program, argv=(str(short_dir / "in"),)))
    for changes in ({"argv": ("/bin/echo", "\0")}, {"env": {"NAME": "\0"}}, {"cwd": "/\0"}):
        with pytest.raises(ValueError, match="null byte"):
            way(replace(program, **changes))


async def test_the_same_thread_starts_all_that_is_alike_and_outlives_trios() -> None:
    first, again = [await in_thread(threading.get_ident, stands_back=False) for _ in range(2)]
    back = await in_thread(threading.get_ident, stands_back=True)
    assert first == again != back != threading.get_ident()
    assert not [
        thread for thread in threading.enumerate() if thread.ident in (first, back) and "Trio" in thread.name
    ]


async def test_who_stands_back_has_less_priority_and_nobody_else() -> None:
    def own() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    usual = own()
    assert await in_thread(own, stands_back=False) == usual
    assert await in_thread(own, stands_back=True) == min(usual + 10, 19)
    assert own() == usual


async def test_what_was_begun_is_heard_of_though_it_is_cancelled() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def start() -> int:
        begun.set()
        go_on.wait()
        return 7

    heard = []

    async def ask() -> None:
        heard.append(await in_thread(start, stands_back=False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
        go_on.set()
    assert heard == [7]


async def test_an_error_is_heard_and_the_thread_goes_on() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0, stands_back=False)
    assert await in_thread(lambda: 2, stands_back=False) == 2
