"""What a run has learned: which fault becomes a lesson, who is told of it, and what ends it. Pure.

A fault has a key (category, reason, rule). A key that is seen in enough runs, or in three rounds of this one, is
promoted to a lesson, which from then on stands in prompts. A lesson is held out of some rounds by a coin, and it
ends on evidence only: without it the fault does not come back, or comes back no more often than with it. At the
caps the least useful leaves first. Rules from the containment page, section Lessons; called by `learning`, which
knows rounds, and by the nodes of `sid_daemon.node`. No list recomputed from a window: that forgets, and the fault
returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from sid_daemon.core.measuring.dice import word
from sid_protocol.events import RunLessons

LessonStatus = Literal["in_force", "retired", "dropped", "forgotten"]
ROUNDS_NEEDED = 3
"""Rounds of one run in which a key makes a lesson without any other run."""
PROBES_NEEDED = 5
"""Rounds without a lesson, with an occasion for its fault, that can end it; doubled each time it came again."""
PROBES_LIMIT = 80
IN_FORCE_LIMIT = 12
"""Lessons of a run that stand in prompts; the least useful leaves first."""
ROUNDS_KEPT = 12
SNIPPETS_KEPT = 3
SNIPPET_LIMIT = 200
"""Characters of one piece of evidence."""
PATHS_KEPT = 20
OWN_PROGRAM: frozenset[str] = frozenset({"regression", "oom", "benchmark_parse_error", "logic_error"})
"""Categories that tell of one program only: other repositories' sightings of them do not count."""


@dataclass(frozen=True, slots=True)
class Key:
    """What makes two faults the same."""

    category: str
    reason: str = ""
    rule: str = ""

    def __str__(self) -> str:
        """Return it as one word, for example `timeout/tool_loop/executor`."""
        return "/".join(part or "-" for part in (self.category, self.reason, self.rule))


def parse_key(text: str) -> Key:
    """Return the key that `str(key)` wrote; what is missing is empty."""
    category, reason, rule = (*text.split("/", 2), "", "")[:3]
    return Key(category, "" if reason == "-" else reason, "" if rule == "-" else rule)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One fault of a round.

    Attributes:
        key: Its key as text.
        subject: At whose work it is seen: a role, or a family as `family:<name>`.
        snippet: What it looked like; text of agents and programs.
        paths: The paths that were refused, if any were.
    """

    key: str
    subject: str
    snippet: str = ""
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a fault was seen in this run: rounds since its lesson last ended, snippets and paths, newest last."""

    subject: str
    count: int = 0
    rounds: tuple[int, ...] = ()
    snippets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """One rule that was learned.

    Attributes:
        key: The fault's key.
        subject: As in `Sighting`.
        status: Whether it stands in prompts, or why not.
        since: The round from which on it is in force.
        runs: Other runs in which the fault was seen, or whose lesson it is.
        promotions: How often it was promoted.
        told: Rounds with an occasion for the fault in which agents were told.
        told_again: Those of them in which it came back all the same.
        held: Rounds with an occasion in which it was held out.
        held_again: Those of them in which it came back.
        ended: The round after which it was no longer in force.
        why: What ended it.
    """

    key: str
    subject: str
    status: LessonStatus = "in_force"
    since: int = 0
    runs: tuple[str, ...] = ()
    promotions: int = 1
    told: int = 0
    told_again: int = 0
    held: int = 0
    held_again: int = 0
    ended: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """All that a run has learned.

    Attributes:
        traces: Key → where it was seen.
        lessons: Key → its lesson, in force or ended.
    """

    traces: dict[str, Trace] = field(default_factory=dict)
    lessons: dict[str, Lesson] = field(default_factory=dict)

    @property
    def in_force(self) -> tuple[str, ...]:
        """Keys of the lessons that stand in prompts, in the order of their promotion."""
        return tuple(key for key, one in self.lessons.items() if one.status == "in_force")


def is_portable(key: str) -> bool:
    """Say whether a fault tells something about agents on any program, not of one program only."""
    return parse_key(key).category not in OWN_PROGRAM


