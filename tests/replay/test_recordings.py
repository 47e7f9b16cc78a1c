"""Recorded runs are made again in git, by today's code: every commit comes out as it was, and every decision.

Each `recordings/<name>.jsonl` is the recording of a real run, `<name>.base` the repository that it began in (for `git
fast-import`), `<name>.json` what was known of the run at its end. A change that breaks one of them makes users'
recordings worthless: mend the change. Only where a rule was changed on purpose, `tests/replay/keep.py` makes them anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.git.repository import discover
from sid_daemon.core.state import RunState
from sid_daemon.redaction import Redactor
from sid_daemon.replay.recorder import Recorder
from sid_daemon.replay.recording import Recording, read_recording
from sid_daemon.replay.redo import Redo
from sid_daemon.replay.replayer import Replayer, end_of
from sid_daemon.replay.tracks import created_again
from sid_daemon.runs.runstore import RunStore
from sid_daemon.runs.snapshots import fold
from sid_daemon.setup.baseline import record_creation
from sid_daemon.store.journal import Batch, Journal
from sid_protocol.errors import RecordingBroken
from sid_protocol.events import RunCreated, RunStarted, parse_event
from tests.conftest import MakeRepo
from tests.replay.test_golden import is_kept
from tests.repos import Repo

RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))
KEPT = ("plans/", "state/plan_archive/", "state/iteration_history/", "tracking/results.tsv")


def known(journal: Journal) -> dict[str, Any]:
    """Return what a replay must come to, wherever its repository lies."""
    state = fold(journal)
    assert state is not None
    found = {
        path: text.replace(state.repo, "REPO") for path, text in journal.documents() if path.startswith(KEPT)
    }
    documents = {path: json.loads(text) if path.endswith(".json") else text for path, text in found.items()}
    return {
        "status": state.status,
        "completed": state.completed,
        "best_score": state.best_score,
        "best_interval": state.best_interval and list(state.best_interval),
        "head": state.head,
        "counters": [state.plateau_count, state.breaker_count, state.blocked_count],
        "documents": documents,
    }


def base(name: str, repo: MakeRepo) -> Repo:
    """Return a new repository as a recording's began."""
    made = repo()
    made.git("fast-import", "--quiet", data=(RECORDINGS / f"{name}.base").read_text())
    return made


class Made:
    """A replay that has ended: its state and its log."""

    def __init__(
        self, state: RunState, journal: dict[str, Any], log: list[tuple[str, dict[str, Any]]]
    ) -> None:
        self.state = state
        self.known = journal
        self.log = log


async def set_up(recording: Recording, repo: Repo, root: Path, cap: int | None = None) -> RunCreated:
    """Make the track of a replay."""
    info = await discover(str(repo.path))
    began = recording.event(recording.entries[0])
    assert isinstance(began, RunCreated)
    created = created_again(began, recording.run_id, "replayreplay", info.top, root, "again")
    created = created.model_copy(
        update={"settings": created.settings.model_copy(update={"max_parallel_executors": cap})}
    )
    repo.git("branch", f"improve/{created.goal_slug}", created.baseline_commit)
    store = RunStore(root, root / "copy.db")
    await store.open()
    await record_creation(store, None, created, None)
    await store.close()
    return created


async def go_on(recording: Recording, created: RunCreated, stop_at: int | None = None) -> Made:
    """Start a replay, or start it again, and return once it has ended.

    Args:
        recording: What is replayed.
        created: Its track.
        stop_at: The user stops it when so many log records are told.
    """
    store = RunStore(Path(created.root), Path(created.root) / "copy.db")
    state = await store.open()
    assert state is not None
    log: list[tuple[str, dict[str, Any]]] = []
    enough = trio.Event()

    def emit(_level: str, event: str, /, **fields: Any) -> None:
        log.append((event, fields))
        if len(log) == stop_at:
            enough.set()

    done = await store.read(lambda journal: journal.times())
    redo = Redo(await discover(created.repo), recording, lambda: created.settings)
    replayer = Replayer(state, store, redo, emit, recording, Redactor(), end_of(recording), done)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replayer.run, RunStarted(settings=created.settings))
            if stop_at is not None:
                await enough.wait()
                await replayer.stop(now=False)
    journal = Journal(Path(created.root) / "state/run.db")
    found = known(journal)
    journal.close()
    return Made(replayer.state, found, log)


