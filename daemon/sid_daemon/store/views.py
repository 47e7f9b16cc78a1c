"""The contract files of a root, as far as one event changes them: a projection of the run's state.

Called by `runs.folding` for every event; kept in the transaction that makes the event durable, so that the files
are views of the journal and can always be written again. Pure: texts by path, no disk. Names, fields and
semantics are those of the contracts page; where a file only grows (raw data, results, events, force-kills) the
projection gives entries, and `render_list` makes the whole file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sid_daemon.core.adoption import Change, by_hand
from sid_daemon.core.longterm.audit import Audited
from sid_daemon.core.state import ACTIVE, Round, RunState
from sid_daemon.core.wording import one_line
from sid_daemon.layout import (
    AGENT_SETTINGS,
    BASELINE,
    EVENTS,
    IMPROVEMENTS,
    ITERATION_STATE,
    MEMORY,
    RAW_DATA,
    RESULTS,
    archive_path,
    brief_path,
    history_path,
    plan_path,
    report_path,
    result_path,
)
from sid_daemon.report.text import audit_fields
from sid_daemon.store import memory
from sid_daemon.store import views_round as rounds
from sid_daemon.store import views_state as places
from sid_daemon.store.documents import direction_entry, entry, render, render_list
from sid_daemon.store.views_lessons import lesson_documents
from sid_protocol.events import (
    AnyEvent,
    ConfigChanged,
    Recalibrated,
    RoundClosed,
    RoundPrepared,
    RunCreated,
    RunStarted,
)
from sid_protocol.records import Baseline, ForceKill, ResultRow, TrackEvent

_EMPTY = Round(iteration=0, started_at="", head="", baseline_score=None)


@dataclass(frozen=True, slots=True)
class Projection:
    """What one event changes in a root.

    Attributes:
        documents: Path relative to the root → whole new text.
        entries: `(path, entry)` to be added to list-like views, in order.
    """

    documents: dict[str, str] = field(default_factory=dict)
    entries: tuple[tuple[str, str], ...] = ()

    def __add__(self, later: Projection) -> Projection:
        """Return what both change; of a file that both give the later text counts."""
        return Projection(self.documents | later.documents, self.entries + later.entries)


def project(before: RunState | None, event: AnyEvent, after: RunState) -> Projection:
    """Return the contract files that an event changes.

    Args:
        before: The run before the event; None for its first.
        event: What happened.
        after: The run after `step` has taken the event.

    Returns:
        Texts of the changed files only; an event that changed nothing gives nothing.
    """
    if before is after:
        return Projection()
    documents: dict[str, str] = {}
    entries: list[tuple[str, str]] = []
    if isinstance(event, RunCreated):
        _created(before, event, after, documents, entries)
    if isinstance(event, ConfigChanged):
        entries.append((EVENTS, entry(_config_change(event, after))))
    if before is not None and isinstance(event, RoundPrepared | RunStarted):
        hand = by_hand(before.settings, after.settings, before.announced)
        entries.extend((EVENTS, entry(_hand_edit(one, event.at, after))) for one in hand)
    if before is not None and after.standing != before.standing:
        entries.extend((EVENTS, entry(one)) for one in _transitions(before, event, after))
    if before is not None and isinstance(event, Recalibrated):
        entries.append((EVENTS, entry(_recalibration(before, event, after))))
    if before is not None and after.audited is not None and after.audited is not before.audited:
        entries.append((EVENTS, entry(_audit(after.audited, event.at, after))))
    old = (before.round if before else None) or _EMPTY
    closed = before is not None and isinstance(event, RoundClosed) and after.completed > before.completed
    now = old if closed else after.round
    if now is not None:
        _round(old if old.iteration == now.iteration else _EMPTY, now, after.run_id, documents, entries)
    if before is not None and isinstance(event, RoundClosed) and closed:
        _closed(before, old, event, documents, entries)
    documents.update(lesson_documents(before, event, after))
    if before is not None and after.status != before.status and after.status not in ACTIVE:
        entries.append((MEMORY, memory.end_entry(after, event.at)))
    _where(before, event, after, closed=closed, documents=documents)
    return Projection(documents, tuple(entries))


def _created(
    before: RunState | None,
    event: RunCreated,
    after: RunState,
    documents: dict[str, str],
    entries: list[tuple[str, str]],
) -> None:
    measured = (event.baseline_score, event.baseline_commit)
    if (after.baseline_score, after.first_commit) == measured:  # else an earlier baseline still holds
        documents[BASELINE] = render(
            Baseline(
                baseline_score=event.baseline_score,
                recorded_at=event.at,
                samples=list(event.baseline_samples),
                commit=event.baseline_commit,
                benchmark_command=event.settings.benchmark_command,
            )
        )
    entries.append((RESULTS, direction_entry(event.settings.benchmark_direction)))
    if before is not None:
        return  # the table has its row 0 already
    # There from the start, for readers that expect every file of the layout.
    documents.update({file: render_list(file, ()) for file in (RAW_DATA, EVENTS)})
    row = ResultRow(
        iteration=0,
        commit=event.baseline_commit[:7],
        metric=event.baseline_score,
        delta=0.0,
        guard="-",
        status="baseline",
        description="baseline",
    )
    entries.append((RESULTS, rounds.row_line(row)))


def _config_change(event: ConfigChanged, after: RunState) -> TrackEvent:
    return TrackEvent(
        timestamp=event.at,
        event_type="config_change",
        iteration=after.iteration,
        details={
            "field": event.field,
            "old_value": event.old_value,
            "new_value": event.new_value,
            "source": event.source,
        },
    )


def _hand_edit(change: Change, at: str, after: RunState) -> TrackEvent:
    details = {
        "field": change.key,
        "old_value": change.old,
        "new_value": change.new,
        "source": "settings.json",
    }
    return TrackEvent(timestamp=at, event_type="config_change", iteration=after.iteration, details=details)


def _transitions(before: RunState, event: AnyEvent, after: RunState) -> list[TrackEvent]:
    """Return the moves from one phase or milestone to the next; the first reading of a goal is none."""
    was, now = before.standing, after.standing
    moves = (
        ("current_phase", was.phase, now.phase),
        ("current_milestone", was.milestone, now.milestone),
    )
    return [
        TrackEvent(
            timestamp=event.at,
            event_type="phase_transition",
            iteration=after.iteration,
            details={"field": field, "old_value": old, "new_value": new, "source": "goal.md"},
        )
        for field, old, new in moves
        if old != new and before.goal
    ]


def _recalibration(before: RunState, event: Recalibrated, after: RunState) -> TrackEvent:
    return TrackEvent(
        timestamp=event.at,
        event_type="config_change",
        iteration=after.iteration,
        details={
            "field": "calibration",
            "old_value": {"mode": _mode(before), "best_score": before.best_score},
            "new_value": {
                "mode": _mode(after),
                "best_score": after.best_score,
                "samples": list(event.samples),
            },
            "source": "calibrate",
        },
    )


def _mode(state: RunState) -> str:
    return "noisy" if state.is_noisy else "deterministic"


def _audit(found: Audited, at: str, after: RunState) -> TrackEvent:
    changed = {
        "field": "head",
        "old_value": found.baseline_sha,
        "new_value": found.head_sha,
        "source": "audit",
    }
    details = {**changed, **audit_fields(found)}
    return TrackEvent(timestamp=at, event_type="audit", iteration=after.iteration, details=details)


def _round(
    old: Round, now: Round, run_id: str, documents: dict[str, str], entries: list[tuple[str, str]]
) -> None:
    """Add what a round has learnt by this event: its brief, plans, results and force-kills."""
    iteration = now.iteration
    if now.brief is not None and now.brief is not old.brief:
        documents[brief_path(iteration)] = render(now.brief)
    for planner, slot in now.slots.items():
        known = old.slots.get(planner)
        if slot.plan is None or known is slot:
            continue
        if known is None or known.plan is not slot.plan:
            documents[plan_path(iteration, planner)] = render(slot.plan)
        if slot.status in ("approved", "rejected", "failed"):
            documents[archive_path(iteration, planner)] = render(slot.plan)
    for executor, one in now.executions.items():
        if one.status == "done" and one.result is not None and old.executions.get(executor) is not one:
            path = result_path(iteration, executor)
            documents[path] = render(rounds.benchmark_result(now, one))
    for number, kill in enumerate(now.kills[len(old.kills) :], len(old.kills)):
        head = kill_heading(run_id, iteration, kill.at)
        text = kill_line(kill) if number else f"{head}\n\n{kill_line(kill)}"
        entries.append((IMPROVEMENTS, text))


def kill_heading(run_id: str, iteration: int, at: str) -> str:
    """Return the heading over a round's force-kills, in the run's file and in the one across runs."""
    return f"## {run_id} · round {iteration} · {at}"


def kill_line(kill: ForceKill) -> str:
    """Return a force-kill as one list item."""
    return (
        f"- agent {kill.agent_id} · reason {kill.reason} · last_tool {one_line(kill.last_tool or 'none')} "
        f"· repeats {kill.repeats} · deadline_s {kill.deadline_s:g} · elapsed_s {kill.elapsed_s:g} "
        f"· processes_killed {kill.processes_killed} · snippet: {one_line(kill.snippet)}"
    )


def _closed(
    state: RunState,
    now: Round,
    event: RoundClosed,
    documents: dict[str, str],
    entries: list[tuple[str, str]],
) -> None:
    """Add what is written of a round for good."""
    iteration = now.iteration
    for planner, slot in now.slots.items():
        if slot.plan is not None and slot.status not in ("approved", "rejected"):
            documents[archive_path(iteration, planner)] = render(slot.plan)
    documents[history_path(iteration)] = render(rounds.history(state, now, event.at, event.tags))
    documents[report_path(iteration)] = render(rounds.merge_report(state, now, event.tags))
    entries.extend((RAW_DATA, entry(one)) for one in rounds.raw_entries(now))
    entries.extend((RESULTS, rounds.row_line(row)) for row in rounds.result_rows(now))
    entries.append((MEMORY, memory.round_entry(state, now)))


def _where(
    before: RunState | None, event: AnyEvent, after: RunState, *, closed: bool, documents: dict[str, str]
) -> None:
    """Add where the run is now, if that changed."""
    settings = places.agent_settings(after)
    if before is None or settings != places.agent_settings(before):
        documents[AGENT_SETTINGS] = render(settings)
    if after.round is None:
        if before is not None and before.round is not None:
            status: places.IterationStatus = "completed" if closed else "interrupted"
            documents[ITERATION_STATE] = render(places.ended_iteration(before.round, status, event.at))
        return
    current = places.iteration_state(after, event.at)
    if current is not None and (before is None or current != places.iteration_state(before, event.at)):
        documents[ITERATION_STATE] = render(current)
