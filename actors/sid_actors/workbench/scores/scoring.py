"""Reads a score from what a benchmark printed: pure, and strict enough that nothing passes by accident.

`benchmark` calls it once a run. It never runs anything and never looks at what an agent said. The formats are
promises of the interface page: `json`, `number`, `pass_fail`, `regex:PATTERN`; anything else is a
`benchmark_parse_error`, never a score.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sid_actors.workbench.scores.matching import Match
from sid_protocol.errors import SettingsInvalid
from sid_protocol.records import Category

REGEX_PREFIX = "regex:"
_SHOWN = 120  # characters of a faulty line that a message quotes, and of a sub-score's name
_MOST_SUBS = 1000  # they are kept of every run
# What float() takes beyond this (`nan`, `1_000`, `infinity`, Arabic digits) is no number here.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")


@dataclass(frozen=True, slots=True)
class Score:
    """A finite score and the finite sub-scores beside it."""

    value: float
    sub_scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoreFault:
    """Why a run has no score: the failure's category and one line."""

    category: Category
    why: str


def check_format(form: str) -> None:
    """Check a benchmark's format before anything is run.

    Raises:
        SettingsInvalid: it is none of the four, or its pattern does not compile or has no group.
    """
    if not form.startswith(REGEX_PREFIX):
        if form not in ("json", "number", "pass_fail"):
            raise SettingsInvalid("benchmark_format", "must be json, number, pass_fail or regex:PATTERN")
        return
    try:
        pattern = re.compile(form.removeprefix(REGEX_PREFIX), re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise SettingsInvalid("benchmark_format", f"the pattern does not compile: {error}") from None
    if not pattern.groups:
        raise SettingsInvalid(
            "benchmark_format", "the pattern has no group", hint="put the number in brackets: regex:time=(.+)"
        )


def parse_score(
    form: str,
    primary_metric: str,
    matched: Match | ScoreFault | None,
    last_line: str | None,
    exit_code: int | None,
    token: str | None = None,
) -> Score | ScoreFault:
    """Read the score of a run that ended by itself.

    Args:
        form: `benchmark_format`; already checked by `check_format`.
        primary_metric: The score's key (`json` only).
        matched: What the pattern found last in stdout, or why that is not known (`regex` only).
        last_line: The last line of stdout that is not blank; "" where there is none, None where it is too long
            to be known whole.
        exit_code: The exit status; None where a signal ended the process.
        token: What must stand beside the score: the key `token` of the object, or a word of the score's line
            (`pass_fail`: of the last line, where it passed); None where nothing need.
    """
    if form == "pass_fail":
        if exit_code == 0 and token and token not in (last_line or "").split():
            return _no_token()
        return Score(1.0 if exit_code == 0 else 0.0)
    if exit_code != 0:
        how = "a signal" if exit_code is None else f"exit code {exit_code}"
        return ScoreFault("logic_error", f"the benchmark ended with {how}")
    if form.startswith(REGEX_PREFIX):
        return _by_pattern(matched, token)
    if last_line is None:
        return _fault("the last line is too long to hold a score")
    if not last_line.strip():
        return _fault("the benchmark printed nothing")
    return _by_number(last_line, token) if form == "number" else _by_json(last_line, primary_metric, token)


def within(score: Score, bounds: Sequence[float] | None) -> Score | ScoreFault:
    """Return the score, or a fault where it is beyond what the metric can be (`score_bounds`, low and high)."""
    if bounds and not bounds[0] <= score.value <= bounds[1]:
        return _fault(f"the score {score.value!r} is beyond score_bounds, {bounds[0]:g} to {bounds[1]:g}")
    return score


def parse_number(text: str) -> float | None:
    """Return the finite decimal number that the text is, or None."""
    text = text.strip()
    if len(text) > _SHOWN or not _NUMBER.match(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _fault(why: str) -> ScoreFault:
    return ScoreFault("benchmark_parse_error", why)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _no_token() -> ScoreFault:
    return _fault(
        "the score's token (SID_SCORE_TOKEN) did not come back: the benchmark did not print this score"
    )


def _by_number(line: str, token: str | None) -> Score | ScoreFault:
    if token:
        words = line.split()
        if token not in words:
            return _no_token()
        words.remove(token)
        line = " ".join(words)
    value = parse_number(line)
    return _fault(f"the last line is no finite number: {_quoted(line)}") if value is None else Score(value)


def _by_pattern(matched: Match | ScoreFault | None, token: str | None) -> Score | ScoreFault:
    if isinstance(matched, ScoreFault):
        return matched
    if matched is None:
        return _fault("the pattern matches nothing that the benchmark printed")
    if token and token not in matched.lines:
        return _no_token()
    value = None if matched.group is None else parse_number(matched.group)
    if value is None:
        return _fault(f"the pattern's group is no finite number: {_quoted(matched.group or '')}")
    return Score(value)


def _by_json(line: str, primary_metric: str, token: str | None) -> Score | ScoreFault:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return _fault(f"the last line is no JSON object: {_quoted(line)}")
    if not isinstance(document, dict):
        return _fault(f"the last line is no JSON object: {_quoted(line)}")
    if token and document.get("token") != token:
        return _no_token()
    if primary_metric not in document:
        return _fault(f"the result has no {_quoted(primary_metric)}: {_quoted(line)}")
    value = _finite(document[primary_metric])
    if value is None:
        return _fault(f"{_quoted(primary_metric)} is no finite number: {_quoted(line)}")
    subs = document.get("sub_scores")
    if subs is None:
        return Score(value)
    if not isinstance(subs, dict):
        return _fault(f"sub_scores is no object: {_quoted(line)}")
    if len(subs) > _MOST_SUBS or any(len(name) > _SHOWN for name in subs):
        return _fault(f"more than {_MOST_SUBS} sub_scores, or a name longer than {_SHOWN} characters")
    numbers = {name: _finite(sub) for name, sub in subs.items()}
    if bad := [name for name, number in numbers.items() if number is None]:
        return _fault(f"sub-score {_quoted(bad[0])} is no finite number")
    return Score(value, {name: number for name, number in numbers.items() if number is not None})


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
