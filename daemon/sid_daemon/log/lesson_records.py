"""What the log tells of lessons: promoted, held out of a round, no longer in force. Part of `event_records`."""

from __future__ import annotations

from typing import Any

from sid_daemon.core.longterm.learning import rule_of
from sid_daemon.core.state import RunState
from sid_daemon.log.record import LogRecord


def of_lessons(before: RunState, after: RunState) -> list[LogRecord]:
    """Return the records of what an event changed in the lessons of a run."""
    found: list[LogRecord] = []
    was, now = before.round, after.round
    if now is not None and now.lessons_held and (was is None or not was.lessons_held):
        fields = {"iteration": now.iteration, "lessons": list(now.lessons_held)}
        found.append(LogRecord("info", "lessons_held_out", fields))
    if before.lessons is after.lessons:
        return found
    for key, lesson in after.lessons.lessons.items():
        known = before.lessons.lessons.get(key)
        told = {"iteration": after.iteration, "lesson": key}
        if lesson.status == "in_force" and (known is None or known.promotions != lesson.promotions):
            trace = after.lessons.traces.get(key)
            rests = {"rounds": list(trace.rounds) if trace else [], "runs": list(lesson.runs)}
            found.append(LogRecord("info", "lesson_promoted", {**told, "rule": rule_of(key), **rests}))
        elif lesson.status != "in_force" and (known is None or known.status != lesson.status):
            found.append(_ended(lesson.status, {**told, "reason": lesson.why}))
    return found


def _ended(status: str, fields: dict[str, Any]) -> LogRecord:
    if status == "retired":
        return LogRecord("info", "lesson_retired", fields)
    if status == "dropped":
        return LogRecord("info", "lesson_dropped", fields)
    return LogRecord("info", "lesson_forgotten", fields)
