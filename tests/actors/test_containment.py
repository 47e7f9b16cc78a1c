"""cgroups for jobs, where this machine gives us some; and nothing of them where it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from sid_actors.jobs import cgroup, containment, process
from sid_actors.jobs.job import JobLimits
from sid_actors.jobs.marks import Mark
from sid_actors.jobs.process import prepare_jobs, run_job
from tests.actors.job_cases import BOXES, alive_in, make_spec

pytestmark = pytest.mark.usefixtures("real_process")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[cgroup.CgroupHome]:
    monkeypatch.setattr(process, "_set_up", process._set_up)
    prepare_jobs(f"sid-test-{os.getpid()}")
    made = process._set_up.home
    if made is None:
        pytest.skip("no cgroup v2 that this process may divide")
    yield made
    process.release_jobs()
    assert not made.path.exists()


@pytest.mark.parametrize("box", BOXES)
async def test_a_job_lives_in_its_cgroup_and_ends_with_it(
    home: cgroup.CgroupHome, short_dir: Path, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside: list[str] = []
    with trio.CancelScope() as scope:

        def look(stream: str, piece: bytes) -> None:
            inside.extend(path.name for path in home.path.iterdir() if path.is_dir())
            assert {process.pid for process in alive_in(short_dir)} <= cgroup.JobCgroup(home.path).members()
            scope.cancel()

        # Without its marks a process that left its parents is known by its cgroup alone.
        monkeypatch.setattr(Mark, "is_on", lambda mark, pid: False)
        command = "(env -i setsid sleep 600 &); echo up; sleep 600"
        await run_job(make_spec(short_dir, command, box=box), on_output=look)

    assert len(set(inside)) == 1
    assert alive_in(short_dir) == []
    assert not [path for path in home.path.iterdir() if path.is_dir()]


async def test_processes_are_limited_where_the_controller_is_there(
    home: cgroup.CgroupHome, short_dir: Path
) -> None:
    if "pids" not in home.controllers:
        pytest.skip(f"controllers here: {sorted(home.controllers) or 'none'}")
    done = await run_job(make_spec(short_dir, "sleep 1 & sleep 1 & wait", limits=JobLimits(processes=2)))
    assert done.exit_code != 0


def test_the_home_of_a_dead_predecessor_is_emptied_and_used_again(
    home: cgroup.CgroupHome, short_dir: Path, real_process
) -> None:
    left = home.make("left", memory_mb=None, processes=None)
    real_process(["/bin/sh", "-c", 'echo 0 > "$0"; sleep 600', left.door], cwd=short_dir)
    while not left.members():
        pass

    again = cgroup.claim(home.path.name, end=containment.end_cgroup)

    assert again == home
    assert alive_in(short_dir) == []
    assert not left.path.exists()


def test_no_home_where_none_is_to_be_had(monkeypatch: pytest.MonkeyPatch, short_dir: Path) -> None:
    monkeypatch.setattr(cgroup, "_own_cgroup", lambda: short_dir / "missing")
    assert cgroup.claim("sid-test", end=containment.end_cgroup) is None
