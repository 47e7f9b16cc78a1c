"""What a run has learned, as files: `state/lessons.json` for programs, `state/lessons.md` for people.

Called by `views` beside the contract files, pure as they are. The daemon keeps a copy of the first one beside
those of other runs, and `across` makes of all of them the page across tracks.
"""

from __future__ import annotations

from collections.abc import Iterable

from sid_daemon.core.longterm.learning import rule_of, told_to
from sid_daemon.core.longterm.lessons import Book, Lesson, standing_of
from sid_daemon.core.state import RunState
from sid_daemon.layout import LESSONS_JSON, LESSONS_MD
from sid_daemon.store.documents import render
from sid_protocol.events import AnyEvent, RoundClosed
from sid_protocol.lessons import LessonRecord, TrackLessons

_ROLES = ("researcher", "planner", "architect", "critic", "executor")


def lesson_documents(before: RunState | None, event: AnyEvent, after: RunState) -> dict[str, str]:
    """Return the two files where an event changed what was learned, or closed a round that taught nothing."""
    if before is None:
        return {}
    closed = isinstance(event, RoundClosed) and after.completed > before.completed
    if not closed and before.lessons == after.lessons:
        return {}
    learned = track_lessons(after, event.at)
    return {LESSONS_JSON: render(learned), LESSONS_MD: page(learned)}


def track_lessons(state: RunState, at: str) -> TrackLessons:
    """Return what a run has learned, lessons in force first."""
    book = state.lessons
    ordered = sorted(book.lessons.values(), key=lambda one: one.status != "in_force")
    return TrackLessons(
        run_id=state.run_id,
        repo=state.repo,
        topic=state.topic,
        at=at,
        seen=list(book.traces),
        standing=list(standing_of(book)),
        lessons=[_record(book, one) for one in ordered],
        replays=state.settings.replay_from if state.settings.agent_backend == "replay" else None,
    )


def _record(book: Book, lesson: Lesson) -> LessonRecord:
    trace = book.traces.get(lesson.key)
    return LessonRecord(
        key=lesson.key,
        rule=rule_of(lesson.key),
        status=lesson.status,
        roles=[role for role in _ROLES if told_to(lesson.key, role)],
        since=lesson.since,
        runs=list(lesson.runs),
        seen=trace.count if trace else 0,
        rounds=list(trace.rounds) if trace else [],
        snippets=list(trace.snippets) if trace else [],
        promotions=lesson.promotions,
        told=lesson.told,
        told_again=lesson.told_again,
        held=lesson.held,
        held_again=lesson.held_again,
        ended=lesson.ended if lesson.status != "in_force" else None,
        why=lesson.why,
    )


def page(learned: TrackLessons) -> str:
    """Return a track's lessons as Markdown."""
    lines = [f"# Lessons of {learned.run_id}", ""]
    in_force = [one for one in learned.lessons if one.status == "in_force"]
    lines += [line for one in in_force for line in _item(one)] or ["None yet."]
    ended = [one for one in learned.lessons if one.status != "in_force"]
    if ended:
        lines += ["", "## No longer in force", ""]
        lines += [f"- `{one.key}` {one.status} after round {one.ended}: {one.why}" for one in ended]
    return "\n".join(lines) + "\n"


def _item(one: LessonRecord) -> list[str]:
    rests = [f"rounds {', '.join(map(str, one.rounds))}"] if one.rounds else []
    rests += [f"runs {', '.join(one.runs)}"] if one.runs else []
    lines = [f"- `{one.key}` — {one.rule} Since round {one.since}, from {' and '.join(rests) or 'no round'}."]
    if one.told or one.held:
        lines.append(
            f"  Came back in {one.told_again} of {one.told} rounds with it, "
            f"in {one.held_again} of {one.held} without."
        )
    return lines + [f"  - `{snippet.replace('`', chr(39))}`" for snippet in one.snippets]


def across(tracks: Iterable[TrackLessons]) -> str:
    """Return the page across tracks: each lesson in force, and the runs in which it is."""
    runs: dict[str, list[str]] = {}
    rules: dict[str, str] = {}
    for track in tracks:
        for one in track.lessons:
            if one.status == "in_force":
                runs.setdefault(one.key, []).append(f"{track.run_id} (since round {one.since})")
                rules[one.key] = one.rule
    lines = ["# Lessons across runs", ""]
    lines += [f"- `{key}` — {rules[key]} In {', '.join(found)}." for key, found in sorted(runs.items())]
    return "\n".join(lines if runs else [*lines, "None yet."]) + "\n"
