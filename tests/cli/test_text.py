"""How values look: numbers, times, tables, hostile text, colour, log lines."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from sid_cli import text
from sid_cli.color import Paint, marks_for, wants_color
from sid_cli.console import document
from sid_cli.log_text import log_line
from sid_cli.since import is_before, parse_since
from sid_protocol.errors import UsageError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_a_json_document_holds_nothing_that_a_terminal_acts_upon() -> None:
    hostile = "a\x9b31m\x1b[2J\u202e\x7f\r\n\ud800 größer 🎉"
    written = document({"said": hostile, hostile: [1.5]})
    assert written.isprintable()
    assert "größer 🎉" in written
    assert json.loads(written) == {"schema": 1, "said": hostile, hostile: [1.5]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (812.4, "812.4"),
        (3.0, "3"),
        (3, "3"),
        (0.1 + 0.2, "0.3"),
        (1e-9, "1e-09"),
        (1e30, "1e+30"),
        (1234567.8, "1234568"),
        (999999.4, "999999"),
        (-2.5, "-2.5"),
    ],
)
def test_number(value, shown):
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (-1, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (11520, "3 h 12 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_duration(seconds, shown):
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "-"), (4, "4s"), (680, "11:20"), (3723, "1:02:03"), (-5, "0s")]
)
def test_clock(seconds, shown):
    assert text.clock(seconds) == shown


@pytest.mark.parametrize(
    ("baseline", "gain", "percent"),
    [
        (616.2, 196.2, 31.84),
        (-2.0, 1.0, 50.0),
        (100, -10, -10.0),
        (99.9, 0.0, 0.0),
        (0, 5, None),
        (None, None, None),
    ],
)
def test_a_gain_is_told_as_a_share_of_the_baseline(baseline, gain, percent):
    row = {"baseline": baseline, "gain": gain}
    assert text.gain_percent(row) == (None if percent is None else pytest.approx(percent, abs=0.01))


@pytest.mark.parametrize(
    "hostile", ["a\x1b[2Jb", "a\nb", "a\rb", "a\x00b", "a\x9bb", "a\u202eb", "a\ud800b", "a\x7fb", "a\u2028b"]
)
def test_no_control_character_of_an_agent_reaches_the_terminal(hostile):
    shown = text.clean(hostile)

    assert shown.isprintable()
    shown.encode()
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_text_that_is_harmless_is_left_alone():
    assert text.clean("größer 数 ✓") == "größer 数 ✓"
    assert text.clean_lines("a\tb\n\x1bc") == "a    b\n\\x1bc"


def test_a_table_is_aligned_also_with_wide_characters_and_only_cut_on_a_terminal():
    rows = [("数", "1", "x" * 90), ("ab", "22", "y")]

    whole = text.table(("NAME", ">N", "REST"), rows, width=None, flexible=2).split("\n")
    cut = text.table(("NAME", ">N", "REST"), rows, width=40, flexible=2).split("\n")

    assert whole == ["NAME   N  REST", f"数     1  {'x' * 90}", "ab    22  y"]
    assert max(map(text.cells, cut)) == 40
    assert cut[1].endswith("…")


def test_a_sparkline_needs_two_values_and_utf8():
    assert text.sparkline([1, 2, 3], utf8=True) == "▁▅█"
    assert text.sparkline([1, 1], utf8=True) == "▁▁"
    assert text.sparkline([1], utf8=True) == text.sparkline([1, 2], utf8=False) == ""


@pytest.mark.parametrize(
    ("choice", "environ", "is_tty", "wanted"),
    [
        ("auto", {"TERM": "xterm"}, True, True),
        ("auto", {"TERM": "xterm"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"CLICOLOR_FORCE": "1", "TERM": "dumb"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1", "TERM": "xterm"}, True, False),
    ],
)
def test_colour_by_option_then_environment_then_terminal(choice, environ, is_tty, wanted):
    assert wants_color(choice, environ, is_tty=is_tty) is wanted


def test_signs_are_ascii_where_the_stream_is():
    assert marks_for("UTF-8", {"LANG": "de_DE.UTF-8"}).yes == "✓"
    for encoding in ("ascii", None):
        marks = marks_for(encoding, {})
        assert all(
            getattr(marks, name).isascii()
            for name in ("yes", "no", "now", "unsure", "rule", "dot", "plus_minus")
        )
    assert Paint(enabled=True)("x", "red") == "\x1b[31mx\x1b[0m"
    assert Paint()("x", "red") == "x"
    # Where Python writes UTF-8 into the locale C, too.
    assert marks_for("utf-8", {"LC_ALL": "C", "LANG": "de_DE.UTF-8"}).yes == "+"
    assert marks_for("utf-8", {"LC_ALL": "", "LANG": "POSIX"}).yes == "+"


def test_a_record_is_one_line_in_the_order_of_the_promise():
    record = {
        "timestamp": "2026-03-01T12:03:41.120+00:00",
        "level": "info",
        "event": "benchmark_finished",
        "run_id": "r7f3",
        "iteration": 7,
        "step": "execution",
        "actor": "executor_2",
        "score": 812.4,
    }
    assert log_line(record, Paint()) == "12:03:41 r7 executor_2 benchmark_finished score=812.4"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"event": "step_started", "step": "execution", "cursor": 40}, "step_started execution"),
        (
            {
                "event": "candidate_committed",
                "actor": "executor_1",
                "duration_s": 0.80899,
                "commit": "a805c3fb" * 5,
            },
            "executor_1 candidate_committed commit=a805c3fba805 duration=0.81s",
        ),
        (
            {"event": "executor_started", "actor": "executor_1", "plan": "round_7_planner_a", "attempt": 1},
            "executor_1 executor_started plan=planner_a",
        ),
        (
            {"event": "executor_started", "actor": "executor_1", "attempt": 2},
            "executor_1 executor_started attempt=2",
        ),
        ({"event": "run_ended", "status": "plateau", "summary": "=== a ===\nb"}, "run_ended status=plateau"),
        (
            {"event": "verdict", "status": "merged", "told": "candidate a  merged"},
            "verdict candidate a  merged",
        ),
        ({"event": "agent_stderr", "actor": "critic", "line": 'no "x"'}, 'critic agent_stderr no "x"'),
        ({"event": "merged", "ref": "refs/heads/improve/x", "score": 2.0}, "merged score=2"),
        ({"event": "merged", "ref": "refs/sid/x"}, "merged ref=refs/sid/x"),
        ({"event": "round_recorded", "candidate": "round_7_executor_1"}, "executor_1 round_recorded"),
        (
            {"event": "x", "deadline_s": 1800.0, "elapsed_s": 0.006773, "wait_s": 9.96},
            "x deadline=1800s elapsed=0.0068s wait=10s",
        ),
    ],
)
def test_a_line_leaves_out_what_it_says_already_and_what_is_as_usual(fields, shown):
    record = {"timestamp": "2026-03-01T12:03:41+00:00", "level": "info", "iteration": 7, **fields}
    assert log_line(record, Paint()) == f"12:03:41 r7 {shown}"


def test_a_hypothesis_stands_in_full_where_its_plan_is_approved():
    record = {"timestamp": "2026-03-01T12:03:41+00:00", "event": "plan_approved", "hypothesis": "h" * 200}

    assert f"hypothesis={'h' * 200}" in log_line(record, Paint())
    assert f"hypothesis={'h' * 37}..." in log_line({**record, "event": "merged"}, Paint())


def test_a_record_of_an_agent_cannot_break_out_of_its_line():
    record = {
        "timestamp": "junk\x1b[2J",
        "level": "error",
        "event": "force_kill\n",
        "why": 'a "b"\x1b]0;title\x07',
        "tags": ["x", 1],
        "more": {"k": None},
        "nothing": None,
        "long": "z" * 5000,
    }

    line = log_line(record, Paint())

    assert line.isprintable()
    assert "level=error" in line
    assert "tags=[x,1] more={k:null}" in line
    assert "nothing" not in line
    assert len(line) < 600


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("1250", 1250),
        ("0", 0),
        ("10m", NOW - timedelta(minutes=10)),
        ("2h", NOW - timedelta(hours=2)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("2026-03-01T11:00:00+00:00", NOW - timedelta(hours=1)),
        ("2026-03-01T11:00:00", NOW - timedelta(hours=1)),
        ("99999999999d", datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_since_is_a_cursor_a_span_or_a_time(said, meant):
    assert parse_since(said, NOW) == meant


@pytest.mark.parametrize("said", ["", "-5", "10x", "yesterday", "10m ago", "٣"])
def test_since_refuses_the_rest_in_one_line(said):
    with pytest.raises(UsageError) as caught:
        parse_since(said, NOW)
    assert "10m" in caught.value.hint


def test_a_record_without_a_time_is_never_too_old():
    assert is_before({"timestamp": "2026-03-01T11:59:59Z"}, NOW)
    assert not is_before({"timestamp": "2026-03-01T12:00:00Z"}, NOW)
    assert not is_before({"timestamp": "?"}, NOW)
    assert not is_before({"timestamp": "2020-01-01T00:00:00"}, NOW)
