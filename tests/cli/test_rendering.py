"""What status, history, show and init print: pure functions of what the daemon tells."""

from __future__ import annotations

import re
import time

import pytest

from sid_cli import status_text
from sid_cli.color import Marks, Paint
from sid_cli.follow import aged
from sid_cli.round_text import history_table, round_whole
from sid_cli.status_text import Look
from sid_cli.trust_text import done, next_command, trust_question
from tests.cli.fake_daemon import round_row, run_row

PLAIN = Look(paint=Paint(), marks=Marks(utf8=True), width=None)
ASCII = Look(paint=Paint(), marks=Marks(utf8=False), width=None)
HOSTILE = "x\x1b[2J\ny"
INFO = {"version": "0.1.0", "pid": 42, "uptime_s": 61.0, "runs": 1}


def status(row=None, rounds=(), records=(), look=PLAIN):
    return status_text.detail(row or run_row(), rounds, records, look)


def test_status_shows_what_the_live_screen_shows(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    rounds = [round_row(1), round_row(2), round_row(3)]
    records = [
        {
            "timestamp": "2026-03-01T12:03:41Z",
            "event": "benchmark_sample",
            "iteration": 3,
            "actor": "executor_2",
            "score": 797.6,
        }
    ]

    assert status(rounds=rounds, records=records).split("\n") == [
        " sid  primes · improve/faster_sieve   running 3 h 12 min   round 3/50   ETA about 1 h 34 min (47 min to 2 h 21 min)",
        " best 812.4 ± 3.1 ops   (gain +31.8 % since 616.2)   target 1000   █▁▁▂   plateau 1/3   breaker 0/3",
        " spent ~4.12 of 20.00 USD · 1,900,000 tokens · 71 calls",
        "─" * 100,
        " research ✓   plan ✓   review ✓   ▶ EXECUTE   tournament ·   record ·",
        " ACTOR       DOING                      IDLE   LEFT  FAMILY        SCORE",
        " executor_1  bash: python -m pytest -q    4s  11:20  optimization      -",
        " executor_2  benchmark 3/5                0s   3:05  architecture  798.1",
        "─" * 100,
        " 12:03:41 r3 executor_2 benchmark_sample score=797.6",
    ]


def test_status_of_a_run_that_has_not_begun():
    row = run_row(
        status="idle",
        iteration=0,
        current_step=None,
        best_score=None,
        baseline=None,
        interval=None,
        actors=[],
        target=None,
        budget={name: {"spent": 0.0, "limit": None} for name in ("usd", "tokens")}
        | {name: {"spent": None, "limit": None} for name in ("calls", "wall_s")},
    )

    shown = status(row).split("\n")

    assert shown[0] == " sid  primes · improve/faster_sieve   idle   round 0/50"
    assert shown[1] == " best - ops   plateau 1/3   breaker 0/3"
    assert shown[2] == " no model"
    assert len(shown) == 3


def test_what_needs_the_user_comes_first():
    row = run_row(status="failed", reason="the disk is full", notes=["the branch is checked out"])

    assert status(row).startswith(" ! r7f3a9c2 failed: the disk is full\n")
    assert "\n note: the branch is checked out\n" in status(row)
    assert status_text.overview(INFO, [row], PLAIN).startswith(
        "! r7f3a9c2 failed: the disk is full\nsid 0.1.0 · pid 42 · up 1 min 1 s"
    )


def test_an_overview_of_many_failures_tells_the_newest_and_counts_the_others():
    rows = [run_row(run_id=f"r{number}", status="failed", reason="gone") for number in range(40)]
    lines = status_text.overview(INFO, rows, PLAIN).split("\n")
    assert lines[0] == "! 35 earlier runs too: 'sictl status RUN' says why"
    assert [line.split()[1] for line in lines[1:6]] == ["r35", "r36", "r37", "r38", "r39"]
    assert not lines[6].startswith("!")
    assert len(lines) == 6 + 1 + 1 + 40


def test_nothing_but_ascii_where_the_terminal_has_no_more():
    shown = status(run_row(interval=[800.0, None]), [round_row(n) for n in range(1, 5)], look=ASCII)
    assert shown.isascii()
    assert "best 812.4 [800, -]" in shown


def test_what_agents_wrote_cannot_move_the_cursor():
    actor = {**run_row()["actors"][0], "doing": HOSTILE, "family": HOSTILE, "id": HOSTILE}
    row = run_row(
        actors=[actor],
        repo=f"/src/{HOSTILE}",
        reason=HOSTILE,
        notes=[HOSTILE],
        goal_slug=HOSTILE,
        metric=HOSTILE,
    )
    for shown in (status(row), status_text.overview(INFO, [row], PLAIN)):
        assert all(line.isprintable() for line in shown.split("\n"))


def test_on_a_narrow_terminal_lines_are_cut():
    narrow = Look(paint=Paint(), marks=Marks(utf8=True), width=80)
    doing = {**run_row()["actors"][0], "doing": "x" * 300}
    shown = status_text.fitted(status(run_row(actors=[doing]), look=narrow), narrow)
    assert max(map(len, shown.split("\n"))) == 80

    painted = Look(paint=Paint(enabled=True), marks=Marks(utf8=True), width=80)
    coloured = status_text.fitted(status(run_row(actors=[doing]), look=painted), painted)
    assert "\x1b[" in coloured
    told = re.sub(r"\x1b\[[0-9;]*m", "", coloured).split("\n")
    assert told[-4:] == shown.split("\n")[-4:]
    amiss = f" ! {'x' * 90}"
    assert status_text.fitted(amiss, narrow) == amiss


def test_an_estimate_waits_for_three_rounds_and_an_active_run():
    rounds = [round_row(n) for n in (1, 2, 3)]
    assert status_text.remaining(run_row(), rounds[:2]) is None
    assert status_text.remaining(run_row(status="plateau"), rounds) is None
    assert status_text.remaining(run_row(max_iterations=3), rounds) is None
    assert status_text.remaining(run_row(), rounds) is not None


def test_the_line_for_a_prompt_is_short_and_empty_when_nothing_runs():
    assert status_text.one_line(run_row()) == "sid r3/50 exec 2/2 +31.8%"
    assert status_text.one_line(run_row(actors=[])) == "sid r3/50 execution +31.8%"
    assert status_text.one_line(run_row(status="plateau")) == ""


def test_clocks_go_on_between_two_looks():
    actors = aged(run_row(), 5.0)["actors"]
    assert [actor["idle_s"] for actor in actors] == [9.0, 5.0]
    assert [actor["left_s"] for actor in actors] == [675.0, 180.0]
    silent = {**run_row()["actors"][0], "idle_s": None, "left_s": 2.0}
    assert aged(run_row(actors=[silent]), 5.0)["actors"][0] == {**silent, "left_s": 0.0}


def test_history_tells_a_proven_gain_from_one_that_was_not_shown():
    proven = round_row(1, gain=0.031, ci=[0.024, 0.039], n=14, p=0.0083)
    open_ended = round_row(
        2, status="no_improvement", gain=0.004, ci=[None, 0.012], n=5, score=None, delta=None
    )
    tie = round_row(3, status="no_improvement", score=None, delta=None, gain=None)

    lines = history_table([proven, open_ended, tie], PLAIN).split("\n")

    assert "  +3.1 % [2.4, 3.9] n=14  " in lines[1]
    assert "  ~ +0.4 % [?, 1.2] n=5  " in lines[2]
    assert "  ~  " in lines[3]


def test_history_is_a_table_with_the_gain():
    lost = round_row(
        2,
        status="no_winner",
        score=None,
        delta=None,
        family=None,
        hypothesis=None,
        reason=HOSTILE,
        commit=None,
    )

    lines = history_table([round_row(1), lost], PLAIN).split("\n")

    assert lines[0].split() == [
        "ROUND",
        "RESULT",
        "BEST",
        "DELTA",
        "GAIN",
        "RAN",
        "REJ",
        "KILLED",
        "TIME",
        "FAMILY",
        "HYPOTHESIS",
    ]
    narrow = history_table([round_row(1), lost], Look(paint=Paint(), marks=Marks(utf8=True), width=80))
    assert max(map(len, narrow.split("\n"))) <= 80
    assert narrow.split()[:5] == ["ROUND", "RESULT", "BEST", "GAIN", "RAN"]
    assert "602" in lines[1]
    assert "+0.2 %" in lines[1]
    assert lines[1].endswith("data    hypothesis 1")
    assert lines[2].endswith("x\\x1b[2J\\ny")


@pytest.fixture
def whole():
    review = {
        "h001_hypothesis_count": "pass",
        "h002_family_streak": "fail",
        "h003_intra_round_diversity": "pass",
        "schema_valid": "pass",
        "history_aware": "pass",
        "verdict": "rejected",
        "rejection_reason": HOSTILE,
    }
    plan = {
        "plan_id": "round_7_planner_a",
        "planner_id": "planner_a",
        "round": 7,
        "hypothesis": HOSTILE,
        "approach_family": "data",
        "critic_approved": True,
        "target_files": ["a.py", HOSTILE],
        "steps": [{"step": 1, "file": "a.py", "change": HOSTILE}],
        "architect_review": {"verdict": "approve", "feedback": HOSTILE, "structural_concerns": [HOSTILE]},
        "critic_review": {**review, "verdict": "approved", "rejection_reason": None},
    }
    result = {
        "executor_id": "executor_1",
        "plan_id": "round_7_planner_a",
        "benchmark_score": 12.5,
        "status": "success",
        "sub_scores": {"seconds": 0.25},
        "commit": "c0ffee",
        "diff_stat": "1 file changed",
        "measurement": {"gain": 0.031, "interval": [0.024, None], "n": 14, "p": 0.0083},
    }
    kill = {
        "agent_id": "executor_3",
        "role": "executor",
        "iteration": 7,
        "reason": "tool_loop",
        "last_tool": "Read",
        "repeats": 14,
        "waiting_in": None,
        "snippet": HOSTILE,
        "deadline_s": 1800.0,
        "elapsed_s": 1801.0,
        "processes_killed": 6,
        "at": "",
    }
    failed = {
        **result,
        "executor_id": "executor_2",
        "benchmark_score": None,
        "status": "error",
        "measurement": None,
    }
    failed["findings"] = [f"clock_read: {HOSTILE}"]
    failed["summary"] = f"I did what the plan says. {HOSTILE}"
    failed["failure_analysis"] = {"what": "what", "why": HOSTILE, "category": "oom", "lesson": HOSTILE}
    return {
        "summary": round_row(7),
        "brief": {
            "repo_analysis_summary": HOSTILE,
            "ideas": [
                {
                    "title": HOSTILE,
                    "approach_family": "data",
                    "confidence": "high",
                    "estimated_impact": "10 %",
                }
            ],
        },
        "plans": [
            plan,
            {**plan, "plan_id": "round_7_planner_b", "critic_approved": False, "critic_review": review},
        ],
        "results": [result, failed],
        "history": {
            "force_kills": [kill],
            "agent_failures": [
                {"agent_id": "planner_c", "role": "planner", "attempt": 2, "why": HOSTILE, "at": ""}
            ],
            "evidence": [
                {
                    "claim": HOSTILE,
                    "command": "python3 bench.py",
                    "output": "1\n" * 40,
                    "verdict": "confirmed",
                }
            ],
        },
        "merge_report": {
            "status": "merged",
            "reason": None,
            "archived": ["archive/round_7_executor_2"],
            "winner": {
                "executor_id": "executor_1",
                "hypothesis": HOSTILE,
                "score_before": 10.0,
                "score_after": 12.5,
            },
        },
        "tags": {"executor_2": "archive/round_7_executor_2"},
        "notes": [HOSTILE],
        "runs": [
            {
                "stage": "confirm",
                "block": 14,
                "arm": "merged",
                "tree": "c0ffee00",
                "score": 12.5,
                "status": "success",
                "exit": 0,
                "cpu_s": 0.5,
                "wall_s": 1.25,
                "load1": 2.0,
                "at": "2025-03-01T12:00:00.000000+00:00",
                "why": HOSTILE,
            }
        ],
    }


def test_a_round_is_shown_with_everything_that_was_decided(whole):
    shown = round_whole(whole, PLAIN)

    for told in (
        "round 7: merged",
        "✓ approved",
        "✗ rejected",
        "critic: rejected (H001=pass H002=fail H003=pass schema=pass history=pass): x",
        "executor_1  score 12.5   +3.1 % [2.4, ?]  n=14  p<=0.0083   ✓ winner",
        "sub-scores: seconds=0.25",
        f"merged as {'a' * 40}; taken back by: git revert -m 1 {'a' * 40}",
        "oom: what; x",
        "finding: clock_read: x",
        "kept as archive/round_7_executor_2",
        "killed executor_3: tool_loop",
        "last tool Read x14",
        "planner_c failed (attempt 2)",
        "verdict: merged",
        "executor_1: 10 to 12.5",
        "confirm  14  merged  c0ffee0   12.5     0   1.250  0.500  2.00  12:00:00.000",
        "$ python3 bench.py",
        "(28 more lines with --json)",
        "verdict: confirmed",
    ):
        assert told in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_a_round_under_way_is_shown_as_far_as_it_is(whole):
    bare = {
        **whole,
        "brief": None,
        "results": [],
        "history": None,
        "merge_report": None,
        "plans": [],
        "notes": [],
    }
    assert round_whole(bare, PLAIN).startswith("round 7: merged")


INIT = {
    "run_id": "r7f3",
    "root": "/src/primes/.sid/topics/fast",
    "missing": [],
    "repo": "/src/my primes",
    "topic": "fast",
    "sealed": ["bench.py"],
    "trusted": False,
    "trusts": {
        "benchmark_command": HOSTILE,
        "guard_command": ["make test", "make lint"],
        "setup_command": None,
        "agent_command": "",
        "agent_backend": "local",
        "agent_network": True,
        "scope": {"include": ["**"], "exclude": ["docs/"]},
        "sealed_files": [],
    },
    "baseline": {"score": 616.2, "samples": [1, 2, 3], "spread_pct": 0.41, "deterministic": False},
    "notes": ["noisy"],
}


def test_the_trust_question_names_path_commands_and_seal():
    shown = trust_question(INIT, PLAIN)

    for told in (
        "/src/my primes",
        "benchmark: x\\x1b[2J\\ny",
        "guard: make test",
        "guard: make lint",
        "sealed   bench.py",
        "agent_backend=local",
        "never docs/",
    ):
        assert told in shown
    assert "setup" not in shown
    assert all(line.isprintable() for line in shown.split("\n"))


def test_init_ends_with_one_command_that_can_be_pasted():
    command = next_command(INIT, "/elsewhere", root=None)

    assert command == "sictl start '/src/my primes' --topic fast"
    assert next_command({**INIT, "topic": "default"}, "/src/my primes", root=None) == "sictl start"
    shown = done(INIT, command, PLAIN)
    assert shown.endswith(f"next: {command}")
    assert "baseline 616.2 (3 runs, spread 0.41 %)" in shown
    assert "  bench.py" in shown


def test_a_long_sealed_list_is_counted():
    shown = done({**INIT, "sealed": [f"f{n}" for n in range(25)]}, "x", PLAIN)
    assert "and 5 more" in shown
