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
_UNASKED = {"id", "keep", "take_ideas"}
"""Fields of a command that differ after another start, and change no answer."""


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
    asked = command.model_dump(mode="json", exclude=_UNASKED)
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
        evidence: Command that was inspected → what was seen.
        deadlines: Command → the entries of the deadlines that it passed.
        starts: The entries of the run's starts.
        asides: The entries of what the user changed meanwhile: settings, the benchmark's calibration.
    """

    run_id: str
    by_key: dict[str, Entry] = field(default_factory=dict)
    evidence: dict[str, Entry] = field(default_factory=dict)
    deadlines: dict[str, list[Entry]] = field(default_factory=dict)
    starts: list[Entry] = field(default_factory=list)
    asides: list[Entry] = field(default_factory=list)

    def of(self, command: AnyCommand) -> Entry | None:
        """Return the entry that answers a command, or None."""
        if isinstance(command, Inspect):
            return self.evidence.get(command.target)
        return self.by_key.get(key_of(command))


def answers_of(run_id: str, entries: Iterable[Entry]) -> Answers:
    """Sort a recording's entries, given in order, by what they answer."""
    found = Answers(run_id)
    for entry in entries:
        if entry.kind == "deadline_passed":
            found.deadlines.setdefault(entry.target or "", []).append(entry)
        elif entry.kind == "evidence_taken":
            found.evidence.setdefault(entry.target or "", entry)
        elif entry.kind == "run_started":
            found.starts.append(entry)
        elif entry.kind in ("recalibrated", "config_changed"):
            found.asides.append(entry)
        elif entry.question is not None:
            first = found.by_key.get(entry.question.id)
            # A round that was resumed was prepared again; it began with the first.
            if first is None or first.kind != "round_prepared":
                found.by_key[entry.question.id] = entry
    return found


def next_answer(
    state: RunState, answers: Answers, redact: Callable[[Any], Any]
) -> tuple[AnyCommand | None, Entry]:
    """Return what happens next: a command that is on the book with its answer, or a deadline that it passed.

    Raises:
        NotRecorded: something on the book was not asked in the recorded run, or nothing is on it.
    """
    due: list[tuple[int, AnyCommand | None, Entry]] = []
    inspected = {one.target for one in state.outstanding.values() if isinstance(one, Inspect)}
    killing = set(state.round.killing) if state.round else set()
    for command in state.outstanding.values():
        entry = answers.of(command)
        if state.held and not isinstance(command, PrepareRound):
            continue  # a resume cleans up first
        if isinstance(command, Kill | Halt) or (isinstance(command, Inspect) and entry is None):
            continue  # they end with what they are about
        if entry is None:
            asked = question_of(command, redact)
            raise NotRecorded(
                f"the recording of {answers.run_id} has no answer to {asked}",
                hint="it was not asked then; was the run stopped there, or is this another version of sid?",
                data={
                    "question": asked.id,
                    "kind": asked.kind,
                    "agent": asked.agent,
                    "iteration": asked.iteration,
                },
            )
        due.append((entry.seq, command, entry))
        if command.id not in inspected | killing:
            due += [(one.seq, None, one) for one in answers.deadlines.get(command.id, [])[:1]]
    if not due:
        raise NotRecorded(f"the recording of {answers.run_id} ends here", hint="nothing is left to replay")
    return min(due, key=lambda one: one[0])[1:]


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
        data={"question": asked.id, "kind": asked.kind, "agent": asked.agent, "iteration": asked.iteration},
    )
