"""Quiet signs of life: changed files and CPU time move the idle clock, a program that only waits does not."""

from __future__ import annotations

import os
import time
from pathlib import Path

from trio.testing import MockClock

from sid_actors.watching.activity import ActivityLog
from sid_actors.watching.signs import Signs, look

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

    signs = look(1.5, str(tree), time.time() - HOUR_S)
    assert (signs.cpu_s, signs.changed) == (1.5, 1)
    assert abs(signs.newest - time.time()) < HOUR_S
    assert look(0.0, str(short_dir / "missing"), 0.0) == look(0.0, None, 0.0) == Signs(0.0, 0.0, 0)


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
        log.notice(look(0.0, str(tree), 0.0))
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
