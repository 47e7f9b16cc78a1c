"""Quiet signs of life: changed files and CPU time move the idle clock, a program that only waits does not.

On a machine whose processors are taken, too: real processes beside real hogs on one processor, without a look at
how fast they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sid_actors.backends.enclose import watch
from sid_actors.jobs.process import run_job
from sid_actors.jobs.procfs import read_stat
from sid_actors.watching.activity import ActivityLog
from sid_actors.watching.signs import Seen, Signs, at_work, look
from tests.actors.job_cases import make_spec
from tests.crowd import crowd

HOUR_S = 3600.0


def at(path: Path, ago_s: float) -> None:
    path.write_text("x\n")
    os.utime(path, (time.time() - ago_s,) * 2)


def test_a_look_counts_what_is_newer_and_nothing_of_tools(short_dir: Path) -> None:
    tree = short_dir / "tree"
    for folder in (tree / "a", tree / "__pycache__", tree / ".git"):
        folder.mkdir(parents=True)
    at(tree / "a/old.py", 2 * HOUR_S)
    at(tree / "a/new.py", 0)
    at(tree / "__pycache__/new.pyc", 0)
    at(tree / ".git/index", 0)

    signs = look(Seen(cpu_s=1.5), str(tree), time.time() - HOUR_S)
    assert (signs.cpu_s, signs.changed) == (1.5, 1)
    assert abs(signs.newest - time.time()) < HOUR_S
    assert look(Seen(), str(short_dir / "missing"), 0.0) == look(Seen(), None, 0.0) == Signs()


async def test_only_work_moves_the_clock(mock_clock: MockClock) -> None:  # noqa: ASYNC124 - trio's clock is asked
    log = ActivityLog()
    log.works_in("/nowhere")
    for passed_s, signs, moved in (
        (100, Signs(1.0, 0.0, 0), False),  # polls
        (100, Signs(30.0, 0.0, 0), True),  # computes
        (100, Signs(30.0, log.started_at + 1, 1), True),  # writes
        (100, Signs(30.0, log.started_at + 1, 1), False),  # neither
    ):
        mock_clock.jump(passed_s)
        before = log.last_seen
        log.notice(signs)
        assert (log.last_seen != before) is moved, signs


async def test_work_is_seen_after_the_clock_was_put_back(short_dir: Path, mock_clock: MockClock) -> None:  # noqa: ASYNC124 - trio's clock is asked
    tree = short_dir / "tree"
    tree.mkdir()
    log = ActivityLog()
    at(tree / "written_before.py", -HOUR_S)  # by the clock as it is now, in an hour
    os.utime(tree, (time.time() - HOUR_S,) * 2)
    log.works_in(str(tree))

    def moves() -> bool:
        mock_clock.jump(100)
        before = log.last_seen
        log.notice(look(Seen(), str(tree), 0.0))
        return log.last_seen != before

    assert not moves()
    for ago_s in (30, 20, 10):
        at(tree / "written_after.py", ago_s)
        os.utime(tree, (time.time() - HOUR_S,) * 2)
        assert moves()
        assert not moves()


async def test_a_loop_is_one_that_changed_nothing_while_it_lasted(short_dir: Path) -> None:
    tree = short_dir / "tree"
    tree.mkdir()
    log = ActivityLog()
    at(tree / "checked_out.py", 10)
    log.works_in(str(tree))
    for _ in range(3):
        log.tool("Bash", {"command": "pytest"})
    idle = await log.gather(60)
    at(tree / "app.py", 0)
    busy = await log.gather(60)

    assert (idle.edits, idle.recent_edits, idle.repeats) == (0, 0, 3)
    assert (busy.edits, busy.recent_edits) == (1, 1)


async def test_the_last_activity_is_the_newest_sign_until_a_tool_says_more(short_dir: Path) -> None:
    log = ActivityLog()
    assert log.evidence(60).last_activity == "starting"
    log.output("Hello")
    assert log.evidence(60).last_activity == "printing"
    log.works_in(str(short_dir))
    log.started_at -= HOUR_S
    at(short_dir / "app.py", 0)
    assert (await log.gather(60)).last_activity == "editing"
    log.tool("Bash", {"command": "pytest"})
    log.output("1 passed")
    assert log.evidence(60).last_activity == "Bash"


async def test_a_question_without_an_end_of_line_is_evidence() -> None:  # noqa: ASYNC124 - trio's clock is asked
    log = ActivityLog()
    log.output("Hello")
    log.unfinished = "Password: "
    assert log.evidence(60).outputs == ("Hello", "Password:")
    assert log.evidence(60).last_activity == "printing"


KEPT, WORKS = "waiting for a processor", "working"


@pytest.mark.parametrize(
    ("cpu_s", "ready_s", "told"),
    [
        (30.0, {1: 0.0}, WORKS),
        (30.0, {1: 60.0}, WORKS),
        (1.0, {1: 0.0}, None),  # polls
        (1.0, {1: 40.0}, None),  # polls, and has to wait at times
        (1.0, {1: 90.0}, KEPT),  # computes as often as it may
        (0.0, {1: 100.0}, None),  # the wait may have begun before
        (0.0, {1: 130.0}, KEPT),  # began to wait before the earlier look
        (1.0, dict.fromkeys(range(9), 40.0), None),  # they wait at the same time
        (1.0, {1: 0.0, 2: 90.0}, KEPT),
    ],
)
def test_whoever_computes_as_often_as_it_may_is_at_work(
    cpu_s: float, ready_s: dict[int, float], told: str | None
) -> None:
    before = Signs(cpu_s=7.0, ready_s={1: 5.0, 99: 1000.0})
    since = {thread: ready_s + before.ready_s.get(thread, 0.0) for thread, ready_s in ready_s.items()}
    assert at_work(before, Signs(cpu_s=7.0 + cpu_s, ready_s=since), 100.0) == told


@pytest.mark.parametrize(("any_ready_s", "told"), [(0.0, None), (40.0, None), (95.0, KEPT)])
def test_what_short_commands_waited_is_known_of_their_job(any_ready_s: float, told: str | None) -> None:
    before = Signs(any_ready_s=5.0)
    now = Signs(cpu_s=1.0, ready_s={1: 2.0}, any_ready_s=5.0 + any_ready_s)
    assert at_work(before, now, 100.0) == told


def test_a_start_is_no_work() -> None:
    assert at_work(Signs(), Signs(cpu_s=0.04), 0.1) is None
    assert at_work(Signs(), Signs(), 0.0) is None


def test_the_cpu_time_of_commands_that_ended_counts() -> None:
    before = read_stat(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    now = read_stat(os.getpid())
    assert before
    assert now
    assert now.cpu_s - before.cpu_s >= 0.1  # counted in hundredths


async def test_the_last_look_is_at_the_limit_however_late_the_others_were(mock_clock: MockClock) -> None:
    looks: list[int] = []

    def seen() -> Seen:
        looks.append(1)
        return Seen()

    log = ActivityLog(processes=seen)
    # Each look is late by a second; the limit is not. Then something was looked at just now.
    for passed_s, looked in ((11, 1), (11, 2), (11, 3), (7, 4), (4, 4)):
        mock_clock.jump(passed_s)
        await log.look_for_signs(10)
        assert len(looks) == looked


@pytest.fixture
def crowded() -> Iterator[int]:
    """A processor that others never leave."""
    processor = min(os.sched_getaffinity(0))
    with crowd(6, {processor}):
        yield processor


COMMANDS = {
    "while :; do :; done": True,
    "while :; do /bin/true; done": True,
    "while sleep 1; do test -e gone; done": False,
    "exec sleep 600": False,
}


async def test_whoever_gets_no_processor_is_not_silent(short_dir: Path, crowded: int) -> None:
    """All are looked at until each that works was seen to."""
    logs = {command: ActivityLog() for command in COMMANDS}

    async def run(command: str) -> None:
        words = ("taskset", "-c", str(crowded), "sh", "-c", command)
        spec = make_spec(short_dir, *words, stands_back=True)
        await run_job(spec, on_start=lambda handle: watch(logs[command], handle))

    with trio.fail_after(50):
        async with trio.open_nursery() as nursery:
            for command in COMMANDS:
                nursery.start_soon(run, command)
            while not all(log.last_seen for command, log in logs.items() if COMMANDS[command]):
                await trio.sleep(1)  # what passes between two looks
                for log in logs.values():
                    await log.look_for_signs(0)
            nursery.cancel_scope.cancel()
    assert {command: log.last_seen is not None for command, log in logs.items()} == COMMANDS
