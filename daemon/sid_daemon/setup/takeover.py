"""Takes over a track that another self-improve tool has made: counters, best score, history.

The first `init` or `start` on a root that has state but no `run.db` goes on from what is there. What cannot
be read is left where it is and named; nothing in the root is changed by reading it. Blocking; called in a
worker thread. Also here: the refusal while another mode of that tool is active.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from sid_daemon.core.wording import one_line
from sid_daemon.layout import (
    AGENT_SETTINGS,
    ARCHIVE,
    BASELINE,
    BRIEFS,
    EVENTS,
    HISTORIES,
    RAW_DATA,
    REPORTS,
    history_path,
)
from sid_daemon.store.documents import render
from sid_protocol.errors import SettingsInvalid
from sid_protocol.events import CarriedOver
from sid_protocol.records import (
    AgentSettings,
    Baseline,
    IterationHistory,
    MergeReport,
    Plan,
    RawEntry,
    Record,
    ResearchBrief,
)
from sid_protocol.settings import parse_json_object

R = TypeVar("R", bound=Record)
MODES = ("autopilot", "ralph", "ultrawork")
ACTIVE_S = 30 * 60
READ_AS: dict[str, type[Record]] = {
    HISTORIES: IterationHistory,
    REPORTS: MergeReport,
    BRIEFS: ResearchBrief,
    ARCHIVE: Plan,
}
"""Folders of an earlier track's rounds, and what each of their files is read as later."""


@dataclass(frozen=True, slots=True)
class Track:
    """An earlier track.

    Attributes:
        carried: Its counters.
        goal_slug: The slug that its branches carry, or empty.
        baseline: Its baseline, or None.
        documents: Path in the root → text, of its records.
        entries: Its `tracking/raw_data.json` and `tracking/events.json`: `(file, JSON text of one entry)`, in order.
        notes: What could not be read.
    """

    carried: CarriedOver
    goal_slug: str
    baseline: Baseline | None
    documents: dict[str, str] = field(default_factory=dict)
    entries: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def active_mode(repo: Path, now: float) -> str | None:
    """Return the mode of the other tool that is active in a repository; None while none is.

    Args:
        repo: The repository's top folder.
        now: The time, seconds since the epoch.
    """
    state = repo / ".omc" / "state"
    for mode in MODES:
        for path in [*state.glob(f"{mode}-state.json"), *state.glob(f"sessions/*/{mode}-state.json")]:
            try:
                active = json.loads(path.read_text()).get("active") is True
                fresh = now - path.stat().st_mtime < ACTIVE_S
            except (OSError, ValueError, AttributeError):
                continue
            if active and fresh:
                return mode
    return None


def read_track(root: Path) -> Track | None:
    """Read an earlier track; None where the root holds none."""
    path = root / AGENT_SETTINGS
    if not path.is_file():
        return None
    notes: list[str] = []
    settings = _agent_settings(path, notes)
    baseline = _read(root / BASELINE, Baseline, notes)
    documents = _documents(root, notes)
    if baseline is not None:
        documents[BASELINE] = render(baseline)
    return Track(
        carried=CarriedOver(
            iterations=settings.iterations,
            best_score=settings.best_score,
            plateau_count=settings.plateau_consecutive_count,
            breaker_count=settings.circuit_breaker_count,
            winner_families=_winner_families(documents, settings.iterations),
            theirs=settings.model_extra or {},
        ),
        goal_slug=settings.goal_slug,
        baseline=baseline,
        documents=documents,
        entries=tuple((file, one) for file in (RAW_DATA, EVENTS) for one in _entries(root / file, notes)),
        notes=tuple(notes),
    )


def _agent_settings(path: Path, notes: list[str]) -> AgentSettings:
    """Read the counters; a field that is not what it should be is left out, so that it costs none of the others."""
    try:
        data = parse_json_object(path.read_text(), path.name)
    except (OSError, ValueError, SettingsInvalid) as error:
        notes.append(f"{path}: not taken over: {one_line(str(error))}")
        return AgentSettings()
    fields = AgentSettings.model_fields
    data = {key: value for key, value in data.items() if value is not None or key not in fields}
    try:
        return AgentSettings.model_validate(data)
    except ValidationError as error:
        faulty = {str(one["loc"][0]) for one in error.errors()}
    notes.append(f"{path}: not taken over: {', '.join(sorted(faulty))}")
    return AgentSettings.model_validate({key: value for key, value in data.items() if key not in faulty})


def _read(path: Path, model: type[R], notes: list[str]) -> R | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        faulty = {".".join(map(str, one["loc"])) for one in error.errors()} - {""}
        notes.append(f"{path}: not taken over: {', '.join(sorted(faulty)) or one_line(str(error))}")
    except OSError as error:
        notes.append(f"{path}: not taken over: {one_line(str(error))}")
    return None


def _documents(root: Path, notes: list[str]) -> dict[str, str]:
    found = {}
    for folder, model in READ_AS.items():
        for path in sorted((root / folder).rglob("*.json")):
            if _read(path, model, notes) is not None:
                found[str(path.relative_to(root))] = path.read_text()
    return found


def _winner_families(documents: dict[str, str], last: int) -> tuple[str | None, ...]:
    families: list[str | None] = []
    for iteration in (last - 1, last):
        text = documents.get(history_path(iteration))
        if text is not None:
            winner = IterationHistory.model_validate_json(text).winner
            families.append(winner.approach_family if winner else None)
    return tuple(families)


def _entries(path: Path, notes: list[str]) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    found = []
    try:
        for entry in json.loads(path.read_text()):
            found.append(json.dumps(entry, ensure_ascii=False, allow_nan=False))
            if path.name == Path(RAW_DATA).name:
                RawEntry.model_validate(entry)
    except (OSError, ValueError, TypeError) as error:
        notes.append(f"{path}: not taken over: {one_line(str(error))}")
        return ()
    return tuple(found)
