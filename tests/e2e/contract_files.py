"""The files of a track's root and the field names that each promises; used by the end-to-end tests alone.

Written down by hand from the contracts page, not taken from the code: it is the code that is tested.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Keys = tuple[str, ...]
PLAN: Keys = (
    *("plan_id", "planner_id", "round", "hypothesis", "approach_family", "critic_approved", "target_files"),
    *("steps", "expected_outcome", "history_reference", "critic_review", "architect_review"),
)
PLAN_PARTS: dict[str, Keys] = {
    "expected_outcome": ("metric", "estimated_impact", "rationale", "sub_score_expectations"),
    "history_reference": ("builds_on", "avoids"),
    "critic_review": (
        *("h001_hypothesis_count", "h002_family_streak", "h003_intra_round_diversity", "schema_valid"),
        *("history_aware", "verdict", "rejection_reason"),
    ),
    "architect_review": ("verdict", "feedback", "structural_concerns"),
}
RESULT: Keys = (
    *("executor_id", "plan_id", "benchmark_score", "benchmark_raw", "status", "sub_scores"),
    *("failure_analysis", "timestamp", "force_kill", "commit", "diff_stat", "cost", "durations"),
)
BRIEF: Keys = ("iteration", "researcher_id", "repo_analysis_summary", "ideas")
IDEA: Keys = ("title", "source", "evidence", "approach_family", "confidence", "estimated_impact")
HISTORY: Keys = (
    *("iteration", "baseline_score", "winner", "losers", "research_brief_id", "rejected_plans"),
    *("force_kills", "agent_failures", "evidence", "started_at", "ended_at"),
)
WINNER: Keys = ("plan_id", "score", "approach_family", "hypothesis", "sub_scores")
EVIDENCE: Keys = ("claim", "command", "output", "verdict")
REPORT: Keys = (
    *("iteration", "goal_slug", "winner", "archived", "regressions_detected", "re_benchmark_score"),
    *("status", "reason"),
)
MERGED: Keys = ("executor_id", "branch", "hypothesis", "score_before", "score_after", "sub_scores")
RAW: Keys = ("iteration", "plan_id", "benchmark_score", "is_winner", "approach_family", "sub_scores")
FAILURE: Keys = ("what", "why", "category", "lesson")
STATE: Keys = (
    *("iteration", "status", "current_step", "started_at", "updated_at", "research", "planning"),
    *("execution", "tournament", "recording", "user_ideas_consumed"),
)
STATE_PARTS: dict[str, Keys] = {
    "research": ("status", "output_path", "completed_at"),
    "planning": ("status", "plans", "approved_count", "completed_at"),
    "execution": ("status", "executors", "completed_at"),
    "tournament": ("status", "winner", "winner_score", "completed_at"),
    "recording": ("status", "history_path", "visualization_updated", "cleanup_done"),
}
AGENT_SETTINGS: Keys = (
    *("trust_confirmed", "si_setting_goal", "si_setting_benchmark", "si_setting_harness", "iterations"),
    *("best_score", "current_milestone", "current_phase", "plateau_consecutive_count"),
    *("circuit_breaker_count", "status", "goal_slug"),
)
BASELINE: Keys = ("baseline_score", "recorded_at", "samples", "commit", "benchmark_command")
EVENT: Keys = ("timestamp", "event_type", "iteration", "details")
FORCE_KILL: Keys = (
    *("agent_id", "role", "iteration", "reason", "last_activity", "last_tool", "repeats", "waiting_in"),
    *("snippet", "deadline_s", "elapsed_s", "processes_killed", "at"),
)
TSV: Keys = ("iteration", "commit", "metric", "delta", "guard", "status", "description")
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")


def load(path: Path) -> Any:
    """Return a JSON file; NaN and infinities are no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{path} holds {name}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def has(value: Any, keys: Keys, where: str) -> None:
    """Fail unless an object holds these keys."""
    missing = [key for key in keys if key not in value]
    assert missing == [], f"{where} lacks {missing}: {value}"


def check_plan(plan: dict[str, Any], where: str) -> None:
    """Check contract 1."""
    has(plan, PLAN, where)
    assert plan["plan_id"] == f"round_{plan['round']}_{plan['planner_id']}"
    for name, keys in PLAN_PARTS.items():
        if plan[name] is not None:
            has(plan[name], keys, f"{where} {name}")
    for step in plan["steps"]:
        has(step, ("step", "file", "change"), f"{where} steps")


