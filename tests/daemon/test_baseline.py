"""What a user is told of the baseline, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

from sid_actors.workbench.base import CommandRun
from sid_daemon.core.measuring.calibration import Calibrated
from sid_daemon.redaction import Redactor
from sid_daemon.replay.recorder import Recorder
from sid_daemon.runs.runstore import RunStore
from sid_daemon.setup.baseline import advice_of, record_creation
from sid_protocol.settings import Settings
from tests.core.play import created


def test_a_guard_that_is_red_from_the_start_says_why() -> None:
    def red(output: str, *, timed_out: bool = False) -> CommandRun:
        return CommandRun(command="make test", passed=False, output=output, timed_out=timed_out)

    guards = [red("1 ok\nModuleNotFoundError: no x\n\n"), red(""), red("half", timed_out=True)]
    notes = advice_of(Calibrated(None, advice=("be calm",)), guards)

    assert [note.rsplit("make test: ", 1)[-1] for note in notes] == [
        "ModuleNotFoundError: no x",
        "it printed nothing",
        "it took longer than deadlines.guard",
        "be calm",
    ]
    assert all("blame no candidate" in note for note in notes[:3])


def kept_in(folder: Path) -> bytes:
    """All that the files of a folder hold."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_no_secret_that_the_benchmark_printed_is_kept(short_dir: Path) -> None:
    secret, root = "s3cr3t-of-the-bench", short_dir / "root"
    recorder = Recorder(short_dir / "run.jsonl", short_dir, Redactor([secret]))
    store = RunStore(root, short_dir / "copy.db", recorder=recorder)
    await store.open()
    event = created(Settings(benchmark_command="b"), root=str(root), baseline_raw=f"with {secret}: 10\n")
    await record_creation(store, None, event, None)
    await store.close()

    assert b"with ***: 10" in kept_in(short_dir)
    assert secret.encode() not in kept_in(short_dir)
