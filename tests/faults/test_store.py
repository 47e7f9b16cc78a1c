"""The journal where its surroundings are bad: taken away, damaged, cut off; and its copy, which grows with it."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sid_daemon.layout import RAW_DATA, RESULTS
from sid_daemon.runs.runstore import RunStore
from sid_daemon.runs.snapshots import FOLDED_MOST, STATE_VERSION, dump_state
from sid_daemon.store.databases import copy_database
from sid_daemon.store.documents import direction_entry, render_list
from sid_daemon.store.journal import SCHEMA, Batch, Journal
from sid_daemon.store.kill_file import KillFile
from sid_daemon.store.lesson_files import LessonFiles
from sid_daemon.store.registry import Registry
from sid_daemon.store.views import Projection, project
from sid_protocol.errors import StoreError
from sid_protocol.events import RunStopped
from sid_protocol.settings import Settings
from tests.core.play import Play, World, created, played


@pytest.fixture
def journal(short_dir: Path) -> Iterator[Journal]:
    opened = Journal(short_dir / "root/state/run.db")
    yield opened
    opened.close()


def batch(number: int, **more: object) -> Batch:
    events = ((f"2025-01-01T00:00:{number:02}Z", "note", f'{{"n": {number}}}'),)
    return Batch(events, {f"doc{number % 3}": f"text {number}"}, ((RESULTS, f"entry {number}"),), **more)  # type: ignore[arg-type]  # a test names the fields it changes


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def test_a_copy_grows_with_its_database(journal: Journal, short_dir: Path) -> None:
    copy = short_dir / "copies/run.db"
    for number in range(1, 8):
        journal.append(batch(number, snapshot=(1, f"state {number}")))
        if number != 3:
            journal.copy_to(copy)
            assert dump(copy) == dump(journal.path)
    assert [path.name for path in copy.parent.iterdir()] == ["run.db"], "a copy is one file"


@pytest.mark.parametrize("what", ["another run", "newer", "damaged", "no database", "empty"])
def test_what_is_no_copy_is_replaced(journal: Journal, short_dir: Path, what: str) -> None:
    copy = short_dir / "copies/run.db"
    journal.append(batch(1))
    journal.copy_to(copy)
    match what:
        case "another run" | "newer":
            other = Journal(short_dir / "other/run.db")
            for number in (9, 8) if what == "another run" else (1, 2):
                other.append(batch(number))
            other.copy_to(copy.with_name("x"))
            copy.with_name("x").replace(copy)
            other.close()
        case "damaged":
            copy.write_bytes(copy.read_bytes()[:5000] + b"\xff" * 5000)
        case "no database":
            copy.write_text("not a database, but as long as the head of one: " * 100)
        case _:
            copy.write_bytes(b"")
    journal.append(batch(3))
    journal.copy_to(copy)
    assert dump(copy) == dump(journal.path)


def test_a_database_that_was_taken_away_is_put_back_whole(journal: Journal) -> None:
    for number in range(1, 4):
        journal.append(batch(number))
    for path in journal.path.parent.iterdir():
        path.unlink()
    journal.path.parent.rmdir()
    assert not journal.is_in_place

    journal.put_back()
    journal.append(batch(4))

    assert journal.is_in_place
    assert [seq for seq, _ in journal.events_after(0)] == [1, 2, 3, 4]
    again = Journal(journal.path)
    assert again.seq == 4
    again.close()


def test_a_second_daemon_on_the_same_run_is_named_and_nothing_is_damaged(journal: Journal) -> None:
    journal.append(batch(1))
    second = Journal(journal.path)
    second.append(batch(2))
    with pytest.raises(StoreError, match="another daemon goes on with this run") as raised:
        journal.append(batch(3))
    assert "move it away" not in raised.value.hint
    assert [seq for seq, _ in second.each_event()] == [1, 2]
    assert second.damage() == []
    second.close()


async def test_damage_at_a_random_place_is_told_clearly_or_does_no_harm(short_dir: Path) -> None:
    root = short_dir / "root"
    store = RunStore(root, short_dir / "copy.db")
    await store.open()
    play = played(Settings(number_of_agents=2, max_iterations=2, benchmark_command="b"))
    for before, event, after in play.steps:
        await store.commit([event], project(before, event, after), None)
    await store.close()
    path = root / "state/run.db"
    whole, random_ = path.read_bytes(), random.Random(7)
    hints: list[str] = []
    closed: list[bool] = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(random_.choice((1, 8, 64))):
            data[random_.randrange(len(data))] = random_.randrange(256)
        path.write_bytes(data)
        for side in ("-wal", "-shm"):
            path.with_name(f"run.db{side}").unlink(missing_ok=True)
        damaged = RunStore(root, short_dir / "copy.db")
        try:
            await damaged.open()
        except StoreError as error:
            hints.append(error.hint)
            closed.append(damaged.is_closed)
        await damaged.close()
    assert hints, "nothing was ever damaged"
    assert all(closed)
    assert all("copy" in hint or "sid" in hint for hint in hints), hints


async def test_a_journal_stays_open_for_who_reads_it(short_dir: Path) -> None:
    store = RunStore(short_dir / "root", short_dir / "copy.db")
    await store.open()
    async with store.lent():
        await store.close()
        assert await store.read(lambda journal: list(journal.entries(RESULTS))) == []
    assert store.is_closed


async def test_a_state_that_took_long_to_fold_is_kept(short_dir: Path) -> None:
    """As after an upgrade, whose snapshots are of another shape: the next look does not fold everything again."""
    root, first = short_dir / "root", created(Settings(benchmark_command="b"))
    journal = Journal(root / "state/run.db")
    begun, stopped = ((one.at, one.kind, one.model_dump_json()) for one in (first, EVENT))
    journal.append(Batch((begun, *[stopped] * FOLDED_MOST), {}, snapshot=(STATE_VERSION - 1, "{}")))
    journal.close()

    store = RunStore(root, short_dir / "copy.db")
    state = await store.open()
    assert state is not None
    kept = await store.read(lambda journal: journal.newest_snapshot(STATE_VERSION))
    await store.close()

    assert kept == (FOLDED_MOST + 1, dump_state(state))


EVENT = RunStopped(at="2025-01-01T00:00:00Z")


def killed() -> Play:
    """Return a run of one round with a force-kill."""
    play = Play(World(Settings(number_of_agents=2, max_iterations=1, benchmark_command="b")))
    play.start()
    play.run(hold="run_plan")
    play.hang("r1.run.executor_1.0.1")
    play.run()
    return play


def rows(*numbers: int) -> Projection:
    row = '{{"iteration": {}}}'.format
    return Projection(
        {f"state/{number}.json": f"{number}\n" for number in numbers},
        tuple(entry for n in numbers for entry in ((RAW_DATA, row(n)), (RESULTS, f"{n}\tkeep"))),
    )


def texts(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*.*")
        if not path.name.startswith("run.db")
    }


async def test_lists_that_grow_are_as_if_written_whole(short_dir: Path) -> None:
    root = short_dir / "root"
    store = RunStore(root, short_dir / "copy.db")
    await store.open()
    await store.commit([EVENT], Projection(entries=((RESULTS, direction_entry("lower_is_better")),)), None)
    for number in range(1, 7):
        if number == 4:  # an edit is ignored: what the journal says comes back
            (root / RAW_DATA).write_text("[]\n")
            (root / RESULTS).unlink()
        await store.record([EVENT], rows(number), None)
        if number != 5:  # else it comes with the next
            assert await store.show() == []
            for file in (RAW_DATA, RESULTS):
                whole = render_list(file, store.journal.entries(file))
                assert (root / file).read_text() == whole
    await store.close()
    assert not list(root.rglob("*.new"))


async def test_views_that_a_crash_left_unwritten_are_written_at_the_next_start(short_dir: Path) -> None:
    root = short_dir / "root"
    store = RunStore(root, short_dir / "copy.db")
    await store.open()
    steps = played(Settings(number_of_agents=2, max_iterations=2, benchmark_command="b")).steps
    for number, (before, event, after) in enumerate(steps):
        await store.record([event], project(before, event, after), None)
        if number == len(steps) // 2:
            await store.show()
    await store.close()
    late = root / "state/iteration_history/round_2.json"
    assert not late.exists()
    for path in (
        late,
        root / RAW_DATA,
        root / "config/settings.json",
    ):  # the crash came in the middle of writing these
        path.parent.mkdir(exist_ok=True)
        path.with_name(f".{path.name}.7-1.new").write_text("half of i")

    again = RunStore(root, short_dir / "copy.db")
    await again.open()
    await again.catch_up()
    shown = texts(root)
    assert not [path for path in shown if path.endswith(".new")]
    await again.export()
    assert texts(root) == shown
    assert json.loads(late.read_text())["iteration"] == 2
    await again.close()


async def of_three_rows(short_dir: Path) -> tuple[RunStore, dict[str, str]]:
    """Return the store of a run with three rows, whose copy has two of them, and what its files say."""
    store = RunStore(short_dir / "root", short_dir / "copy.db")
    await store.open()
    for number in (1, 2, 3):
        await store.commit([EVENT if number > 1 else created(Settings())], rows(number), None)
        if number == 2:
            store.journal.copy_to(store.copy_path)
    await store.export()
    return store, texts(store.root)


async def after_a_crash(store: RunStore) -> dict[str, str]:
    """Return what the files say once the next daemon has caught up."""
    again = RunStore(store.root, store.copy_path)
    await again.open()
    await again.catch_up()
    await again.close()
    return texts(store.root)


async def test_files_of_a_root_that_was_put_back_survive_a_crash_before_they_are_written(
    short_dir: Path,
) -> None:
    store, _ = await of_three_rows(short_dir)
    shutil.rmtree(store.root)
    store.root.mkdir()
    await store.record([EVENT], rows(4), None)
    await store.close()
    assert sorted(await after_a_crash(store)) == sorted(
        [RAW_DATA, RESULTS, "tracking/events.json", *(f"state/{number}.json" for number in (1, 2, 3, 4))]
    )


async def test_files_of_a_copy_that_was_brought_back_survive_a_crash_before_they_are_written(
    short_dir: Path,
) -> None:
    store, shown = await of_three_rows(short_dir)
    await store.close()
    shutil.rmtree(store.root)
    copy_database(store.copy_path, store.database, unshown=True)
    assert sorted(await after_a_crash(store)) == sorted(set(shown) - {"state/3.json"})


async def test_a_copy_that_tells_of_more_than_a_backup_is_kept_until_a_round_is_recorded(
    short_dir: Path,
) -> None:
    store, _ = await of_three_rows(short_dir)
    await store.close()
    shutil.copy(store.copy_path, short_dir / "backup.db")
    await store.open()
    await store.show(last=True)
    newest = dump(store.copy_path)
    assert newest == dump(store.database)
    await store.close()

    copy_database(short_dir / "backup.db", store.database)
    state = await store.open()
    other = EVENT.model_copy(update={"at": "2025-02-01T00:00:00Z"})
    await store.commit([other], rows(4), None)
    await store.show(last=True)
    assert dump(store.copy_path) == newest
    await store.commit([other], rows(5), state)
    assert dump(store.copy_path) == dump(store.database)
    await store.close()


async def test_an_export_that_is_cut_short_is_finished_at_the_next_start(short_dir: Path) -> None:
    store, shown = await of_three_rows(short_dir)
    (store.root / "state/3.json").unlink()
    blocked = store.root / "state/2.json"
    blocked.unlink()
    blocked.mkdir()
    with pytest.raises(StoreError, match=r"2\.json"):
        await store.export()
    await store.close()
    blocked.rmdir()
    (store.root / "state/.1.json.7-1.new").write_text("half of i")
    assert await after_a_crash(store) == shown


async def test_what_is_kept_across_runs_survives_a_crash_before_it_is_written(short_dir: Path) -> None:
    kills, lessons = short_dir / "IMPROVEMENTS.md", LessonFiles(short_dir)
    steps = killed().steps
    for whole in (True, False, False):
        shutil.rmtree(short_dir / "root", ignore_errors=True)
        store = RunStore(short_dir / "root", short_dir / "r.db", KillFile(kills), lessons=lessons)
        await store.open()
        for before, event, after in steps:
            await store.record([event], project(before, event, after), None)
        if whole:  # no crash: what is to be there
            await store.show()
            told, learned = kills.read_text(), (lessons.folder / "r.json").read_text()
            kills.unlink()
            (lessons.folder / "r.json").unlink()
        else:  # the second time all is told already
            await store.catch_up()
            assert kills.read_text() == told
            assert (lessons.folder / "r.json").read_text() == learned
        await store.close()
    assert told.count("agent executor_1") == 1


@pytest.mark.parametrize("version", range(1, len(SCHEMA)))
def test_a_journal_of_an_earlier_schema_is_brought_up(short_dir: Path, version: int) -> None:
    path, new = short_dir / "old.db", Journal(short_dir / "new.db")
    with closing(sqlite3.connect(path)) as old:
        for number in range(version):
            old.executescript(SCHEMA[number])
        old.execute(f"PRAGMA user_version={version}")
        for number in (1, 2, 3):
            new.append(batch(number, snapshot=(1, f"state {number}")))
        for table in ("events", "documents", "entries", "snapshots"):
            for row in sqlite3.connect(new.path).execute(f"SELECT * FROM {table}"):
                old.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
        old.commit()
    brought = Journal(path)
    assert brought.seq == 3
    assert brought.unshown_documents() == [("doc0", "text 3")], (
        "an earlier sid wrote all but the last batch's"
    )
    brought.append(batch(4))
    new.append(batch(4))
    new.shown = brought.shown
    new.append(batch(5))
    brought.append(batch(5))
    brought.close()
    new.close()
    assert dump(path) == dump(new.path)


ROUNDS = 2


def untold(root: Path) -> list[str]:
    """Return what the files that tell of others name and a reader does not find at this instant."""

    def read(path: str) -> Any:
        return json.loads((root / path).read_text()) if (root / path).exists() else {}

    now, counted = read("state/iteration_state.json"), read("state/agent-settings.json")
    if not now or not counted:
        return []
    number, done = now["iteration"], now["status"] == "completed"
    parts = [now["research"], *now["planning"]["plans"].values(), *now["execution"]["executors"].values()]
    named = [part["output_path"] for part in parts] + [now["recording"]["history_path"]]
    last = counted["iterations"]
    named += [f"state/{kind}/round_{last}.json" for kind in ("iteration_history", "merge_reports") if last]
    lost = [path for path in named if path and not (root / path).exists()]
    # With the counters of the last one comes the run's end, which waits for it.
    if done and last < number < ROUNDS:
        lost.append(f"the counters of round {number}")
    if done and not {number} <= {row["iteration"] for row in read(RAW_DATA)}:
        lost.append(f"raw data of round {number}")
    if done and f"\n{number}\t" not in (root / RESULTS).read_text():
        lost.append(f"results of round {number}")
    if counted["status"] not in ("running", "paused", "idle") and now["status"] == "in_progress":
        lost.append("the end of the round with which the run ended")
    return lost


@pytest.mark.parametrize("at_once", [1, 3, 1000])
async def test_files_never_tell_of_what_is_not_there_yet(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    root, rename = short_dir / "root", os.replace
    seen: list[str] = []

    def look_after(old: Path, new: Path) -> None:
        rename(old, new)
        seen.extend(f"{new.name}: {lost}" for lost in untold(root))

    monkeypatch.setattr(os, "replace", look_after)
    store = RunStore(root, short_dir / "copy.db")
    await store.open()
    steps = played(Settings(number_of_agents=2, max_iterations=ROUNDS, benchmark_command="b")).steps
    for number, (before, event, after) in enumerate(steps, 1):
        await store.record([event], project(before, event, after), None)
        if number % at_once == 0:
            assert await store.show() == []
    await store.show()
    for path in (root / "tracking", root / "plans", *(p for p in root.glob("state/*") if p.is_dir())):
        shutil.rmtree(path)
    (root / "state/iteration_state.json").unlink()
    await store.export()
    await store.close()
    assert seen == []


def test_a_registry_of_a_newer_sid_is_left_alone(short_dir: Path) -> None:
    path = short_dir / "sid.db"
    Registry(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="written by a newer sid") as caught:
        Registry(path)
    assert "SID_STATE_DIR" in caught.value.hint
    assert path.read_bytes() == before


def test_a_registry_that_is_full_or_damaged_says_what_to_do(short_dir: Path) -> None:
    registry = Registry(short_dir / "sid.db")
    registry._db.execute("PRAGMA max_page_count = 1")  # as where the disk is full
    with pytest.raises(StoreError, match=r"sid\.db: database or disk is full") as caught:
        registry.trust("/repo", "x" * 100_000, "now")
    assert "free some space" in caught.value.hint
    registry.close()
    (short_dir / "sid.db").write_bytes(b"no database at all\n" * 100)
    with pytest.raises(StoreError, match="damaged") as caught:
        Registry(short_dir / "sid.db")
    assert "sictl start REPO" in caught.value.hint


async def test_a_run_that_a_newer_sid_went_on_with_is_left_alone(short_dir: Path) -> None:
    store = RunStore(short_dir / "root", short_dir / "copy.db")
    await store.open()
    event = created(Settings(benchmark_command="b"))
    await store.commit([event], Projection(), None)
    await store.read(lambda journal: journal.append(Batch((), {}, snapshot=(STATE_VERSION + 1, "{}"))))
    await store.close()
    with pytest.raises(StoreError, match="written by a newer sid"):
        await store.open()
    assert store.is_closed
