"""Keeps the recording of a run: whatever its journal tells, with the commits that it names and without secrets.

Called by the run's store after each batch, when `record` is on. The journal is the truth and the recording follows
it: what a crash kept from being written, or what happened before `record` was set, is written at the next batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sid_actors.git.rebuilding import take_down
from sid_daemon.core.creation import carried_over
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.redaction import E, Redactor
from sid_daemon.replay.questions import question_of
from sid_daemon.replay.recording import (
    Entry,
    Recording,
    append_lines,
    canonical,
    digest_of,
    file_object,
    read_recording,
)
from sid_daemon.store.journal import Journal
from sid_protocol.commands import AnyCommand, RunPlan
from sid_protocol.errors import GitError, RecordingBroken
from sid_protocol.events import (
    AgentKilled,
    AnyEvent,
    BranchAdvanced,
    CandidateCommitted,
    CandidateRefused,
    DeadlinePassed,
    EvidenceTaken,
    RunCreated,
    parse_event,
)

WITHHELD = {"withheld": "it holds a secret"}
"""Stands for a file that held one: a file without its secret would be another file."""


def recording_path(state_dir: Path, run_id: str) -> Path:
    """Return where the recording of a run lies."""
    return state_dir / "recordings" / f"{run_id}.jsonl"


def redacted(redactor: Redactor) -> Callable[[Any], Any]:
    """Return what takes secrets out of a JSON value, texts whole."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redactor.text(value)
        if isinstance(value, dict):
            return {key: clean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [clean(inner) for inner in value]
        return value

    return clean


class Recorder:
    """Writes one run's recording.

    Args:
        path: Its file.
        common_dir: The repository's git directory.
        redactor: Takes secrets out.
    """

    def __init__(self, path: Path, common_dir: Path, redactor: Redactor) -> None:
        self._path = path
        self._common_dir = str(common_dir)
        self._redactor = redactor
        self._redact = redacted(redactor)
        self._recording: Recording | None = None
        self._state: RunState | None = None
        self._seen = 0

    def without_secrets(self, event: E) -> E:
        """Return an event as the journal may hold it."""
        return self._redactor.event(event)

    def update(self, journal: Journal) -> None:
        """Bring the recording up to the journal, durably; blocks.

        Raises:
            StoreError: it could not be written; the next update writes it.
        """
        if self._recording is None:
            self._recording = self._begun(journal)
            self._recording.let_go()
            self._state, self._seen = None, 0
        recording = self._recording
        known = recording.entries[-1].seq if recording.entries else 0
        try:
            text = ""
            for seq, body in journal.events_after(self._seen):
                text = self._take(recording, seq, body, known, text)
            if text:
                append_lines(recording, text)
        except BaseException:
            self._recording = None  # read and folded anew next time
            raise

    def _begun(self, journal: Journal) -> Recording:
        """Return the recording as it is on the disk, or a new one where that is not of this journal."""
        try:
            found = read_recording(self._path)
        except (FileNotFoundError, RecordingBroken):
            return Recording(self._path, "")
        last = found.entries[-1] if found.entries else None
        if last is None:
            return Recording(self._path, "")
        recorded = next(journal.events_after(last.seq - 1), None)
        same = recorded is not None and self._answer(parse_event(recorded[1]))[0] == last.answer
        return found if same else Recording(self._path, "")

    def _answer(self, event: AnyEvent) -> tuple[str, Any]:
        value = self._redact(event.model_dump(mode="json"))
        return digest_of(canonical(value)), value

    def _take(self, recording: Recording, seq: int, body: str, known: int, lines: str) -> str:
        """Fold one event, and return the lines so far with those that record it."""
        before, event = self._state, parse_event(body)
        command = before.outstanding.get(event.cause) if before is not None and event.cause else None
        self._state, _ = step(before, event)
        self._seen = seq
        if seq <= known or (event.cause and command is None):  # written already, or it changed nothing
            return lines
        if isinstance(event, RunCreated):  # again after another `init`: what was planned against is gone
            event = _carrying(event, before, self._state)
            lines = recording.restart(event.run_id)
        key, value = self._answer(event)
        written = self._commit(command, event)
        entry = Entry(
            seq=seq,
            kind=event.kind,
            answer=key,
            question=question_of(command, self._redact) if command is not None else None,
            commit=digest_of(canonical(written[0])) if written else None,
            target=event.target if isinstance(event, DeadlinePassed | EvidenceTaken) else None,
        )
        return lines + recording.add(entry, [value, *written])

    def _commit(self, command: AnyCommand | None, event: AnyEvent) -> list[Any]:
        """Return a candidate's or a merge's commit and the files that it brings, as JSON values."""
        match event:
            case CandidateCommitted() | CandidateRefused() | AgentKilled():
                commit = event.commit
            case BranchAdvanced():
                commit = event.commit
            case _:
                return []
        if commit is None:
            return []
        base = command.base if isinstance(command, RunPlan) else None
        try:
            written, contents = take_down(self._common_dir, commit, base)
        except GitError:  # deleted since by the user; a replay that needs it says so
            return []
        files = {key: self._file(data) for key, data in contents.items()}
        told = asdict(written)
        told["edits"] = [
            {**edit, "content": digest_of(canonical(files[edit["content"]])) if edit["content"] else None}
            for edit in told["edits"]
        ]
        return [self._redact(told), *files.values()]

    def _file(self, data: bytes) -> Any:
        if self._redactor.holds_secret(data.decode("utf-8", "replace")):
            return WITHHELD
        return file_object(data)


def _carrying(event: RunCreated, before: RunState | None, after: RunState) -> RunCreated:
    """Return the event that makes a run, with what a second `init` kept of the time before, and without its places."""
    event = event.model_copy(update={"repo": "", "root": ""})  # a replay has its own
    if before is None:
        return event
    return event.model_copy(update={"carried_over": carried_over(after)})
