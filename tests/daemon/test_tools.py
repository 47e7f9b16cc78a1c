"""The interpreters of a daemon's PATH: asked once for all that start together, and again later."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sid_daemon.tools import FRESH_S, Tools


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets a line whenever the shim on PATH is asked where its interpreter is."""
    log, real = tmp_path / "asked", tmp_path / "real"
    real.mkdir()
    (tmp_path / "shims").mkdir()
    shim = tmp_path / "shims/python3"
    shim.write_text(f"#!/bin/sh\necho >> {log}\nprintf '%s\\n' {real}/python3 {real}\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return log


def times(asked: Path) -> int:
    return asked.read_text().count("\n")


async def test_those_who_start_together_share_an_answer_and_a_later_run_gets_its_own(
    asked: Path, mock_clock: MockClock
) -> None:
    tools = Tools()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(tools.begin)
    found = await tools.find()

    assert found.path == f"{asked.parent}/real:/usr/bin"
    assert times(asked) == 1

    mock_clock.jump(FRESH_S + 1)
    (asked.parent / "shims/python3").write_text("#!/bin/sh\nexit 1\n")
    assert (await tools.find()).path == f"{asked.parent}/shims:/usr/bin"
