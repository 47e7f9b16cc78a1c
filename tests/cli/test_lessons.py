"""`sictl lessons`: what it asks, what it prints on a terminal or a pipe, and that agents' text stays text."""

from __future__ import annotations

from typing import Any

import pytest

from sid_cli.lessons_text import across_page, lessons_page
from sid_protocol.errors import Refused
from tests.cli.fake_daemon import FakeDaemon, run_row
from tests.cli.test_rendering import HOSTILE, PLAIN

RUN = "r7f3a9c2"
LOOP = "timeout/tool_loop/executor"


def lesson(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": LOOP,
        "rule": "Do not repeat a call that has answered already.",
        "status": "in_force",
        "roles": ["executor"],
        "since": 4,
        "runs": ["ab12"],
        "seen": 3,
        "rounds": [1, 2, 3],
        "snippets": [f"round 3: {HOSTILE}"],
        "promotions": 1,
        "told": 6,
        "told_again": 1,
        "held": 2,
        "held_again": 2,
        "ended": None,
        "why": "",
    }
    return {**row, **changes}


ENDED = {"key": "oom/-/-", "status": "retired", "ended": 9, "why": "not needed: it came back in none of 5"}
KILL = {
    "agent_id": "executor_1",
    "role": "executor",
    "iteration": 3,
    "reason": "tool_loop",
    "last_activity": None,
    "last_tool": "Read",
    "repeats": 4,
    "waiting_in": None,
    "snippet": HOSTILE,
    "deadline_s": 60.0,
    "elapsed_s": 60.2,
    "processes_killed": 2,
    "at": "2026-03-01T12:00:00Z",
}


@pytest.fixture
def daemon(daemon: FakeDaemon) -> FakeDaemon:
    daemon.rows = [run_row()]
    daemon.answers["run.lessons"] = {"run_id": RUN, "lessons": [lesson()], "force_kills": [KILL]}
    return daemon


def test_what_was_learned_reads_top_down() -> None:
    assert lessons_page(RUN, [lesson(), lesson(**ENDED)], [KILL], PLAIN).split("\n") == [
        "r7f3a9c2: 1 lesson in force",
        "",
        "timeout/tool_loop/executor  since round 4, told to executor",
        "  Do not repeat a call that has answered already.",
        "  seen in rounds 1, 2, 3 and runs ab12",
        "  came back in 1 of 6 rounds with it, in 2 of 2 without",
        "    round 3: x\\x1b[2J\\ny",
        "",
        "no longer in force",
        "  oom/-/- retired after round 9: not needed: it came back in none of 5",
        "",
        "1 force-kill",
        "  round 3 executor_1 tool_loop  1 min of 1 min  last tool Read x4  x\\x1b[2J\\ny",
    ]


def test_a_run_that_learned_nothing_says_so() -> None:
    assert lessons_page(RUN, [], [], PLAIN) == "r7f3a9c2: no lessons in force"
    assert across_page([], PLAIN) == "nothing learned yet in no runs"


def test_lessons_as_a_document_and_as_text(daemon: FakeDaemon, sictl: Any) -> None:
    done = sictl("lessons", "--json")
    assert done.document["lessons"][0]["key"] == LOOP
    assert done.document["force_kills"][0]["reason"] == "tool_loop"
    assert daemon.called("run.lessons") == [{"run": RUN}]
    assert "1 lesson in force" in sictl("lessons").out


def test_forgetting_names_the_lesson(daemon: FakeDaemon, sictl: Any) -> None:
    done = sictl("lessons", "r7f3", "--forget", LOOP)
    assert daemon.called("run.lessons") == [{"run": RUN, "forget": LOOP}]
    assert done.out == f"ended {LOOP}; it comes back only if the fault is seen again\n"
    daemon.answers["run.lessons"] = Refused("no such lesson", hint="look")
    assert sictl("lessons", "--forget", "x").code == 5


def test_all_runs(daemon: FakeDaemon, sictl: Any) -> None:
    track = {"run_id": RUN, "repo": "/r", "topic": "default", "lessons": [lesson()]}
    daemon.answers["daemon.lessons"] = {"tracks": [track], "unreadable": []}
    done = sictl("lessons", "--all")
    assert done.out == f"{LOOP}  in {RUN}\n  Do not repeat a call that has answered already.\n"
    assert sictl("lessons", "--all", "--json").document["tracks"][0]["run_id"] == RUN
