"""Nodes, really run: the example's six scores, and endings that all leave an outcome and lose no lesson."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_daemon.nodes.running import run_node
from sid_protocol.errors import Refused
from sid_protocol.params import NodeParams
from sid_protocol.status import NodeResult
from tests.e2e.harness import sandbox_works

EXAMPLE = Path(__file__).parents[2] / "examples" / "commit-msg"
pytestmark = pytest.mark.usefixtures("real_process")
HALF = """printf '{"type":"judge_result","score":0.5,"violations":["late"]}\\n' >> "$1/events.jsonl"\n"""
PASS = """printf '{"type":"judge_result","score":1.0,"violations":[]}\\n' >> "$1/events.jsonl"\n"""


def make_node(folder: Path, judge: str, *, cap: int = 1) -> Path:
    folder.mkdir()
    (folder / "PROMPT.md").write_text("Answer.\n")
    (folder / "judge.sh").write_text(judge)
    (folder / "hard-cap.txt").write_text(f"{cap}\n")
    (folder / "seed.md").write_text("the seed\n")
    return folder


async def run(folder: Path, model: str | None = "cat", **more: Any) -> NodeResult:
    params = NodeParams(
        node=str(folder), seed=str(folder / "seed.md"), cwd=str(folder.parent), model=model, **more
    )
    return await run_node(params, contained=sandbox_works())


def outcome(result: NodeResult) -> Any:
    return json.loads(Path(result.folder, "outcome.json").read_text())


def kinds_of(result: NodeResult) -> list[str]:
    """Return the kinds of a run's events, in order."""
    lines = Path(result.folder, "events.jsonl").read_text().splitlines()
    return [json.loads(line)["type"] for line in lines]


def seed_of(result: NodeResult) -> str:
    return Path(result.folder, "seed.md").read_text()


async def test_the_reference_node_learns_in_six_runs(short_dir: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, short_dir / "commit-msg"))
    results = [await run(folder, None) for _ in range(6)]
    assert [one.final_score for one in results] == [0.25, 0.25, 0.75, 0.75, 1.0, 1.0]
    assert [one.promoted for one in results] == [[], ["length", "period", "prefix"], [], ["mood"], [], []]
    assert [one.rounds for one in results] == [3, 3, 3, 3, 1, 1]
    assert len({one.run_id for one in results}) == 6
    assert (folder / "BANS.md").read_text().count("promoted from 2 of last 5 runs") == 4
    assert outcome(results[0]) == {
        "run_id": results[0].run_id,
        "node": "commit-msg",
        "status": "hard_cap",
        "rounds": 3,
        "final_score": 0.25,
        "exit_reason": "3 rounds are used up",
        "violations_total": {"prefix": 3, "length": 3, "period": 3},
    }
    assert kinds_of(results[0]) == ["agent_output", "judge_result", "ralph_iter_end"] * 3


@pytest.mark.parametrize(
    ("judge", "model", "status", "why"),
    [
        (PASS + "exit 100\n", "cat", "passed", "score 1"),
        (HALF + "exit 1\n", "cat", "failed", "the judge left with exit status 1"),
        ("echo broken >&2\n", "cat", "failed", "no judge_result"),
        (HALF, "false", "failed", "the model left with exit status 1"),
        (HALF, "true", "failed", "the model printed nothing"),
        (HALF, "echo BLOCKED: no idea", "aborted", "BLOCKED: no idea"),
        (HALF, "cat", "hard_cap", "1 rounds"),
    ],
)
async def test_every_ending_leaves_an_outcome(
    short_dir: Path, judge: str, model: str, status: str, why: str
) -> None:
    result = await run(make_node(short_dir / "node", judge), model)
    assert result.status == status
    assert why in result.exit_reason
    assert outcome(result)["status"] == status


async def test_a_cancelled_run_is_aborted_and_says_so(short_dir: Path) -> None:
    folder = make_node(short_dir / "node", HALF)
    os.mkfifo(folder / "gate")
    (folder / "model").write_text('#!/bin/sh\ncat "$(dirname "$0")/gate"\n')
    (folder / "model").chmod(0o755)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, folder, None)
        gate = await trio.to_thread.run_sync(os.open, folder / "gate", os.O_WRONLY)  # once the model reads
        nursery.cancel_scope.cancel()
    os.close(gate)
    (left,) = (folder / "runs").iterdir()
    assert json.loads((left / "outcome.json").read_text())["status"] == "aborted"


@pytest.mark.skipif(not sandbox_works(), reason="no sandbox on this machine")
async def test_a_model_writes_nothing_of_the_node(short_dir: Path) -> None:
    folder = make_node(short_dir / "node", PASS)
    (folder / "model").write_text(
        '#!/bin/sh\necho x > judge.sh || echo kept\necho x > "$SEED_FILE"\necho end\n'
    )
    (folder / "model").chmod(0o755)
    result = await run(folder, None)
    assert result.status == "passed"
    assert (folder / "judge.sh").read_text() == PASS
    assert seed_of(result) == "the seed\n"


async def test_what_is_no_node_is_refused(short_dir: Path) -> None:
    folder = make_node(short_dir / "node", PASS)
    (folder / "hard-cap.txt").write_text("many\n")
    with pytest.raises(Refused, match="holds 'many'"):
        await run(folder)
    (folder / "hard-cap.txt").unlink()
    with pytest.raises(Refused, match="no model is named"):
        await run(folder, None)
    with pytest.raises(Refused, match="is not on PATH"):
        await run(folder, "no-such-program-anywhere")
    (folder / "PROMPT.md").unlink()
    with pytest.raises(Refused, match=r"PROMPT\.md is missing"):
        await run(folder)
