"""What the log tells of a run as a whole: its starts and ends, its settings, its goal. Part of `event_records`. Pure."""

from __future__ import annotations

from sid_daemon.core.adoption import by_hand
from sid_daemon.core.longterm.audit import headline
from sid_daemon.core.state import ACTIVE, RunState
from sid_daemon.log.record import LogRecord
from sid_daemon.report.text import audit_fields, summary_text
from sid_protocol.events import (
    AnyEvent,
    ConfigChanged,
    Recalibrated,
    RoundClosed,
    RoundPrepared,
    RunCreated,
    RunPaused,
    RunResumed,
    RunStarted,
    StopRequested,
)


def of_request(event: AnyEvent, after: RunState) -> list[LogRecord]:
    """Return the records of what a user or a daemon asked of a run."""
    match event:
        case RunCreated():
            fields = {"baseline": event.baseline_score, "commit": event.baseline_commit, "root": event.root}
            return [LogRecord("info", "run_created", fields)]
        case RunStarted():
            fields = {"resumed": event.resumed, "after_crash": event.crashed, "rounds": event.rounds}
            return [LogRecord("info", "run_started", fields)]
        case StopRequested():
            return [LogRecord("info", "stop_requested", {"now": event.now, "iteration": after.iteration})]
        case Recalibrated():
            fields = {
                "score": event.score,
                "samples": list(event.samples),
                "deterministic": event.deterministic,
            }
            return [LogRecord("info", "recalibrated", {**fields, "best_score": after.best_score})]
        case RunPaused():
            return [LogRecord("info", "run_paused", {"iteration": after.iteration})]
        case RunResumed():
            return [LogRecord("info", "run_resumed", {"iteration": after.iteration})]
        case ConfigChanged():
            fields = {"field": event.field, "old_value": event.old_value, "new_value": event.new_value}
            return [LogRecord("info", "config_changed", {**fields, "source": event.source})]
        case _:
            return []


def of_adoption(before: RunState, event: AnyEvent, after: RunState) -> list[LogRecord]:
    """Return the records of settings that were edited by hand, and of a phase or milestone left behind."""
    found: list[LogRecord] = []
    if isinstance(event, RoundPrepared | RunStarted):
        for one in by_hand(before.settings, after.settings, before.announced):
            fields = {"field": one.key, "old_value": one.old, "new_value": one.new}
            found.append(LogRecord("info", "config_changed", {**fields, "source": "settings.json"}))
    was, now = before.standing, after.standing
    if was != now and before.goal:
        fields = {"iteration": after.iteration, "phase": now.phase, "milestone": now.milestone}
        found.append(LogRecord("info", "phase_transition", fields))
    return found


def of_audit(before: RunState, after: RunState) -> list[LogRecord]:
    """Return the record of an audit that is done."""
    done = after.audited
    if done is None or done is before.audited:
        return []
    return [
        LogRecord(
            "info", "audit", {"iteration": after.iteration, **audit_fields(done), "told": headline(done)}
        )
    ]


def of_end(before: RunState, event: AnyEvent, after: RunState) -> list[LogRecord]:
    """Return the last record of a run that is over: its summary."""
    if after.status in ACTIVE or not (before.status in ACTIVE or isinstance(event, RunStarted)):
        return []
    notes = event.notes if isinstance(event, RoundClosed) else ()
    fields = {
        "iteration": after.iteration,
        "status": after.status,
        "reason": after.reason,
        "summary": summary_text(after, notes=notes),
    }
    if after.hint:
        fields["hint"] = after.hint
    return [LogRecord("error" if after.status == "failed" else "info", "run_ended", fields)]
