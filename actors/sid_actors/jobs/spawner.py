"""Starts processes, in threads of its own that live as long as the daemon.

`launch` alone uses it. Why it is done so:

- The death signal that ties a process to the daemon is sent when the thread that started it ends, and trio's worker
  threads end after 10 idle seconds.
- A process inherits the priority of the thread that starts it. What is to stand back does so from its first moment.
- Who starts a process sleeps until that has begun its program, 0.3 ms on an idle machine and 30 on one whose processors
  are taken. `subprocess` and `os.posix_spawn` keep Python's lock all that time, so that no other thread, nor the event
  loop, does anything. A call of the C library by `ctypes` gives it back.
- Where the C library cannot close all other descriptors on the way (glibc before 2.34, musl), `subprocess` starts it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import outcome
import trio

T = TypeVar("T")

_SETPGROUP, _SETSIGDEF, _SETSID = 0x02, 0x04, 0x80  # POSIX_SPAWN_… of spawn.h
_OPAQUE_BYTES = 512  # more than any of the library's structures takes: 336, 128 and 80 in glibc and musl
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
NICE = 10
"""By how much what stands back does so: it gets about a tenth of what others get."""
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is started, in a process group of its own.

    Attributes:
        argv: Its words; the first is an absolute path.
        env: Its whole environment.
        cwd: Where it starts; None is where this process is.
        streams: What it has as descriptors 0, 1 and 2. It inherits no others but one; all are above 2 here.
        passed: The other one, if any; `passed_as` says which number that has there.
        session: Whether it has a session of its own.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    streams: tuple[int, int, int]
    passed: int | None
    session: bool


async def in_thread(call: Callable[[], T], *, stands_back: bool) -> T:
    """Call something in a thread that starts processes, and return or raise what it does; not to be cancelled.

    Args:
        call: What is called; others wait for its end.
        stands_back: Whether others go before what is started, where processors are short.
    """
    done = trio.Event()
    token = trio.lowlevel.current_trio_token()
    results: list[outcome.Outcome[T]] = []

    def carry_out() -> None:
        results.append(outcome.capture(call))
        token.run_sync_soon(done.set)

    _calls(stands_back=stands_back).put(carry_out)
    with trio.CancelScope(shield=True):
        await done.wait()
    return results[0].unwrap()


@functools.cache
def _calls(*, stands_back: bool) -> queue.SimpleQueue[Callable[[], None]]:
    """Return what a thread calls one after the other; it is started at the first, and one for the process."""
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def work() -> None:
        if stands_back:
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + NICE)  # of this thread
        while True:
            calls.get()()

    threading.Thread(target=work, name="spawner", daemon=True).start()
    return calls


os.register_at_fork(after_in_child=_calls.cache_clear)  # threads stay with the parent


def spawn(program: Program) -> int:
    """Start a program; returns its process id once it has begun, for the caller to reap. Blocks.

    Raises:
        OSError: there is no such program or folder, or no room.
        ValueError: a word holds a NUL character.
    """
    return by_libc(program) if can_close_others() else by_subprocess(program)


def passed_as(fd: int) -> int:
    """Return which number a descriptor has for the program that it is passed to."""
    return 3 if can_close_others() else fd


@functools.cache
def can_close_others() -> bool:
    """Say whether the C library starts a process that inherits nothing but what is named."""
    needed = ("posix_spawn_file_actions_addclosefrom_np", "posix_spawn_file_actions_addchdir_np")
    return all(hasattr(_LIBC, name) for name in needed)


def by_libc(program: Program) -> int:
    """Do as `spawn`, while other threads of Python go on."""
    words = [os.fsencode(word) for word in program.argv]
    env = [os.fsencode(f"{name}={value}") for name, value in program.env.items()]
    cwd = None if program.cwd is None else os.fsencode(program.cwd)
    if any(b"\0" in word for word in (*words, *env, cwd or b"")):
        raise ValueError("embedded null byte")
    pid = ctypes.c_int()
    attributes, actions, defaults = (ctypes.create_string_buffer(_OPAQUE_BYTES) for _ in range(3))
    _LIBC.sigemptyset(defaults)
    for number in _IGNORED_BY_PYTHON:
        _LIBC.sigaddset(defaults, int(number))
    _check(_LIBC.posix_spawnattr_init(attributes))
    _check(_LIBC.posix_spawn_file_actions_init(actions))
    try:
        flags = _SETSIGDEF | (_SETSID if program.session else _SETPGROUP)
        _check(_LIBC.posix_spawnattr_setflags(attributes, ctypes.c_short(flags)))
        _check(_LIBC.posix_spawnattr_setsigdefault(attributes, defaults))
        if cwd is not None:
            _check(_LIBC.posix_spawn_file_actions_addchdir_np(actions, cwd))
        more = () if program.passed is None else (program.passed,)
        for theirs, ours in enumerate((*program.streams, *more)):
            _check(_LIBC.posix_spawn_file_actions_adddup2(actions, ours, theirs))
        _check(_LIBC.posix_spawn_file_actions_addclosefrom_np(actions, len(program.streams) + len(more)))
        argv, envp = _array(words), _array(env)
        _check(_LIBC.posix_spawn(ctypes.byref(pid), words[0], actions, attributes, argv, envp), program)
    finally:
        _LIBC.posix_spawn_file_actions_destroy(actions)
        _LIBC.posix_spawnattr_destroy(attributes)
    return pid.value


def by_subprocess(program: Program) -> int:
    """Do as `spawn`, by Python's own means: nothing else of this process runs until the program has begun."""
    stdin, stdout, stderr = program.streams
    process = subprocess.Popen(
        program.argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=program.cwd,
        env=program.env,
        pass_fds=() if program.passed is None else (program.passed,),
        start_new_session=program.session,
        process_group=None if program.session else 0,
    )
    process.returncode = 0  # it is the caller's to reap
    return process.pid


def _array(words: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _check(number: int, program: Program | None = None) -> None:
    if number and program:
        is_there = program.cwd is None or Path(program.cwd).is_dir()
        raise OSError(number, os.strerror(number), program.argv[0] if is_there else program.cwd)
    if number:
        raise OSError(number, os.strerror(number))
