"""How a contract's record becomes a file's text, and back: field order of the contract, shortest floats, UTF-8.

Called by the views. Never reads or writes a file, never adds a field that the contract does not list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sid_daemon.core.state import ACTIVE
from sid_daemon.layout import AGENT_SETTINGS, EVENTS, IMPROVEMENTS, ITERATION_STATE, MEMORY, RAW_DATA, RESULTS
from sid_daemon.store.memory import render_memory
from sid_protocol.records import Plan, Record, ResearchBrief

# The answers of agents come first in these classes, their identity first in the contracts.
_ORDER: dict[type[Record], tuple[str, ...]] = {
    Plan: (
        "plan_id",
        "planner_id",
        "round",
        "hypothesis",
        "approach_family",
        "critic_approved",
        "target_files",
        "steps",
        "expected_outcome",
        "history_reference",
        "critic_review",
        "architect_review",
    ),
    ResearchBrief: ("iteration", "researcher_id", "repo_analysis_summary", "ideas"),
}
TELLING = frozenset({AGENT_SETTINGS, ITERATION_STATE})
"""Views that tell of others: who reads them looks for what they name, so they are written after all others."""
LISTS = (RAW_DATA, EVENTS, RESULTS, IMPROVEMENTS, MEMORY)
"""Views that only grow: the journal keeps their entries, `render_list` makes the file."""
NEWEST = {MEMORY: 100}
"""Of these the newest entries alone are told, so that a round costs the same however many there were."""
_PLAIN = json.JSONEncoder(allow_nan=False).encode
_QUOTED = json.JSONEncoder(ensure_ascii=False).encode
_ARRAY_END = "\n]\n"
_DIRECTION = "# metric_direction: "
COLUMNS = ("iteration", "commit", "metric", "delta", "guard", "status", "description")


def telling(documents: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return those of some views that tell of others, in the order in which they are to be written.

    It is that of a round's steps: the counters are recorded, the round is completed, then the run may end.
    """
    first, last = AGENT_SETTINGS, ITERATION_STATE
    if first in documents and json.loads(documents[first])["status"] not in ACTIVE:
        first, last = last, first
    return [(path, documents[path]) for path in (first, last) if path in documents]


def as_dict(record: Record) -> dict[str, Any]:
    """Return a record as plain data in the contract's order."""
    data: dict[str, Any] = record.model_dump(mode="json")
    first = [name for name in _ORDER.get(type(record), ()) if name in data]
    return {name: data[name] for name in (*first, *(name for name in data if name not in first))}


def render(record: Record) -> str:
    """Return a record's file: JSON, two spaces deep, with a newline at its end."""
    return _indented(as_dict(record), "\n") + "\n"


def documents_as(model: type[Any], documents: Iterable[tuple[str, str]]) -> list[Any]:
    """Return documents, as `(path, text)`, as records of one class."""
    return [model.model_validate_json(text) for _, text in documents]


def _indented(value: Any, newline: str) -> str:
    """Return what `json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)` does, in a third of its time.

    A round's files are written at each of its events, and the module's own encoder is in Python as soon as it indents.
    """
    if isinstance(value, str):
        return _QUOTED(value)
    if value is None:
        return "null"
    if not value or not isinstance(value, dict | list):
        return _PLAIN(value)
    deeper = f"{newline}  "
    if isinstance(value, dict):
        lines = [f"{_QUOTED(name)}: {_indented(one, deeper)}" for name, one in value.items()]
        return f"{{{deeper}{f',{deeper}'.join(lines)}{newline}}}"
    return f"[{deeper}{f',{deeper}'.join([_indented(one, deeper) for one in value])}{newline}]"


def entry(record: Record) -> str:
    """Return a record as one line of JSON, an entry of a list-like view."""
    return json.dumps(as_dict(record), ensure_ascii=False, allow_nan=False)


def direction_entry(direction: str) -> str:
    """Return the entry that says which way the metric of the results table is better; the last one counts."""
    return f"{_DIRECTION}{direction}"


def render_list(file: str, entries: Iterable[str]) -> str:
    """Return the whole text of a list-like view; see `render_pieces`."""
    return "".join(render_pieces(file, list(entries)))


def render_pieces(file: str, entries: Iterable[str]) -> Iterator[str]:
    """Yield the whole text of a list-like view, an entry at a time.

    Args:
        file: One of `LISTS`.
        entries: Its entries, in order, as `project` gave them; gone through more than once.

    Raises:
        KeyError: there is no such list-like view.
    """
    if file in (RAW_DATA, EVENTS):
        begun = False
        for one in entries:
            yield f",\n  {one}" if begun else f"[\n  {one}"
            begun = True
        yield _ARRAY_END if begun else "[]\n"
    elif file == RESULTS:
        told = direction_entry("higher_is_better")
        for one in entries:
            told = one if one.startswith(_DIRECTION) else told
        yield "".join(f"{line}\n" for line in (told, "\t".join(COLUMNS)))
        yield from (f"{one}\n" for one in entries if not one.startswith(_DIRECTION))
    elif file == IMPROVEMENTS:
        begun = False
        for one in entries:
            yield _improvement(one) if begun else _improvement(one).lstrip("\n")
            begun = True
    elif file == MEMORY:
        yield render_memory(entries)
    else:
        raise KeyError(file)


def render_more(file: str, entries: Sequence[str]) -> tuple[int, str] | None:
    """Return how to add entries at the end of a list-like view that has some already.

    Args:
        file: One of `LISTS`.
        entries: What is added, in order.

    Returns:
        How many of its last bytes go, and the text that then follows; None where it must be made anew.

    Raises:
        KeyError: there is no such list-like view.
    """
    if file in (RAW_DATA, EVENTS):
        return len(_ARRAY_END), "".join(f",\n  {one}" for one in entries) + _ARRAY_END
    if file == MEMORY or (file == RESULTS and any(one.startswith(_DIRECTION) for one in entries)):
        return None
    if file == RESULTS:
        return 0, "".join(f"{one}\n" for one in entries)
    if file == IMPROVEMENTS:
        return 0, "".join(map(_improvement, entries))
    raise KeyError(file)


def _improvement(entry: str) -> str:
    return f"{entry}\n" if entry.startswith("-") else f"\n{entry}\n"
