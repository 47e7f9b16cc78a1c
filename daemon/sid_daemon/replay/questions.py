"""What a command asks, as a recording keeps it; and which recorded answer comes next. Pure.

A replay asks the same commands as the run did, since the same core decides on the same answers. They are answered
in the order in which they were, so what came first then (a plan at the critic, a kill) comes first again, however
many executors worked at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sid_daemon.core.run import is_active
from sid_daemon.core.state import RunState
from sid_daemon.replay.recording import Entry, Question, canonical, digest_of
from sid_protocol.commands import (
    AgentCommand,
    AnyCommand,
    Halt,
    Inspect,
    Kill,
    Measure,
    PrepareRound,
    RunGuards,
    agent_of,
)
from sid_protocol.errors import NotRecorded

_START = re.compile(r"^(r\d+\.(?:prepare|rebase))\.\d+$")
ASIDE = frozenset(
    {"run_started", "rounds_asked", "turns_cut", "recalibrated", "config_changed", "lesson_forgotten"}
)
"""Events from outside that a replay takes in at their place. A stop and a pause leave nothing that is decided on."""
_UNASKED = {"id", "keep", "take_ideas", "slots", "quiet"}
"""Fields of a command that say how it is carried out, and change no answer."""


def key_of(command: AnyCommand) -> str:
    """Return a command's id without the number of the start that it was made in."""
    found = _START.match(command.id)
    return found[1] if found else command.id


def question_of(command: AnyCommand, redact: Callable[[Any], Any]) -> Question:
    """Return what a command asks.

    Args:
        command: The command.
        redact: Takes secrets out of a JSON value.
    """
    # Without defaults, so that a field that is added asks nothing new.
    asked = command.model_dump(mode="json", exclude=_UNASKED, exclude_defaults=True)
    agent = ""
    if isinstance(command, AgentCommand):
        agent = agent_of(command)
    elif isinstance(command, Measure):
        agent = command.arm
    elif isinstance(command, RunGuards):
        agent = command.executor
    return Question(
        id=key_of(command),
        kind=command.kind,
        iteration=command.iteration,
        agent=agent,
        attempt=command.attempt if isinstance(command, AgentCommand) else 1,
        digest=digest_of(canonical(redact(asked))),
    )


@dataclass(slots=True)
class Answers:
    """The entries of a recording, by what they answer.

    Attributes:
        run_id: The recorded run, for errors.
        by_key: Command → the entry that ended it; the last one, where a failure was mended and it was done again.
        prepared: Round → the entries of its preparations: one, and one more for each time that it was resumed.
        evidence: Command that was inspected → what was seen.
        deadlines: Command → the entries of the deadlines that it passed.
        asides: The entries of what came from outside: starts, settings, the benchmark's calibration.
        unanswered: What was on the book when a stop or a failure ended the recorded run.
    """

    run_id: str
    by_key: dict[str, Entry] = field(default_factory=dict)
    prepared: dict[str, list[Entry]] = field(default_factory=dict)
    evidence: dict[str, Entry] = field(default_factory=dict)
    deadlines: dict[str, list[Entry]] = field(default_factory=dict)
    asides: list[Entry] = field(default_factory=list)
    unanswered: frozenset[str] = frozenset()

    def of(self, command: AnyCommand, position: int) -> Entry | None:
        """Return the entry that answers a command, or None.

        Args:
            command: What is asked.
            position: The number of the newest entry that was made again.
        """
        if isinstance(command, Inspect):
            return self.evidence.get(command.target)
        if isinstance(command, PrepareRound):
            found = self.prepared.get(key_of(command), [])
            return next((one for one in found if one.seq > position), found[-1] if found else None)
        return self.by_key.get(key_of(command))


def answers_of(run_id: str, entries: Iterable[Entry], unanswered: Iterable[AnyCommand]) -> Answers:
    """Sort a recording's entries, given in order, by what they answer."""
    found = Answers(run_id, unanswered=frozenset(key_of(command) for command in unanswered))
    for entry in entries:
        if entry.kind == "deadline_passed":
            found.deadlines.setdefault(entry.target or "", []).append(entry)
        elif entry.kind == "evidence_taken":
            found.evidence.setdefault(entry.target or "", entry)
        elif entry.kind == "round_prepared" and entry.question is not None:
            found.prepared.setdefault(entry.question.id, []).append(entry)
        elif entry.question is not None:
            found.by_key[entry.question.id] = entry
        elif entry.kind in ASIDE:
            found.asides.append(entry)
    return found


def next_answer(
    state: RunState, answers: Answers, position: int, redact: Callable[[Any], Any]
) -> tuple[AnyCommand | None, Entry] | None:
    """Return what happens next: a command that is on the book with its answer, or what came from outside before it.

    Args:
        state: The replay as it is.
        answers: The recording.
        position: The number of the newest entry that was made again.
        redact: Takes secrets out of a JSON value.

    Returns:
        None where the recorded run was cut off, too.

    Raises:
        NotRecorded: something on the book was not asked in the recorded run.
    """
    due = _due(state, answers, position, redact) if is_active(state) else []
    first = min(due, key=lambda one: one[0], default=None)
    aside = next((one for one in answers.asides if one.seq > position), None)
    if aside is not None and (first is None or aside.seq < first[0]):
        return None, aside
    return first and first[1:]


def _due(
    state: RunState, answers: Answers, position: int, redact: Callable[[Any], Any]
) -> list[tuple[int, AnyCommand | None, Entry]]:
    """Return the recorded answers to what is on the book, and the deadlines that it passed, by number."""
    due: list[tuple[int, AnyCommand | None, Entry]] = []
    watched = {one.target for one in state.outstanding.values() if isinstance(one, Inspect)}
    watched |= set(state.round.killing) if state.round else set()
    for command in state.outstanding.values():
        if isinstance(command, Kill | Halt) or (state.held and not isinstance(command, PrepareRound)):
            continue  # it ends with what it is about, or a resume cleans up first
        entry = answers.of(command, position)
        if entry is not None:
            due.append((entry.seq, command, entry))
            if command.id not in watched:
                due += [(one.seq, None, one) for one in answers.deadlines.get(command.id, [])[:1]]
        elif not isinstance(command, Inspect) and key_of(command) not in answers.unanswered:
            asked = question_of(command, redact)
            raise NotRecorded(
                f"the recording of {answers.run_id} has no answer to {asked}",
                hint="it was not asked then; is this another version of sid?",
                data=_facts(asked),
            )
    return due


def _facts(asked: Question) -> dict[str, Any]:
    return {"question": asked.id, "kind": asked.kind, "agent": asked.agent, "iteration": asked.iteration}


def check_question(command: AnyCommand, entry: Entry, run_id: str, redact: Callable[[Any], Any]) -> None:
    """Refuse an answer to something else than what is asked now.

    Raises:
        NotRecorded: the recorded question has the same name, and another content.
    """
    asked = question_of(command, redact)
    known = entry.question
    if isinstance(command, Inspect) or known is None or known.digest == asked.digest:
        return
    raise NotRecorded(
        f"the recording of {run_id} answers another question than {asked}",
        hint="plan, base or tree differ from what was asked then; is this another version of sid?",
        data=_facts(asked),
    )
