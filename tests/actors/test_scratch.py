"""Temporary folders: private, swept by the next daemon of their name, and nobody else's are touched."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from sid_actors.jobs import scratch


@pytest.fixture(autouse=True)
def system_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_daemon", "sid")
    return tmp_path


def test_what_a_dead_daemon_left_is_removed_by_the_next_of_its_name_alone() -> None:
    scratch.sweep("aaaa")
    ours = Path(scratch.make("turn"))
    (ours / "plan.json").write_text("{}")
    scratch.sweep("bbbb")
    theirs = Path(scratch.make("turn"))
    assert ours.is_dir(), "another daemon's is left alone"

    scratch.sweep("aaaa")

    assert not ours.exists()
    assert theirs.is_dir()


def test_only_this_user_can_enter_one() -> None:
    scratch.sweep("aaaa")

    assert stat.S_IMODE(Path(scratch.make("turn")).stat().st_mode) == 0o700


def test_a_link_of_our_name_leads_nowhere(system_folder: Path) -> None:
    kept = system_folder / "mine"
    kept.mkdir()
    (kept / "thesis.txt").write_text("all of it")
    (system_folder / "sid-aaaa-turn-x").symlink_to(kept)

    scratch.sweep("aaaa")

    assert (kept / "thesis.txt").read_text() == "all of it"