def observe(
    book: Book,
    iteration: int,
    sightings: Iterable[Sighting],
    occasions: frozenset[str],
    held: Iterable[str] = (),
) -> Book:
    """Take in what a round showed.

    Args:
        book: What was known.
        iteration: The round.
        sightings: Its faults; of one key the last is kept as evidence.
        occasions: Subjects that were at work in it: only there could a fault have been seen.
        held: Lessons that were held out of it.

    Returns:
        The book with traces added, and for each lesson in force whether its fault came back.
    """
    seen = {one.key: one for one in sightings}
    out = frozenset(held)
    traces = dict(book.traces)
    for key, one in seen.items():
        traces[key] = _traced(traces.get(key, Trace(one.subject)), iteration, one)
    lessons = {
        key: _noted(lesson, again=key in seen, held=key in out)
        if lesson.status == "in_force" and (key in seen or lesson.subject in occasions)
        else lesson
        for key, lesson in book.lessons.items()
    }
    return Book(traces, lessons)


def _traced(trace: Trace, iteration: int, one: Sighting) -> Trace:
    snippet = f"round {iteration}: {one.snippet[:SNIPPET_LIMIT]}" if one.snippet else ""
    return replace(
        trace,
        count=trace.count + 1,
        rounds=(*trace.rounds, iteration)[-ROUNDS_KEPT:],
        snippets=(*trace.snippets, *([snippet] if snippet else []))[-SNIPPETS_KEPT:],
        paths=tuple(dict.fromkeys((*trace.paths, *one.paths)))[-PATHS_KEPT:],
    )


def _noted(lesson: Lesson, *, again: bool, held: bool) -> Lesson:
    if held:
        return replace(lesson, held=lesson.held + 1, held_again=lesson.held_again + again)
    return replace(lesson, told=lesson.told + 1, told_again=lesson.told_again + again)


def settle(book: Book, iteration: int, others: Iterable[RunLessons], *, window: int, threshold: int) -> Book:
    """Retire, promote, and hold the caps; doing it twice is doing it once.

    Args:
        book: What was observed.
        iteration: The last round; a promoted lesson is in force from the next one on.
        others: Other runs, the newest first; those of other repositories without what tells of one program.
        window: Runs looked back upon, this one included.
        threshold: Distinct runs in which a key makes a lesson.
    """
    known = tuple(others)
    for key, lesson in book.lessons.items():
        if lesson.status == "in_force" and (why := _no_difference(lesson)):
            book = _ended(book, key, "retired", iteration, why)
    recent = known[: max(0, window - 1)]
    keys = dict.fromkeys([*book.traces, *(key for run in known for key in (*run.seen, *run.standing))])
    for key in keys:
        elsewhere = tuple(run.run_id for run in recent if key in run.seen)
        standing = tuple(run.run_id for run in known if key in run.standing)
        trace, known_as = book.traces.get(key), book.lessons.get(key)
        if known_as is not None and (known_as.status == "in_force" or trace is None):
            continue  # what has ended needs to be seen here again
        enough = promoted_by_runs(len(elsewhere) + (trace is not None), threshold)
        if enough or standing or (trace is not None and trace.count >= ROUNDS_NEEDED):
            subject = trace.subject if trace else subject_of(key)
            by_runs = tuple(dict.fromkeys((*elsewhere, *standing))) if enough or standing else ()
            book = _promoted(book, Lesson(key, subject, since=iteration + 1, runs=by_runs))
    return _within_caps(book, iteration)


def promoted_by_runs(runs: int, threshold: int) -> bool:
    """Say whether a fault seen in so many distinct runs of the window makes a lesson."""
    return runs >= threshold


def subject_of(key: str) -> str:
    """Return at whose work a fault is seen that another run saw."""
    known = parse_key(key)
    if known.category in ("timeout", "agent_failed") and known.rule:
        return known.rule
    if known.category == "regression" and known.rule not in ("", "guard"):
        return f"family:{known.rule}"
    return "planner" if known.category == "plan_rejected" else "executor"


def _promoted(book: Book, lesson: Lesson) -> Book:
    before = book.lessons.get(lesson.key)
    again = replace(lesson, promotions=before.promotions + 1) if before else lesson
    rest = {key: one for key, one in book.lessons.items() if key != lesson.key}
    return replace(book, lessons={**rest, lesson.key: again})


def probes_needed(lesson: Lesson) -> int:
    """Return in how many rounds without it a lesson must have made no difference: more, once it came again."""
    return int(min(PROBES_NEEDED * 2 ** (lesson.promotions - 1), PROBES_LIMIT))


