"""`init --agent NAME` fills in what a coding agent needs, and nothing that the user has said."""

from __future__ import annotations

import pytest

from sid_cli.presets import PRESETS
from sid_cli.verbs.init import parameters


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_makes_a_run_that_asks_nobody_and_is_watched(name: str) -> None:
    params = parameters({"agent": name})
    assert params["backend"] == "command"
    assert params["agent_command"].startswith(name)
    assert "json" in params["agent_command"]
    assert params["set"]["agent_env"]
    assert "agent" not in params


def test_only_folders_that_are_there_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parameters({"agent": "claude"})["set"]["agent_paths"] == []
    (tmp_path / ".claude").mkdir()
    assert parameters({"agent": "claude"})["set"]["agent_paths"] == ["~/.claude:rw"]


def test_what_the_user_says_goes_before_a_preset() -> None:
    params = parameters(
        {
            "agent": "codex",
            "agent_command": "my-codex exec -",
            "assignments": ('agent_env=["MINE"]', "grace_s=3"),
        }
    )
    assert params["agent_command"] == "my-codex exec -"
    assert params["set"]["agent_env"] == ["MINE"]
    assert params["set"]["grace_s"] == 3
