"""A log record as a line of text.

Pure; used by `attach`, `status`, `start --wait` and `demo`. Standard library alone. Values come from agents and
programs, so every one is escaped.
"""

from __future__ import annotations

from sid_cli.text import clean, number, time_of_day

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from sid_cli.color import Paint

_HEAD = (
    "timestamp",
    "level",
    "event",
    "run_id",
    "iteration",
    "step",
    "actor",
    "candidate",
    "logger",
    "cursor",
)
_MANY_LINES = ("summary",)
"""Many lines in one value: `demo` and `start --wait` print it after the run's end, `--json` has it."""
_USUAL: Mapping[str, Any] = {
    "after_crash": False,
    "attempt": 1,
    "conflict": False,
    "force_kills": 0,
    "rejected": 0,
    "resumed": False,
    "rework": False,
}
"""Values that say only that nothing special happened."""
_SAID = ("told", "line")
"""A sentence of ours, or a line of an agent's: nothing else is worth showing beside it."""
_COMMIT_LENGTHS = (40, 64)
_HEX_DIGITS = "0123456789abcdef"
_COMMIT_DIGITS = 12
_GRAVE = ("warning", "error", "critical")
_GOOD_EVENTS = ("merged", "plan_approved")
_BAD_EVENTS = ("force_kill", "plan_rejected")
VALUE_LIMIT = 300
"""Characters of one value that a line shows; `--json` has the whole."""
HYPOTHESIS_LIMIT = 40
"""Characters of a hypothesis, but where its plan is approved: there it stands in full, once."""


def log_line(record: Mapping[str, Any], paint: Paint) -> str:
    """Return `12:03:41 r7 executor_2 benchmark_finished score=812.4`."""
    return f"{paint(time_of_day(str(record.get('timestamp', ''))), 'dim')} {log_body(record, paint)}"


def log_body(record: Mapping[str, Any], paint: Paint) -> str:
    """Return a record's line without its time, so that equal ones can be told.

    Left out is what the line says already or what is as usual; `--json` has every field.
    """
    event, level = clean(record.get("event", "")), str(record.get("level", "info"))
    parts = []
    if record.get("iteration") is not None:
        parts.append(f"r{clean(record['iteration'])}")
    if who := _who(record):
        parts.append(clean(who))
    parts.append(paint(event, *_styles(event, level)))
    if event == "step_started":
        parts.append(clean(record.get("step", "")))
    if level in _GRAVE:
        parts.append(f"level={level}")
    said = next((record[key] for key in _SAID if record.get(key) is not None), None)
    if said is not None:
        parts.append(_cut(clean(said), VALUE_LIMIT))
    else:
        parts += [_pair(key, value, record) for key, value in _fields(record)]
    return " ".join(parts)


def _who(record: Mapping[str, Any]) -> str:
    return str(record.get("actor") or _in_round(record.get("candidate") or "", record))


def _in_round(name: object, record: Mapping[str, Any]) -> str:
    """Return a plan's or candidate's name without its round, which stands at the line's beginning."""
    return str(name).removeprefix(f"round_{record.get('iteration')}_")


def _fields(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields worth showing, how long it took last."""
    who = _who(record)
    shown = []
    for key, value in record.items():
        if key in _HEAD or key in _MANY_LINES or value is None:
            continue
        repeated = key in ("arm", "plan") and _in_round(value, record) == who
        on_a_branch = key == "ref" and str(value).startswith("refs/heads/")
        usual = key in _USUAL and type(value) is type(_USUAL[key]) and value == _USUAL[key]
        if not (repeated or on_a_branch or usual):
            shown.append((key, value))
    return sorted(shown, key=lambda field: field[0] == "duration_s")


def _pair(key: str, value: Any, record: Mapping[str, Any]) -> str:
    if key.endswith("_s") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{clean(key.removesuffix('_s'))}={seconds(value)}"
    if key == "plan":
        value = _in_round(value, record)
    if isinstance(value, str) and len(value) in _COMMIT_LENGTHS and not value.strip(_HEX_DIGITS):
        value = value[:_COMMIT_DIGITS]
    whole = key != "hypothesis" or record.get("event") == "plan_approved"
    return f"{clean(key)}={_value(value, VALUE_LIMIT if whole else HYPOTHESIS_LIMIT)}"


def seconds(value: float) -> str:
    """Return seconds with two significant digits, all digits before the point kept: `0.0068s`, `1.2s`, `1800s`."""
    return f"{value:.0f}s" if abs(value) >= 10 else f"{float(f'{value:.2g}'):g}s"


def _styles(event: str, level: str) -> tuple[str, ...]:
    if level in _GRAVE:
        return ("yellow",) if level == "warning" else ("red", "bold")
    if event in _GOOD_EVENTS:
        return ("green",)
    return ("yellow",) if event in _BAD_EVENTS else ()


def _value(value: Any, limit: int = VALUE_LIMIT) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{clean(key)}:{_value(item)}" for key, item in value.items()) + "}"
    text = _cut(clean(value), limit)
    plain = text != "" and not any(mark in text for mark in ' "=,[]{}')
    return text if plain else '"' + text.replace('"', "'") + '"'


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
