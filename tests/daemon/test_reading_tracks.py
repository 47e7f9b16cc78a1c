"""What is read of a track that another tool has made, and what init's flags may not write into one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sid_daemon.setup import gate, takeover
from sid_protocol.errors import UsageError
from sid_protocol.params import InitParams

FRESH: dict[str, Any] = {
    "trust_confirmed": False,
    "iterations": 0,
    "best_score": None,
    "current_milestone": None,
    "status": "idle",
    "goal_slug": None,
}


def track(root: Path, settings: dict[str, Any]) -> takeover.Track:
    (root / "state").mkdir(exist_ok=True)
    (root / "state" / "agent-settings.json").write_text(json.dumps(settings))
    found = takeover.read_track(root)
    assert found is not None
    return found


def test_a_track_that_has_not_begun_is_read_without_a_complaint(tmp_path: Path) -> None:
    found = track(tmp_path, FRESH)
    assert (found.goal_slug, found.carried.iterations, found.notes) == ("", 0, ())


def test_a_field_that_is_wrong_costs_no_other_and_is_named(tmp_path: Path) -> None:
    odd = {"iterations": 7, "plateau_consecutive_count": 2, "status": "resting", "best_score": "high"}
    found = track(tmp_path, {**FRESH, **odd, "theirs": None})
    assert (found.carried.iterations, found.carried.plateau_count) == (7, 2)
    assert found.carried.best_score is None
    assert [note.rpartition(": ")[2] for note in found.notes] == ["best_score, status"]
    assert found.carried.theirs == {"theirs": None}


@pytest.mark.parametrize("name", ["", "two words", "a=b", "naïve", "`", "x\n- `y`"])
def test_a_family_whose_name_could_not_be_read_back_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a name for an approach family"):
        gate.families_of(InitParams(repo="/r", family=[name]))


def test_families_are_names_with_or_without_a_description() -> None:
    found = gate.families_of(InitParams(repo="/r", family=["caching", "`io-2`: files and sockets"]))
    assert found == (("caching", "a family of yours"), ("io-2", "files and sockets"))