async def made_again(recording: Recording, repo: Repo, root: Path, cap: int | None = None) -> Made:
    """Replay a recording in a repository, to its end."""
    return await go_on(recording, await set_up(recording, repo, root, cap))


def check(name: str, again: Made) -> None:
    """Check that a replay came to what was known of its run."""
    then = json.loads((RECORDINGS / f"{name}.json").read_text())
    for key, value in then.items():
        assert is_kept(value, again.known[key]), (
            f"{key} was {value}, is {again.known[key]}: {again.state.reason}"
        )


def test_there_are_recordings() -> None:
    assert len(NAMES) >= 2


@pytest.mark.parametrize("cap", [None, 1])
@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_run_comes_out_the_same(
    name: str, cap: int | None, repo: MakeRepo, short_dir: Path
) -> None:
    recording = read_recording(RECORDINGS / f"{name}.jsonl")
    made = base(name, repo)

    again = await made_again(recording, made, short_dir / "root", cap)

    check(name, again)
    slug = again.state.goal_slug
    assert made.git("rev-parse", f"improve/{slug}") == again.known["head"]
    assert made.git("fsck", "--no-dangling", "--connectivity-only") == ""


@pytest.mark.parametrize("stop_at", [3, 30])
async def test_a_replay_that_was_stopped_goes_on(stop_at: int, repo: MakeRepo, short_dir: Path) -> None:
    recording = read_recording(RECORDINGS / "eventful.jsonl")
    created = await set_up(recording, base("eventful", repo), short_dir / "root")

    first = await go_on(recording, created, stop_at)
    assert first.state.status == "user_stopped"
    assert first.state.completed < 3
    check("eventful", await go_on(recording, created))


async def test_a_question_that_was_not_asked_is_named(repo: MakeRepo, short_dir: Path) -> None:
    recording = read_recording(RECORDINGS / "eventful.jsonl")
    lost = "r2.plan.planner_b.1"
    recording.entries = [one for one in recording.entries if not (one.question and one.question.id == lost)]

    again = await made_again(recording, base("eventful", repo), short_dir / "root")

    assert again.state.status == "failed"
    assert again.state.completed == 1, "what was recorded is made again until then"
    why = f"the recording of {recording.run_id} has no answer to round 2, draft plan of planner_b ({lost})"
    assert again.state.reason == why
    assert ("run_ended", why) in [(event, fields.get("reason")) for event, fields in again.log]


async def test_an_answer_to_another_plan_is_not_taken(repo: MakeRepo, short_dir: Path) -> None:
    recording = read_recording(RECORDINGS / "eventful.jsonl")
    for index, entry in enumerate(recording.entries):
        if entry.question and entry.question.id == "r1.judge.planner_a.1":
            asked = replace(entry.question, digest="0" * 64)
            recording.entries[index] = replace(entry, question=asked)

    again = await made_again(recording, base("eventful", repo), short_dir / "root")

    assert again.state.status == "failed"
    assert "answers another question than round 1, judge plan of critic" in (again.state.reason or "")


async def test_edits_that_give_another_tree_are_not_taken(repo: MakeRepo, short_dir: Path) -> None:
    recording = read_recording(RECORDINGS / "eventful.jsonl")
    entry = next(one for one in recording.entries if one.kind == "candidate_committed")
    assert entry.commit is not None
    told = recording.value(entry.commit)
    told["edits"] = told["edits"][1:]

    again = await made_again(recording, base("eventful", repo), short_dir / "root")

    assert again.state.status == "failed"
    assert f"commit {told['id']} names another" in (again.state.reason or "")


def _first_object(lines: list[str]) -> int:
    return next(
        index
        for index, line in enumerate(lines)
        if line.startswith('{"object"') and '"kind":"plan_drafted"' in line
    )


def _changed_object(lines: list[str]) -> list[str]:
    index = _first_object(lines)
    head, value = lines[index].split('"value":', 1)
    return [*lines[:index], f'{head}"value":{value.replace("plan", "plam", 1)}', *lines[index + 1 :]]


