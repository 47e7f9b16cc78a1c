"""Captured output: head and tail are kept, the middle is counted, and a fragment is never taken for a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sid_actors.jobs.output import LINE_LIMIT_BYTES, Capture, Captured


@given(st.lists(st.binary(max_size=40)), st.integers(0, 33))
def test_head_and_tail_are_kept_and_the_middle_is_counted(chunks: list[bytes], limit: int) -> None:
    capture = Capture(limit)
    for chunk in chunks:
        capture.add(chunk)
    printed = b"".join(chunks)
    got = capture.freeze()

    assert len(got.head) + len(got.tail) <= limit
    assert got.total == len(printed)
    assert printed.startswith(got.head)
    assert printed.endswith(got.tail)
    if len(printed) <= limit:
        assert got.head + got.tail == printed
        assert got.dropped == 0


def test_text_says_how_much_was_cut_and_survives_junk() -> None:
    assert Captured(b"a\xff", b"b", 0).text() == "a\N{REPLACEMENT CHARACTER}b"
    assert "7000 bytes cut" in Captured(b"start", b"end", 7000).text()


@pytest.mark.parametrize(
    ("captured", "line"),
    [
        (Captured(), ""),
        (Captured(b" \n\n"), ""),
        (Captured(b"x\n0.5\n\n"), "0.5"),
        (Captured(b"x\n0.", b"5\n"), "0.5"),
        (Captured(b"x", b"junk\n 7 \r\n", 9), "7"),
        (Captured(b"", b"1111111", 9), None),
        (Captured(b"9", b"\n\n\n", 9), None),
        (Captured(b"x\n" + b"1" * (LINE_LIMIT_BYTES + 1)), None),
    ],
    ids=["nothing", "blank", "plain", "over the seam", "after a cut", "cut itself", "lost", "endless"],
)
def test_the_last_line_is_whole_or_none(captured: Captured, line: str | None) -> None:
    assert captured.last_line() == line