def check_result(result: dict[str, Any], where: str) -> None:
    """Check contracts 2, 7 and 13."""
    has(result, RESULT, where)
    assert result["status"] in ("success", "regression", "error", "timeout"), where
    has(result["cost"], ("input_tokens", "output_tokens", "usd"), where)
    has(result["durations"], ("agent_s", "benchmark_s"), where)
    assert UTC.fullmatch(result["timestamp"]), where
    if result["status"] != "success":
        has(result["failure_analysis"], FAILURE, where)
    if result["force_kill"] is not None:
        has(result["force_kill"], FORCE_KILL, where)


def check_history(history: dict[str, Any], where: str) -> None:
    """Check contract 4."""
    has(history, HISTORY, where)
    if history["winner"] is not None:
        has(history["winner"], WINNER, f"{where} winner")
    for loser in history["losers"]:
        has(loser, WINNER, f"{where} losers")
        if loser["score"] is None:
            has(loser["failure_analysis"], FAILURE, f"{where} losers")
    for line in history["evidence"]:
        has(line, EVIDENCE, f"{where} evidence")
    for kill in history["force_kills"]:
        has(kill, FORCE_KILL, f"{where} force_kills")
    assert UTC.fullmatch(history["started_at"]), where
    assert UTC.fullmatch(history["ended_at"]), where


def check_report(report: dict[str, Any], where: str) -> None:
    """Check contract 9."""
    has(report, REPORT, where)
    assert report["status"] in ("merged", "no_improvement", "no_winner", "all_rejected", "blocked"), where
    if report["winner"] is not None:
        has(report["winner"], MERGED, f"{where} winner")
    assert (report["reason"] is None) == (report["status"] == "merged"), where


def check_root(root: Path, rounds: int) -> None:
    """Check that every file of the layout is there and holds what its contract promises."""
    for name in ("settings.json", "goal.md", "harness.md", "idea.md"):
        assert (root / "config" / name).is_file(), name
    for number in range(1, rounds + 1):
        _check_round(root, number)
    has(load(root / "state/agent-settings.json"), AGENT_SETTINGS, "agent-settings.json")
    state = load(root / "state/iteration_state.json")
    has(state, STATE, "iteration_state.json")
    for name, keys in STATE_PARTS.items():
        has(state[name], keys, f"iteration_state.json {name}")
    has(load(root / "tracking/baseline.json"), BASELINE, "baseline.json")
    for event in load(root / "tracking/events.json"):
        has(event, EVENT, "events.json")
        has(event["details"], ("field", "old_value", "new_value", "source"), "events.json details")
        assert event["event_type"] in ("config_change", "phase_transition", "audit")
    for entry in load(root / "tracking/raw_data.json"):
        has(entry, RAW, "raw_data.json")
    assert (root / "state/run.db").is_file()


def _check_round(root: Path, number: int) -> None:
    brief = load(root / f"state/research_briefs/round_{number}.json")
    has(brief, BRIEF, "brief")
    assert 3 <= len(brief["ideas"]) <= 10
    for idea in brief["ideas"]:
        has(idea, IDEA, "brief ideas")
    check_history(load(root / f"state/iteration_history/round_{number}.json"), f"history {number}")
    check_report(load(root / f"state/merge_reports/round_{number}.json"), f"report {number}")
    drafted = sorted((root / f"plans/round_{number}").iterdir())
    archived = sorted((root / f"state/plan_archive/round_{number}").iterdir())
    assert [path.name for path in archived] == [path.name for path in drafted]
    for path in (*drafted, *archived):
        assert re.fullmatch(r"plan_planner_[a-z]+\.json", path.name)
        check_plan(load(path), str(path))


def rows_of(tsv: str) -> tuple[str, list[dict[str, str]]]:
    """Check the shape of contract 14 and return its direction and rows."""
    comment, header, *lines = tsv.removesuffix("\n").split("\n")
    assert comment.startswith("# metric_direction: ")
    assert header == "\t".join(TSV)
    rows = []
    for line in lines:
        values = line.split("\t")
        assert len(values) == len(TSV), line
        rows.append(dict(zip(TSV, values, strict=True)))
    return comment.removeprefix("# metric_direction: "), rows
