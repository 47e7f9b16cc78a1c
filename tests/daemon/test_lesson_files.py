"""What runs have learned, across runs: one file a run, a page of all, and what another run is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from sid_daemon.store import lesson_files
from sid_daemon.store.documents import render
from sid_daemon.store.lesson_files import LessonFiles
from sid_protocol.lessons import LessonRecord, TrackLessons

LOOP = "timeout/tool_loop/executor"


def learned(
    run_id: str, at: str, *, repo: str = "/r", standing: bool = False, replays: str | None = None
) -> str:
    lesson = LessonRecord(key=LOOP, rule="Do not loop.", status="in_force", since=4)
    return render(
        TrackLessons(
            run_id=run_id,
            repo=repo,
            topic="default",
            at=at,
            seen=[LOOP, "regression/-/data"],
            standing=[LOOP] if standing else [],
            lessons=[lesson] if standing else [],
            replays=replays,
        )
    )


def test_other_runs_are_told_newest_first_and_own_is_not(tmp_path: Path) -> None:
    files = LessonFiles(tmp_path)
    files.keep("a", learned("a", "2025-01-01"))
    files.keep("b", learned("b", "2025-01-03", repo="/elsewhere", standing=True))
    files.keep("c", learned("c", "2025-01-02"))
    others, unreadable = files.others("c", "/r", 5)
    assert [(one.run_id, one.seen, one.standing) for one in others] == [
        ("b", (LOOP,), (LOOP,)),
        ("a", (LOOP, "regression/-/data"), ()),
    ]
    assert unreadable == ()
    assert "`timeout/tool_loop/executor` — Do not loop. In b (since round 4)." in files.page.read_text()


def test_a_replay_is_no_second_run_with_the_same_faults(tmp_path: Path) -> None:
    files = LessonFiles(tmp_path)
    files.keep("a", learned("a", "2025-01-01"))
    files.keep("b", learned("b", "2025-01-02", replays="a"))
    others, _ = files.others("c", "/r", 5)
    assert [one.run_id for one in others] == ["a"]


def test_nothing_is_known_before_any_run(tmp_path: Path) -> None:
    assert LessonFiles(tmp_path).others("a", "/r", 5) == ((), ())


def test_a_damaged_file_is_passed_over_and_named(tmp_path: Path) -> None:
    files = LessonFiles(tmp_path)
    files.keep("a", learned("a", "2025-01-01"))
    (files.folder / "b.json").write_text("{torn")
    others, unreadable = files.others("c", "/r", 5)
    assert [one.run_id for one in others] == ["a"]
    assert len(unreadable) == 1
    assert "b.json" in unreadable[0]


def test_old_runs_leave_unless_a_lesson_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_files, "RUNS_KEPT", 2)
    files = LessonFiles(tmp_path)
    files.keep("a", learned("a", "2025-01-01", standing=True))
    for day in range(2, 6):
        files.keep(f"d{day}", learned(f"d{day}", f"2025-01-0{day}"))
    assert sorted(path.stem for path in files.folder.glob("*.json")) == ["a", "d4", "d5"]