def _no_difference(lesson: Lesson) -> str:
    """Return what shows that a lesson makes no difference; empty where nothing does yet."""
    needed = probes_needed(lesson)
    if lesson.held < needed:
        return ""
    if lesson.held_again == 0:
        return f"not needed: the fault came back in none of {lesson.held} rounds without it"
    if lesson.told >= needed and lesson.held_again * lesson.told <= lesson.told_again * lesson.held:
        return (
            f"no help: the fault came back in {lesson.told_again} of {lesson.told} rounds with it, "
            f"in {lesson.held_again} of {lesson.held} without"
        )
    return ""


def _ended(book: Book, key: str, status: LessonStatus, iteration: int, why: str) -> Book:
    """End a lesson; what was seen so far counts no more, so that only what is seen from now on brings it back."""
    lesson = replace(book.lessons[key], status=status, ended=iteration, why=why)
    rest = {name: one for name, one in book.lessons.items() if name != key}
    traces = {name: one for name, one in book.traces.items() if name != key}
    return Book(traces, {**rest, key: lesson})


def forget(book: Book, key: str, iteration: int) -> Book:
    """End a lesson by the user's hand; an unknown or ended one changes nothing."""
    lesson = book.lessons.get(key)
    if lesson is None or lesson.status != "in_force":
        return book
    return _ended(book, key, "forgotten", iteration, "by the user's hand")


def _within_caps(book: Book, iteration: int) -> Book:
    while len(book.in_force) > IN_FORCE_LIMIT:
        least = min(book.in_force, key=lambda key: usefulness(book, key))
        why = f"the least useful of more than {IN_FORCE_LIMIT}"
        book = _ended(book, least, "dropped", iteration, why)
    return book


def usefulness(book: Book, key: str) -> tuple[float, int, int, str]:
    """Return what lessons are ranked by: the difference it was seen to make, how often the fault was seen, how lately."""
    lesson, trace = book.lessons[key], book.traces.get(key)
    difference = 0.0
    if lesson.told and lesson.held:
        difference = lesson.held_again / lesson.held - lesson.told_again / lesson.told
    seen = (trace.count if trace else 0) + len(lesson.runs)
    return difference, seen, max(trace.rounds[-1] if trace else 0, lesson.since), key


def held_out(book: Book, probe: float, seed: int, iteration: int) -> tuple[str, ...]:
    """Return the lessons in force that a round is to do without: for each a coin of its own.

    Args:
        book: What is known.
        probe: Share of rounds, 0 to 1.
        seed: The run's seed.
        iteration: The round.
    """
    return tuple(
        key for key in book.in_force if word(seed, "lesson", iteration, key) < probe * float(1 << 64)
    )


def without_paths(book: Book) -> Book:
    """Forget which paths were refused: the user has changed what is sealed or in scope."""
    return replace(book, traces={key: replace(one, paths=()) for key, one in book.traces.items()})


def standing_of(book: Book) -> tuple[str, ...]:
    """Return the lessons in force that stand on the evidence of several runs: other runs take them over."""
    return tuple(key for key in book.in_force if book.lessons[key].runs)


def worth_telling(
    others: Iterable[RunLessons], window: int, *, alien: frozenset[str]
) -> tuple[RunLessons, ...]:
    """Return of other runs what may change this one's lessons, newest first.

    Args:
        others: All that are known, the newest first.
        window: Runs looked back upon, this one included.
        alien: Runs of other repositories, of which only counts what holds for agents on any program.
    """
    known = [_portable(run) if run.run_id in alien else run for run in others]
    witnessed = {key for run in known for key in run.standing if key in run.seen}
    kept = []
    for number, run in enumerate(known):
        seen = run.seen if number < window - 1 else ()
        # Whoever only took a lesson over is no evidence of it, as long as one is known that saw the fault.
        standing = tuple(key for key in run.standing if key in run.seen or key not in witnessed)
        if number < window - 1 or standing:
            kept.append(RunLessons(run_id=run.run_id, seen=seen, standing=standing))
    return tuple(kept)


def _portable(run: RunLessons) -> RunLessons:
    seen, standing = (tuple(filter(is_portable, keys)) for keys in (run.seen, run.standing))
    return RunLessons(run_id=run.run_id, seen=seen, standing=standing)
