"""What the tests of jobs and sandboxes share: a place, a specification, and who is still alive there."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from sid_actors.jobs import marks, procfs
from sid_actors.jobs.job import JobSpec, Mount
from sid_actors.workbench.sandbox import probe
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import Toolchain, find_toolchain

BOXES = ["plain", "sandboxed"]


why_no_sandbox = functools.cache(probe._probe)  # what `probe_bwrap` asks in a thread


@functools.cache
def toolchain(home: str) -> Toolchain:
    return find_toolchain(os.environ["PATH"], home=home)


def need_sandbox() -> None:
    if why := why_no_sandbox():
        pytest.skip(f"no sandbox here: {why}")


def make_sandbox(folder: Path, **changes: Any) -> Sandbox:
    """A sandbox in which `folder` is writable and the interpreters work."""
    home = str(Path.home())
    described: dict[str, Any] = {
        "workdir": str(folder),
        "writable": (str(folder),),
        "readable": toolchain(home).readable,
        "sealed": (),
        "network": False,
        "home": home,
        "mounts": tuple[Mount, ...](),
    }
    return Sandbox(**{**described, **changes})


def make_spec(folder: Path, *argv: str, box: str = "plain", **changes: Any) -> JobSpec:
    """A job in `folder`: the words given, or if it is one only, that line for the shell."""
    if box == "sandboxed":
        need_sandbox()
        changes.setdefault("sandbox", make_sandbox(folder))
    home = str(Path.home())
    described: dict[str, Any] = {
        "argv": argv if len(argv) > 1 else ("/bin/sh", "-c", *argv),
        "cwd": str(folder),
        "env": {"PATH": toolchain(home).path, "HOME": home, "LANG": "C.UTF-8"},
        "deadline_s": 60.0,
        "sandbox": None,
    }
    return JobSpec(**{**described, **changes})


def alive_in(folder: Path) -> list[psutil.Process]:
    """All processes that work in the folder and are alive, seen from outside of any sandbox."""
    found = []
    for process in psutil.process_iter():
        try:
            works_there = Path(process.cwd()).is_relative_to(folder)
            if works_there and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # ended meanwhile, or another user's
    return found


def strays(folder: Path, prefix: str) -> dict[int, str]:
    """Every process of a job, by its mark, by where it works, and by what its file system shows."""
    found = {one.pid: one.name() for one in alive_in(folder)}
    for pid in procfs.process_ids() - {os.getpid()}:
        with contextlib.suppress(OSError):
            mounts = Path(f"/proc/{pid}/mountinfo").read_text()
            stat = procfs.read_stat(pid)
            alive = stat is not None and stat.state not in procfs.ENDED
            if alive and (marks.is_named(pid, prefix) or f"/{folder.parent.name}/{folder.name}" in mounts):
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
    return found
