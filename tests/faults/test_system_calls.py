"""SIGKILL between two system calls of one step: what lies on the disk then is half a step, and the next daemon finishes it."""

from __future__ import annotations

import functools
import shutil
import subprocess

import pytest

from tests.faults.harness import Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ADMIN = ".git/worktrees/round_1_executor_1"
TRACK = ".sid/topics/default"

# A path below the repository, and the call on it before which the daemon dies the first time.
MOMENTS = [
    (".git/refs/heads/improve/raise_the_number.lock", "rename"),
    (".git/refs/heads/experiment/round_1_executor_1.lock", "link"),
    (".git/refs/heads/experiment/round_1_executor_1", "unlink"),
    (".git/refs/tags/archive/round_1_executor_2.lock", "link"),
    (".git/logs/refs/heads/improve/raise_the_number", "openat"),
    (f"{ADMIN}/locked", "openat"),
    (f"{ADMIN}/HEAD", "openat"),
    (f"{ADMIN}/gitdir", "openat"),
    (ADMIN, "rmdir"),
    ("worktrees/round_1_executor_1", "rename"),
    (f"{TRACK}/pool/tree-1", "mkdir"),
    (f"{TRACK}/pool", "rename"),
    (f"{TRACK}/state/run.db-wal", "pwrite64"),
    (f"{TRACK}/state/run.db-wal", "fdatasync"),
]


@functools.cache
def why_not_traced() -> str:
    """Say why no process can be traced here; empty where it can."""
    if shutil.which("strace") is None:
        return "strace is not installed: 'apt-get install strace'"
    probe = subprocess.run(["strace", "-D", "-o", "/dev/null", "true"], check=False, capture_output=True)
    return (
        "" if probe.returncode == 0 and not probe.stderr else "this machine does not let processes be traced"
    )


@pytest.mark.parametrize(("path", "call"), MOMENTS)
def test_half_a_step_is_finished_by_the_next_daemon(stage: Stage, path: str, call: str) -> None:
    if why := why_not_traced():
        pytest.skip(why)
    words = ["-D", "-f", "-qq", "-o", "/dev/null", "-P", str(stage.repo.path / path)]
    tracer = ["strace", *words, "-e", f"inject={call}:signal=KILL:when=1"]
    assert stage.crash_at("none", under=tracer), "the run never came to it"
    measured = stage.bodies("run_measured")
    stage.check(stage.go_on(), measured)
    assert not list((stage.repo.path / ".git/worktrees").glob("*"))
