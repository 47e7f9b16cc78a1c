"""What a user is told of the baseline."""

from __future__ import annotations

from sid_actors.workbench.base import CommandRun
from sid_daemon.baseline import advice_of
from sid_daemon.core.calibration import Calibrated


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
