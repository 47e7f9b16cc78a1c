"""A score is a finite number in the promised place, or there is none."""

from __future__ import annotations

import json
import math
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sid_actors.workbench.scores.matching import asked, serve, told
from sid_actors.workbench.scores.scoring import Score, ScoreFault, check_format, parse_number, parse_score
from sid_protocol.errors import SettingsInvalid

finite = st.floats(allow_nan=False, allow_infinity=False)


def read(form: str, line: str | None, *, output: str = "", exit_code: int | None = 0) -> Score | ScoreFault:
    text = output or (line or "")
    matched = told(serve(BytesIO(asked(form[6:], text))).encode()) if form.startswith("regex:") else None
    return parse_score(form, "primary", matched, line, exit_code)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), (".5", 0.5), ("+3", 3.0), ("-2.", -2.0), (" 7 ", 7.0), ("1E+2", 100.0)],
)
def test_number_reads_decimal_numbers(text: str, value: float) -> None:
    assert read("number", text) == Score(value)


@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "inf",
        "-Infinity",
        "0x10",
        "1_000",
        "1e999",
        "1,5",
        "",
        "score: 3",
        "3 s",
        "٣",
        ".",
        "e5",
        "1" * 400,
    ],
)
def test_number_reads_nothing_else(text: str) -> None:
    found = read("number", text)
    assert isinstance(found, ScoreFault)
    assert found.category == "benchmark_parse_error"


@given(finite)
def test_number_reads_back_whatever_python_prints(value: float) -> None:
    assert read("number", repr(value)) == Score(value)


@given(st.text())
def test_a_parsed_number_is_always_finite(text: str) -> None:
    value = parse_number(text)
    assert value is None or math.isfinite(value)


@given(finite, st.dictionaries(st.text(max_size=120), finite))
def test_json_reads_score_and_sub_scores(value: float, subs: dict[str, float]) -> None:
    assert read("json", json.dumps({"primary": value, "sub_scores": subs})) == Score(value, subs)


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "3",
        "{}",
        "{",
        '{"primary": true}',
        '{"primary": "3"}',
        '{"primary": null}',
        '{"primary": NaN}',
        '{"primary": Infinity}',
        '{"primary": 1e999}',
        '{"primary": 1, "sub_scores": {"a": NaN}}',
        '{"primary": 1, "sub_scores": {"a": true}}',
        '{"primary": 1, "sub_scores": [1]}',
        '{"primary": ' + "1" * 5000 + "}",
        "[" * 100_000,
    ],
)
def test_json_refuses_what_is_no_finite_number(line: str) -> None:
    found = read("json", line)
    assert isinstance(found, ScoreFault)
    assert found.category == "benchmark_parse_error"
    assert len(found.why) < 400


def test_json_reads_the_key_that_the_settings_name() -> None:
    assert parse_score("json", "speed", None, '{"primary": 1, "speed": 2}', 0) == Score(2.0)


@given(st.binary())
def test_no_output_makes_any_format_crash(junk: bytes) -> None:
    text = junk.decode("utf-8", "replace")
    for form in ("json", "number", "pass_fail", "regex:x=(.*)"):
        found = read(form, text)
        assert not isinstance(found, Score) or math.isfinite(found.value)


def test_regex_takes_the_first_group_of_the_last_match() -> None:
    assert read("regex:time=(\\S+)", None, output="time=1\ntime=2.5 s\nbye") == Score(2.5)
    assert read("regex:^(\\d+)$", None, output="3\nx\n4\nend") == Score(4.0)
    assert isinstance(read("regex:time=(\\S+)", None, output="time=fast"), ScoreFault)
    assert isinstance(read("regex:time=(\\S+)?", None, output="time="), ScoreFault)
    assert isinstance(read("regex:time=(\\S+)", None, output="none"), ScoreFault)


@pytest.mark.parametrize("form", ["regex:(", "regex:abc", "xml", "", "JSON"])
def test_a_format_that_cannot_work_is_refused_beforehand(form: str) -> None:
    with pytest.raises(SettingsInvalid, match="benchmark_format"):
        check_format(form)


def test_exit_status_decides_before_the_output_does() -> None:
    assert read("pass_fail", "junk") == Score(1.0)
    assert read("pass_fail", "1", exit_code=3) == Score(0.0)
    assert read("pass_fail", "1", exit_code=None) == Score(0.0)
    for form in ("number", "json", "regex:(.*)"):
        failed = read(form, "1", exit_code=2)
        assert isinstance(failed, ScoreFault)
        assert failed.category == "logic_error"


def test_a_line_that_is_not_known_whole_is_no_score() -> None:
    for form in ("number", "json"):
        assert isinstance(read(form, None), ScoreFault)
        assert isinstance(read(form, ""), ScoreFault)


@pytest.mark.parametrize("subs", [{"x" * 121: 1.0}, {f"s{number}": 1.0 for number in range(1001)}])
def test_json_takes_so_many_sub_scores_and_such_long_names(subs: dict[str, float]) -> None:
    found = read("json", json.dumps({"primary": 1.0, "sub_scores": subs}))
    assert isinstance(found, ScoreFault)
    assert found.category == "benchmark_parse_error"
