"""A recording: what a run was asked and answered, in one file whose every word is held to its digest.

`<state>/recordings/<run id>.jsonl`. A line is either an object, kept once under the SHA-256 of its content (an
answer, a commit, a file of an edit), or an entry: what was asked, and which objects answer it. Each entry holds the
digest of all that stands before it, so nothing can be changed, left out or put in unnoticed. `Recorder` writes it,
a replay reads it. Blocking; called in worker threads. Knows neither git nor the run's journal.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sid_protocol.errors import RecordingBroken, StoreError
from sid_protocol.events import AnyEvent, parse_event

VERSION = 1


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked.

    Attributes:
        id: The command's id, without what another start would change in it.
        kind: The command's kind, such as `draft_plan`.
        iteration: The round.
        agent: Who was asked, such as `planner_b`; for a benchmark run, its arm.
        attempt: 1, or 2 for a repeated turn.
        digest: SHA-256 of all else that was asked: plan, base, tree.
    """

    id: str
    kind: str
    iteration: int
    agent: str = ""
    attempt: int = 1
    digest: str = ""

    def __str__(self) -> str:
        """Return the question in a few words, for an error."""
        again = f", attempt {self.attempt}" if self.attempt > 1 else ""
        who = f" of {self.agent}" if self.agent else ""
        return f"round {self.iteration}, {self.kind.replace('_', ' ')}{who}{again} ({self.id})"


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of the run.

    Attributes:
        seq: Its number in the run's journal; numbers rise.
        kind: The event's kind.
        answer: Digest of the event.
        question: What it answers; None for what came from outside.
        commit: Digest of the commit that it names, where it is a candidate's or a merge's.
        target: The command that a deadline or an inspection was about.
    """

    seq: int
    kind: str
    answer: str
    question: Question | None = None
    commit: str | None = None
    target: str | None = None


def canonical(value: Any) -> str:
    """Return a JSON value in the one form that digests are taken of; keys stay in their order, as in a plan."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(text: str) -> str:
    """Return the SHA-256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_object(data: bytes) -> dict[str, str]:
    """Return a file's content as a JSON value."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def file_content(value: Mapping[str, str]) -> bytes:
    """Return what `file_object` was made of."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["base64"])


@dataclass(slots=True)
class Recording:
    """A recording as it was read, or as it grows.

    Attributes:
        path: Its file.
        run_id: The run that was recorded.
        entries: In the order in which things happened.
        chain: Digest of all entries so far.
        size: Bytes of the file up to here.
        keeps: Whether objects are held in memory; a writer needs to know their digests only.
    """

    path: Path
    run_id: str
    entries: list[Entry] = field(default_factory=list)
    chain: str = ""
    size: int = 0
    keeps: bool = True
    _objects: dict[str, Any] = field(default_factory=dict)

    def let_go(self) -> None:
        """Hold no object in memory from now on."""
        self.keeps = False
        self._objects = dict.fromkeys(self._objects)

    def restart(self, run_id: str) -> str:
        """Forget everything and begin anew; return the file's first line."""
        head = {"recording": VERSION, "run_id": run_id}
        self.run_id, self.chain, self.size = run_id, digest_of(canonical(head)), 0
        self.entries, self._objects = [], {}
        return canonical(head) + "\n"

    def add(self, entry: Entry, objects: Iterable[Any]) -> str:
        """Add an entry with the objects that it needs; return the lines to write."""
        lines = []
        for value in objects:
            text = canonical(value)
            key = digest_of(text)
            if key not in self._objects:
                self._objects[key] = value if self.keeps else None
                lines.append(f'{{"object":"{key}","value":{text}}}\n')
        told = {key: value for key, value in asdict(entry).items() if value is not None}
        self.chain = digest_of(self.chain + canonical(told))
        self.entries.append(entry)
        lines.append(canonical({"entry": told, "chain": self.chain}) + "\n")
        return "".join(lines)

    def value(self, key: str) -> Any:
        """Return the object of a digest that an entry names."""
        return self._objects[key]

    def event(self, entry: Entry) -> AnyEvent:
        """Return the event of an entry."""
        return parse_event(canonical(self.value(entry.answer)))

    def lacks(self, entry: Entry) -> bool:
        """Say whether an object that an entry needs is not there."""
        needed = {entry.answer}
        if entry.commit is not None:
            written = self._objects.get(entry.commit) or {"edits": []}
            needed |= {entry.commit, *(edit["content"] for edit in written["edits"] if edit["content"])}
        return not self._objects.keys() >= needed


def broken(path: Path, why: str) -> RecordingBroken:
    """Return the error of a file that is not as it was written."""
    return RecordingBroken(f"{path}: {why}", hint="the recording was changed; bring back the file as it was")


def read_recording(path: Path) -> Recording:
    """Read a recording and check every digest in it; what a crash cut off at its end is left out.

    Raises:
        FileNotFoundError: there is none.
        RecordingBroken: something in it was changed.
        StoreError: it cannot be read, or is of a newer version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}", hint="mend it") from error
    lines = data.split(b"\n")[:-1]
    head = _parsed(path, 1, lines[0]) if lines else {}
    if head.get("recording", VERSION) != VERSION:
        raise StoreError(f"{path} was written by another version of sid", hint="replay it with that version")
    found = Recording(path, str(head.get("run_id", "")), chain=digest_of(canonical(head)))
    for number, line in enumerate(lines[1:], 2):
        _take(found, number, _parsed(path, number, line))
    found.size = sum(len(line) + 1 for line in lines)
    return found


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        raise broken(path, f"line {number} is no JSON") from None
    if not isinstance(value, dict):
        raise broken(path, f"line {number} is no object")
    return value


def _take(found: Recording, number: int, line: dict[str, Any]) -> None:
    try:
        if "object" in line:
            if digest_of(canonical(line["value"])) != line["object"]:
                raise broken(
                    found.path, f"line {number}: object {line['object'][:12]} is not what was recorded"
                )
            found._objects[line["object"]] = line["value"]  # noqa: SLF001 - the same module
            return
        told = dict(line["entry"])
        chain = digest_of(found.chain + canonical(told))
        question = Question(**told.pop("question")) if "question" in told else None
        entry = Entry(**told, question=question)
        if chain != line["chain"]:
            asked = entry.question or entry.kind
            raise broken(found.path, f"line {number}: the entry of {asked} is not what was recorded")
    except (KeyError, TypeError, ValueError):
        raise broken(found.path, f"line {number} is neither an object nor an entry") from None
    if found.lacks(entry):
        raise broken(found.path, f"the answer to {entry.question or entry.kind} is not whole")
    found.chain = chain
    found.entries.append(entry)


def append_lines(recording: Recording, text: str) -> None:
    """Add lines to a recording's file durably, over what a crash may have left after its last whole line.

    Raises:
        StoreError: they could not be written.
    """
    path = recording.path
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(recording.size)
            file.seek(recording.size)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}", hint="free some space or fix the permissions"
        ) from error
    recording.size += len(text.encode())
