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


def test_a_record_that_could_not_be_read_later_is_named_and_left_where_it_is(tmp_path: Path) -> None:
    plan = {
        "plan_id": "round_1_planner_a",
        "planner_id": "planner_a",
        "round": 1,
        "hypothesis": "Cache it",
        "approach_family": "data",
        "critic_approved": True,
        "target_files": [],
        "steps": [{"step": 1, "file": "a", "change": "b"}],
        "expected_outcome": {"metric": "m", "estimated_impact": "+1 %", "rationale": "r"},
        "history_reference": {"builds_on": "none", "avoids": "none"},
    }
    files = {
        "state/plan_archive/round_1/plan_planner_a.json": plan,
        "state/plan_archive/round_1/plan_planner_b.json": {**plan, "critic_review": {"h001": "pass"}},
        "state/iteration_history/round_1.json": {"iteration": 1, "winner": {"plan_id": "round_1_planner_a"}},
        "tracking/raw_data.json": [{"iteration": 1}],
    }
    for name, body in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(body))

    found = track(tmp_path, {**FRESH, "iterations": 1})
    assert list(found.documents) == ["state/plan_archive/round_1/plan_planner_a.json"]
    assert found.entries == ()
    named = [Path(note.partition(": not taken over: ")[0]).name for note in found.notes]
    assert sorted(named) == ["plan_planner_b.json", "raw_data.json", "round_1.json"]


@pytest.mark.parametrize("name", ["", "two words", "a=b", "naïve", "`", "x\n- `y`"])
def test_a_family_whose_name_could_not_be_read_back_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a name for an approach family"):
        gate.families_of(InitParams(repo="/r", family=[name]))


def test_families_are_names_with_or_without_a_description() -> None:
    found = gate.families_of(InitParams(repo="/r", family=["caching", "`io-2`: files and sockets"]))
    assert found == (("caching", "a family of yours"), ("io-2", "files and sockets"))
