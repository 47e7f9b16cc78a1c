"""An agent's text, read as the record that its role must answer: pure, and hard to upset.

Role actors call it on every answer of every back end. The document is the whole output or its last fenced
`json` block (the command back end's table in the interfaces). Whatever the text holds, the outcome is a
record or one `BackendError` that names the field and what is wrong with it; no score and no verdict on a
plan's merit is taken from here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from sid_protocol.errors import BackendError
from sid_protocol.records import ArchitectReview, BriefAnswer, CriticReview, PlanAnswer, Record

ANSWER_LIMIT_BYTES = 1 << 20
"""Longest answer that is read: a plan of a thousand pages is no plan."""

DEPTH_LIMIT = 64
"""Deepest nesting of an answer, the same as on the socket."""

NOT_AN_AGENTS_TO_SAY = frozenset(
    {
        "plan_id",
        "planner_id",
        "round",
        "critic_approved",
        "critic_review",
        "architect_review",
        "iteration",
        "researcher_id",
    }
)
"""Fields of the records that the daemon sets; an agent that sends them is not believed."""

# Of a line without blanks at its end: no two parts may share a run of blanks, or a hostile line takes hours.
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[ \t]*([\w+-]*)\Z")

R = TypeVar("R", bound=Record)


def parse_brief(text: str, families: Collection[str] = ()) -> BriefAnswer:
    """Read a researcher's answer.

    Args:
        text: What it printed.
        families: The approach families there are; none is asked for where this is empty.

    Raises:
        BackendError: it is no brief, an idea is of no known family, or all are of one.
    """
    brief = parse_answer(text, BriefAnswer)
    for number, idea in enumerate(brief.ideas):
        if families and idea.approach_family not in families:
            found = _printable(idea.approach_family[:40])
            raise BackendError(f"the answer's ideas.{number}.approach_family: unknown family {found!r}")
    if len({idea.approach_family for idea in brief.ideas}) < 2:
        raise BackendError("the answer's ideas must be of at least two approach families")
    return brief


def parse_plan(text: str) -> PlanAnswer:
    """Read a planner's answer; raises `BackendError` when it is no plan."""
    return parse_answer(text, PlanAnswer)


def parse_advice(text: str) -> ArchitectReview:
    """Read an architect's answer; raises `BackendError` when it is no review."""
    return parse_answer(text, ArchitectReview)


def parse_judgement(text: str) -> CriticReview:
    """Read a critic's answer; raises `BackendError` when it is no review."""
    return parse_answer(text, CriticReview)


def parse_answer(text: str, model: type[R]) -> R:
    """Read one record from an agent's text; fields that are the daemon's to set are left out.

    Args:
        text: The whole output, or text with a fenced `json` block.
        model: The record class.

    Raises:
        BackendError: naming the first field at fault and why.
    """
    document = extract_object(text)
    fields = {key: value for key, value in document.items() if key not in NOT_AN_AGENTS_TO_SAY}
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(_printable(str(part)[:80]) for part in first["loc"][:8])
        why = first["msg"].removeprefix("Value error, ")
        raise BackendError(f"the answer's {place or 'document'}: {why[:1].lower()}{why[1:]}") from None


def extract_object(text: str) -> dict[str, Any]:
    """Return the JSON object that the text is, or that its last fenced `json` block holds.

    Raises:
        BackendError: there is none, it is too large or too deep, or a number in it is not finite.
    """
    if not text.strip():
        raise BackendError("the agent printed no answer")
    if len(text) > ANSWER_LIMIT_BYTES or len(text.encode("utf-8", "replace")) > ANSWER_LIMIT_BYTES:
        raise BackendError(f"the answer is longer than {ANSWER_LIMIT_BYTES} bytes")
    whole = text.strip().removeprefix("\ufeff")
    try:
        value = _load(whole)
    except _NotJsonError as error:
        block = _last_json_block(text)
        if block is None:
            told = f"{error} (it begins {whole[:60]!r})"
            raise BackendError(
                f"the answer is no JSON document and has no fenced json block: {told}"
            ) from None
        try:
            value = _load(block)
        except _NotJsonError as inner:
            raise BackendError(f"the answer's last fenced json block is no JSON document: {inner}") from None
    if not isinstance(value, dict):
        raise BackendError(f"the answer must be a JSON object, not {type(value).__name__}")
    return value


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class _NotJsonError(Exception):
    """The text is not JSON at all; other faults of it are told at once."""


def _load(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise BackendError(f"the answer is nested deeper than {DEPTH_LIMIT} levels") from None
    except ValueError as error:
        raise _NotJsonError(str(error)) from None
    if too_deep(value):
        raise BackendError(f"the answer is nested deeper than {DEPTH_LIMIT} levels")
    for string in _strings(value):
        if not _encodable(string):
            raise BackendError(f"the answer holds text that is no Unicode: {string[:40]!r}")
    return value


def _no_constant(name: str) -> float:
    raise BackendError(f"the answer holds {name}, which is no finite number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BackendError(f"the answer holds {digits[:40]}, which is no finite number")
    return number


def too_deep(value: Any) -> bool:
    """Say whether a JSON value is nested deeper than `DEPTH_LIMIT`."""
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inner(outer)]
    return bool(level)


def _inner(outer: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            yield top
        elif isinstance(top, dict):
            yield from top
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _last_json_block(text: str) -> str | None:
    """Return the last fenced block marked `json`; one that is not closed reaches to the end."""
    last: str | None = None
    fence, is_json, lines = "", False, list[str]()
    for line in text.split("\n"):  # not splitlines: U+2028 may stand inside a JSON string
        match = _FENCE.match(line.rstrip())
        opens_json = match is not None and match[2].lower() == "json"
        if match and (not fence or (opens_json and len(match[1]) >= len(fence))):
            fence, is_json, lines = match[1], opens_json, []
        elif match and not match[2] and match[1].startswith(fence):
            last = "\n".join(lines) if is_json else last
            fence = ""
        else:
            lines.append(line)
    return "\n".join(lines) if fence and is_json else last
