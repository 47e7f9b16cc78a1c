"""The log on disk: rotation, reading by cursor, and what a crash leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sid_daemon.log.files import Line, LogFiles, read_line


def line(cursor: int, text: str = "") -> Line:
    return Line(
        cursor, json.dumps({"event": "e", "text": text, "cursor": cursor}, separators=(",", ":")).encode()
    )


def cursors(found: list[Line]) -> list[int]:
    return [each.cursor for each in found]


@pytest.fixture
def folder(short_dir: Path) -> Path:
    return short_dir / "logs"


@pytest.fixture
def make(folder: Path):
    made: list[LogFiles] = []

    def open_files(**options: int) -> LogFiles:
        made.append(LogFiles(folder, **options))
        return made[-1]

    yield open_files
    for each in made:
        each.close()


def test_a_file_rotates_and_the_oldest_go(folder: Path, make) -> None:
    files = make(file_bytes=1000, keep=3)
    files.append([line(number, "x" * 40) for number in range(1, 101)])

    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 3
    assert names[-1] == "sid.jsonl"
    assert all(path.stat().st_size <= 1000 for path in folder.iterdir())
    found, lost = files.read_after(0)
    assert cursors(found)[0] == lost + 1
    assert files.read_after(99)[0] == [line(100, "x" * 40)]
    assert oct((folder / "sid.jsonl").stat().st_mode)[-3:] == "600"


def test_a_cursor_grows_over_restarts_and_torn_lines(folder: Path, make) -> None:
    assert make().last_cursor == 0
    files = make()
    files.append([line(1), line(2)])
    with (folder / "sid.jsonl").open("ab") as file:
        file.write(b'{"event":"torn by a cra')
    again = make()
    assert again.last_cursor == 2
    again.append([line(3)])

    assert cursors(make().read_after(0)[0]) == [1, 2, 3]
    assert make().last_cursor == 3


def test_a_cursor_survives_a_rotation_just_before_the_end(folder: Path, make) -> None:
    files = make(file_bytes=300)
    files.append([line(number) for number in range(1, 20)])
    (folder / "sid.jsonl").write_bytes(b"")
    assert 1 < make().last_cursor < 20


def test_a_line_longer_than_a_file_has_one_to_itself(make) -> None:
    files = make(file_bytes=100)
    files.append([line(1), line(2, "y" * 500), line(3)])
    assert cursors(files.read_after(0)[0]) == [1]
    assert cursors(files.read_after(1)[0]) == [2]
    assert cursors(files.read_after(2)[0]) == [3]


def test_the_tail_is_the_last_that_match(make) -> None:
    files = make(file_bytes=400)
    files.append([line(number, "odd" if number % 2 else "even") for number in range(1, 60)])
    assert cursors(files.tail(lambda data: b"odd" in data, 4)) == [53, 55, 57, 59]
    assert cursors(files.tail(lambda data: b"none" in data, 4)) == []
    assert cursors(files.tail(lambda data: True, 1000)) == list(range(files.read_after(0)[1] + 1, 60))


def test_a_cursor_is_read_from_the_end_of_a_record() -> None:
    assert read_line(b'{"text":"\\"cursor\\":5}","inner":{"cursor":6},"cursor":7}') == Line(
        7, b'{"text":"\\"cursor\\":5}","inner":{"cursor":6},"cursor":7}'
    )
    for torn in (b"", b"{}", b'{"cursor":7', b'{"inner":{"cursor":6}}', b'{"cursor":"7"}'):
        assert read_line(torn) is None


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_reading_in_pieces_gives_every_line_once(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("logs")
    gaps = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=60))
    sizes = data.draw(st.lists(st.integers(0, 60_000), min_size=len(gaps), max_size=len(gaps)))
    lines, cursor = [], 0
    for gap, size in zip(gaps, sizes, strict=True):
        cursor += gap
        lines.append(line(cursor, "z" * size))
    files = LogFiles(folder, file_bytes=200_000, keep=1000)
    try:
        files.append(lines)
        start = data.draw(st.integers(0, cursor))
        found: list[Line] = []
        at = start
        while page := files.read_after(at, limit_bytes=data.draw(st.integers(1, 300_000)))[0]:
            found += page
            at = page[-1].cursor
        assert found == [each for each in lines if each.cursor > start]
    finally:
        files.close()
