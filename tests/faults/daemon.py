"""`sid` that can be told where to die: `python -m tests.faults.daemon` instead of `sid`.

Wraps the places where something becomes durable or visible. `SID_FAULT=NAME:NUMBER:before|after` ends the process with SIGKILL at
that place, as a crash would, where a ref is written also at `locked`; with `SID_FAULT_LOG=FILE` every place that is passed is
written there. With `SID_FAULT_SLOW_LOG` the log's disk takes so many seconds a write. Nothing of the product knows of it.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sid_actors.git import refs
from sid_actors.workbench.checkouts import deleting, pool, registration
from sid_daemon.log.files import LogFiles
from sid_daemon.main import main
from sid_daemon.store import view_files
from sid_daemon.store.journal import Journal
from sid_daemon.store.registry import Registry

_passed: Counter[str] = Counter()
_fault = os.environ.get("SID_FAULT", "")
_log = os.environ.get("SID_FAULT_LOG")
_group = os.environ.get("SID_FAULT_GROUP") == "1"


def at(name: str, when: str) -> None:
    """Pass a crash point, or die there."""
    point = f"{name}:{_passed[name]}:{when}"
    note(point)
    if point == _fault:
        die()


def note(point: str) -> None:
    """Write down that a crash point was passed, if anybody wants to know."""
    if _log:
        with Path(_log).open("a") as file:
            file.write(f"{point}\n")


def die() -> None:
    """End as a crash would."""
    (os.killpg if _group else os.kill)(os.getpid(), signal.SIGKILL)


def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a crash point before and after it."""

    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        _passed[name] += 1
        at(name, "before")
        result = function(*args, **more)
        at(name, "after")
        return result

    return call


def wrapped_async(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function with a crash point before and after it."""

    @functools.wraps(function)
    async def call(*args: Any, **more: Any) -> Any:
        _passed[name] += 1
        at(name, "before")
        result = await function(*args, **more)
        at(name, "after")
        return result

    return call


def wrapped_ref(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that writes a ref, with a crash point also in the middle: with the lock, before the ref."""
    wrapped_whole = wrapped(name, function)

    @functools.wraps(function)
    def call(repo: Any, ref: str, *args: Any) -> Any:
        point = f"{name}:{_passed[name] + 1}:locked"
        note(point)
        if point == _fault:
            lock = Path(repo.path, f"{ref}.lock")
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
            die()
        return wrapped_whole(repo, ref, *args)

    return call


def slowed(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Return a function that takes longer."""

    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        time.sleep(seconds)
        return function(*args, **more)

    return call


def install() -> None:
    """Put the crash points in."""
    blocking = {
        "journal": (Journal, "append"),
        "copy": (Journal, "copy_to"),
        "registry": (Registry, "set_active"),
        "view": (view_files, "replace"),
        "list": (view_files, "extend"),
        "settle": (view_files, "sync_folder"),
        "remove": (deleting, "remove"),
        "worktree": (registration, "register"),
    }
    if slow := os.environ.get("SID_FAULT_SLOW_LOG"):
        setattr(LogFiles, "append", slowed(LogFiles.append, float(slow)))  # noqa: B010 -- as those below
    for name, (place, attribute) in blocking.items():
        setattr(place, attribute, wrapped(name, getattr(place, attribute)))
    for name, attribute in {"ref": "move", "branch": "put", "delete": "delete"}.items():
        setattr(refs, attribute, wrapped_ref(name, getattr(refs, attribute)))
    vars(pool)["git"] = wrapped_async("git", vars(pool)["git"])


if __name__ == "__main__":
    install()
    sys.exit(main(sys.argv[1:]))
