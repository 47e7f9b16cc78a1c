"""`sictl node run`: what it asks for each run, what it prints, and how it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake_daemon import FakeDaemon


def result(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": "n-20260301T120000Z-1",
        "node": "n",
        "folder": "/n/runs/n-20260301T120000Z-1",
        "status": "hard_cap",
        "rounds": 3,
        "final_score": 0.25,
        "exit_reason": "3 rounds are used up",
        "violations_total": {"length": 3},
        "promoted": ["length"],
    }
    return {**row, **changes}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "seed.md").write_text("seed\n")
    return tmp_path


def test_each_run_is_asked_for_and_told(daemon: FakeDaemon, sictl: Any, node: Path) -> None:
    daemon.answers["node.run"] = result()
    done = sictl("node", "run", str(node), str(node / "seed.md"), "--runs", "2", "--model", "my-model --fast")
    line = "score 0.25   hard cap in 3 rounds   learned length\n"
    assert done.out == f"run 1: {line}run 2: {line}"
    asked = daemon.called("node.run")
    assert len(asked) == 2
    assert (asked[0]["node"], asked[0]["model"]) == (str(node), "my-model --fast")
    assert (asked[0]["window"], asked[0]["threshold"], asked[0]["sandbox"]) == (5, 2, True)


def test_scores_as_a_document(daemon: FakeDaemon, sictl: Any, node: Path) -> None:
    daemon.answers["node.run"] = result(status="passed", final_score=1.0, promoted=[])
    done = sictl("node", "run", str(node), str(node / "seed.md"), "--json")
    assert done.document["scores"] == [1.0]
    assert done.document["runs"][0]["status"] == "passed"


def test_a_run_that_failed_is_exit_1_with_its_reason(daemon: FakeDaemon, sictl: Any, node: Path) -> None:
    failed = result(status="failed", final_score=None, exit_reason="the model\x1b[2J left", promoted=[])
    daemon.answers["node.run"] = failed
    done = sictl("node", "run", str(node), str(node / "seed.md"))
    assert done.code == 1
    assert done.out == "run 1: no score   failed in 3 rounds   the model\\x1b[2J left\n"


def test_the_model_of_the_environment_is_taken(
    daemon: FakeDaemon, sictl: Any, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.answers["node.run"] = result()
    monkeypatch.setenv("MODEL_CMD", "claude -p")
    sictl("node", "run", str(node), str(node / "seed.md"))
    (asked,) = daemon.called("node.run")
    assert asked["model"] == "claude -p"
    assert "ANTHROPIC_API_KEY" in asked["agent_env"]
