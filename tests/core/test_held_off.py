"""What becomes of a candidate whose agent failed because the sandbox held it off a sealed file."""

from __future__ import annotations

import pytest

from sid_protocol.events import AgentFailed
from tests.core.play import played, scripted
from tests.core.test_run import history, second_wins, settings


@pytest.mark.parametrize(
    ("why", "category"),
    [
        ("exit status 1: OSError: [Errno 30] Read-only file system: './bench.py'", "sealed_file_violation"),
        ("exit status 2: sh: 1: cannot create data/x: Read-only file system", "sealed_file_violation"),
        (
            "exit status 1: OSError: [Errno 16] Device or resource busy: 't' -> 'bench.py'",
            "sealed_file_violation",
        ),
        (
            "exit status 1: Read-only file system: '/r/worktrees/round_1_executor_1/bench.py'",
            "sealed_file_violation",
        ),
        (
            "exit status 1: OSError: [Errno 16] Device or resource busy: 'data' -> 'd2'",
            "sealed_file_violation",
        ),
        ("exit status 1: OSError: [Errno 30] Read-only file system: '/etc/passwd'", "logic_error"),
        ("exit status 1: ValueError: bench.py is odd", "logic_error"),
    ],
)
def test_an_agent_that_fails_at_a_sealed_file_is_told_apart(why: str, category: str) -> None:
    fails = AgentFailed(why=why)
    play = played(
        settings(sealed_files=["bench.py", "data/"]),
        answer=scripted({"run.executor_1": [fails, fails]}),
        score=second_wins,
    )
    assert history(play)["losers"][0]["failure_analysis"]["category"] == category
