"""What a job may use at most: each limit is passed by real processes, ends there, and is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sid_actors.jobs.job import JobLimits
from sid_actors.jobs.limits import blame, limits_of
from sid_actors.jobs.overload import DiskRoom
from sid_actors.jobs.process import run_job
from sid_protocol.settings import Limits
from tests.actors.job_cases import BOXES, alive_in, make_spec

both = pytest.mark.parametrize("box", BOXES)
mostly_sandboxed = pytest.mark.parametrize(
    "box", [pytest.param("plain", marks=pytest.mark.slow), "sandboxed"]
)
SPAWN = "for i in $(seq 40); do sleep 600 & done; wait"
HOLD = "import time\nx = bytearray(80 << 20)\ntime.sleep(600)"
MORE = "n=$((n+1)); head -c 300000 /dev/zero"
WRITERS = {
    "files": f"while :; do {MORE} > junk.$n; done",
    "ignored files": f"echo '*.log' > .gitignore; while :; do {MORE} > $n.log; done",
    "one that grows": f"while :; do {MORE} >> large; done",
    "one without a name": f"exec 3> large; rm large; while :; do {MORE} >&3; done",
    "a folder that is closed": f"mkdir shut; while :; do chmod 700 shut; {MORE} > shut/$n; chmod 0 shut; done",
}
PRIVATE = ("/tmp", "/dev/shm", "$HOME", "/run", "/dev", "/")


@both
async def test_processes(short_dir: Path, box: str) -> None:
    limits = JobLimits(processes=20)
    done = await run_job(make_spec(short_dir, SPAWN, box=box, limits=limits))

    assert alive_in(short_dir) == []
    assert "limits.processes is 20" in blame(done, limits)
    held_by_kernel = box == "sandboxed" and os.getuid() != 0
    assert (done.over is None) == held_by_kernel
    assert not done.timed_out
    assert (
        await run_job(make_spec(short_dir, "sleep 1 & sleep 1 & wait", box=box, limits=limits))
    ).over is None


async def test_memory_of_all_processes_together(short_dir: Path) -> None:
    (short_dir / "hold.py").write_text(HOLD)
    alone = await run_job(make_spec(short_dir, "python3 hold.py", limits=JobLimits(memory_mb=60)))
    limits = JobLimits(memory_mb=200)
    four = "for i in 1 2 3 4; do python3 hold.py & done; wait"
    together = await run_job(make_spec(short_dir, four, limits=limits))

    assert (alone.over, blame(alone, JobLimits(memory_mb=60))) == (None, "limits.memory_mb is 60")
    assert together.over is not None
    assert together.over.name == "memory_mb"
    assert "limits.memory_mb is 200" in together.over.why
    assert alive_in(short_dir) == []


@mostly_sandboxed
@pytest.mark.parametrize("writer", WRITERS)
async def test_a_folder_that_fills_is_seen_while_it_does(short_dir: Path, box: str, writer: str) -> None:
    tree = short_dir / "tree"
    tree.mkdir()
    (tree / "old").write_bytes(bytes(9_000_000))
    room = DiskRoom(str(tree), 6)
    done = await run_job(make_spec(tree, WRITERS[writer], box=box, room=room))
    for folder, _, _ in os.walk(tree):
        os.chmod(folder, 0o700)  # noqa: PTH101 -- so that the test's folder can be removed

    assert done.over is not None
    assert (done.over.name, done.timed_out) == ("worktree_mb", False)
    assert "limits.worktree_mb is 6" in blame(done, JobLimits())
    assert alive_in(short_dir) == []


@pytest.mark.slow
async def test_what_was_there_or_is_removed_again_is_not_counted(short_dir: Path) -> None:
    tree = short_dir / "tree"
    tree.mkdir()
    (tree / "old").write_bytes(bytes(20_000_000))
    work = "for i in $(seq 30); do head -c 2000000 /dev/zero > new; rm new; done; mv old moved; sleep 0.6"
    done = await run_job(make_spec(tree, work, room=DiskRoom(str(tree), 16)))
    assert (done.exit_code, done.over) == (0, None)


async def test_one_file(short_dir: Path) -> None:
    limits = JobLimits(file_mb=2)
    by_shell = await run_job(make_spec(short_dir, "exec head -c 5000000 /dev/zero > f", limits=limits))
    write = 'python3 -c \'open("f", "wb").write(bytes(5000000))\''
    by_python = await run_job(make_spec(short_dir, write, limits=limits))
    for done in (by_shell, by_python):
        assert done.exit_code != 0
        assert blame(done, limits) == "limits.file_mb is 2"


async def test_open_files(short_dir: Path) -> None:
    limits = JobLimits(open_files=40)
    done = await run_job(
        make_spec(short_dir, "python3 -c 'f = [open(\"/dev/null\") for _ in range(99)]'", limits=limits)
    )
    assert blame(done, limits) == "limits.open_files is 40"


@pytest.mark.parametrize("folder", PRIVATE)
async def test_private_folders_of_a_sandbox(short_dir: Path, folder: str) -> None:
    """Without the limit half of the machine's memory may be written, or, in /dev, all of it."""
    tree = short_dir / "tree"
    tree.mkdir()
    write = f'head -c 6000000 /dev/zero > "{folder}/f" && echo written'
    free = await run_job(make_spec(tree, write, box="sandboxed"))
    bounded = await run_job(make_spec(tree, write, box="sandboxed", limits=JobLimits(scratch_mb=4)))

    assert free.stdout.text() == ("" if folder in ("/dev", "/") else "written\n")
    assert bounded.stdout.text() == ""
    if folder not in ("/dev", "/"):
        assert blame(bounded, JobLimits(scratch_mb=4)) == "a sandbox's private folders hold 4 MB each"


def test_private_folders_hold_no_more_than_any_of_the_limits_allows() -> None:
    assert limits_of(Limits(worktree_mb=7, memory_mb=9)).scratch_mb == 7
    assert limits_of(Limits(worktree_mb=9, memory_mb=7)).scratch_mb == 7
    unlimited = limits_of(Limits(worktree_mb=None)).scratch_mb
    assert unlimited is not None
    assert 0 < unlimited << 20 < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 3