def _changed_entry(lines: list[str]) -> list[str]:
    return [line.replace('"attempt":2', '"attempt":1') for line in lines]


def _left_out(lines: list[str]) -> list[str]:
    index = [number for number, line in enumerate(lines) if line.startswith('{"entry"')][3]
    return [*lines[:index], *lines[index + 1 :]]


def _put_in(lines: list[str]) -> list[str]:
    index = [number for number, line in enumerate(lines) if line.startswith('{"entry"')][3]
    return [*lines[: index + 1], *lines[index:]]


def _object_left_out(lines: list[str]) -> list[str]:
    index = _first_object(lines)
    return [*lines[:index], *lines[index + 1 :]]


def _no_json(lines: list[str]) -> list[str]:
    return [*lines[:5], "junk", *lines[6:]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_changed_object, "is not what was recorded"),
        (_changed_entry, "planner_b"),
        (_object_left_out, r"the answer to round 1, draft plan of planner_\w+ \(.*\) is not whole"),
        (_left_out, "the entry of"),
        (_put_in, "the entry of"),
        (_no_json, "line 6 is no JSON"),
    ],
)
def test_a_changed_recording_is_refused_by_name(
    short_dir: Path, change: Callable[[list[str]], list[str]], says: str
) -> None:
    path = short_dir / "changed.jsonl"
    lines = (RECORDINGS / "eventful.jsonl").read_text().splitlines()
    path.write_text("\n".join(change(lines)) + "\n")

    with pytest.raises(RecordingBroken, match=says) as caught:
        read_recording(path)

    assert "changed.jsonl: " in caught.value.message
    assert "bring back the file" in caught.value.hint


# ------------------------------------------------------------------------------------ how a recording is kept

SECRET = "correct-horse-battery"


def journal_of(path: Path, *, secret: str = "") -> Journal:
    """Return a journal that tells a golden story; a secret stands in what the benchmark printed."""
    journal = Journal(path)
    for line in (RECORDINGS.parent / "golden/eventful.jsonl").read_text().splitlines():
        event = parse_event(line)
        if secret and event.kind == "run_measured":
            event = event.model_copy(
                update={"raw": f"key {secret}\nhttps://ada:{secret}@host.invalid/x\n1.0"}
            )
        journal.append(Batch(((event.at, event.kind, event.model_dump_json()),), {}))
    return journal


def test_a_recording_holds_no_secret_and_is_the_owners_alone(short_dir: Path) -> None:
    path = short_dir / "recordings/run.jsonl"
    journal = journal_of(short_dir / "run.db", secret=SECRET)

    Recorder(path, short_dir, Redactor([SECRET])).update(journal)

    text = path.read_text()
    assert "run_measured" in text
    assert "key ***" in text
    assert SECRET not in text
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    journal.close()


def test_a_recording_follows_its_journal(short_dir: Path) -> None:
    path = short_dir / "run.jsonl"
    journal = journal_of(short_dir / "run.db")
    recorder = Recorder(path, short_dir, Redactor())
    recorder.update(journal)
    whole = path.read_bytes()
    recorder.update(journal)
    assert path.read_bytes() == whole, "nothing is written twice"

    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]) + b'{"torn')  # a crash in the middle of a line
    read_recording(path)
    Recorder(path, short_dir, Redactor()).update(journal)
    assert path.read_bytes() == whole, "what a crash kept from it is written at the next update"

    other = journal_of(short_dir / "other.db", secret="another story")
    Recorder(path, short_dir, Redactor()).update(other)
    assert b"another story" in path.read_bytes(), "a recording of another journal is written anew"
    assert read_recording(path).entries
    journal.close()
    other.close()


def test_what_holds_a_key_is_told_from_a_program_that_names_one() -> None:
    redactor = Redactor([SECRET])
    assert redactor.holds_secret(f"a = '{SECRET}'")
    assert redactor.holds_secret("sk-" + "a1" * 12)
    assert not redactor.holds_secret("TOKEN = read_token()"), "a program may well name one"
