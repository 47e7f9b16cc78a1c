"""The machine dies: whatever of the store's writes a disk then holds, nothing that was promised is lost."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from sid_daemon.runs.runstore import RunStore
from sid_daemon.store.journal import Journal
from tests.faults.harness import TOP
from tests.faults.power import TRACED, Disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def traced(folder: Path) -> Path:
    """Record a run under strace; returns the trace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed: 'apt-get install strace'")
    trace = folder.with_suffix(".trace")
    spy = ["strace", "-f", "-y", "-xx", "-s", "9999999", "-e", f"trace={TRACED}", "-o", str(trace)]
    argv = [*spy, sys.executable, "-m", "tests.faults.power", str(folder)]
    done = subprocess.run(argv, cwd=TOP, check=False, capture_output=True)
    if b"ptrace" in done.stderr and b"not permitted" in done.stderr:
        pytest.skip("this machine does not let processes be traced")
    assert done.returncode == 0, done.stderr.decode()
    return trace


def laid_out(files: dict[str, bytes], source: Path, target: Path) -> None:
    """Make a folder of what a disk holds."""
    for path, content in files.items():
        place = target / Path(path).relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


async def events_after_power_cut(folder: Path) -> list[str]:
    """Start on what is left, as the daemon does, check it, and return the journal's events."""
    for view in (folder / "root").rglob("[!.]*.json"):
        json.loads(view.read_text())
    store = RunStore(folder / "root", folder / "state/run.db")
    try:
        await store.open()
        events = await store.read(lambda journal: [body for _, body in journal.events_after(0)])
        assert await store.read(lambda journal: journal.damage()) == []
        await store.catch_up()
        caught_up = views(folder / "root")
        await store.export()
        assert views(folder / "root") == caught_up, "a view that was lost was not written again"
    finally:
        with trio.move_on_after(60, shield=True):
            await store.close()
    copy = folder / "state/run.db"
    if copy.exists():
        kept = Journal(copy)
        assert [body for _, body in kept.events_after(0)] == events[: kept.seq]
        kept.close()
    return events


def views(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*.*")
        if not path.name.startswith(("run.db", "."))
    }


async def test_a_power_cut_after_any_flush_loses_nothing_that_was_promised(short_dir: Path) -> None:
    folder, left = short_dir / "power", short_dir / "left"
    folder.mkdir()
    trace = traced(folder)
    live = Journal(folder / "root/state/run.db")
    whole = [body for _, body in live.events_after(0)]
    live.close()
    disk, dice, cuts = Disk(str(folder)), random.Random(5), 0
    for number in disk.follow(trace):
        if not disk.acked:
            continue  # nobody was promised anything yet
        for how in ("least", "names", "torn"):
            laid_out(disk.left(how, dice), folder, left)
            try:
                events = await events_after_power_cut(left)
            except Exception as error:
                raise AssertionError(f"flush {number}, {how}: {error!r}") from error
            assert events == whole[: len(events)], f"flush {number}, {how}"
            assert len(events) >= disk.acked, f"flush {number}, {how}: promised events are gone"
            shutil.rmtree(left)
            cuts += 1
    assert disk.acked == len(whole)
    print(f"{disk.flushes} flushes, {cuts} power cuts")
    assert cuts > 200
