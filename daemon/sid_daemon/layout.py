"""Where what lies in a track's root: the paths that the contracts promise, relative to it.

The one place that spells them; views, methods and whoever looks at a root ask here. Pure: knows no disk.
"""

from __future__ import annotations

DATABASE = "state/run.db"
AGENT_SETTINGS = "state/agent-settings.json"
ITERATION_STATE = "state/iteration_state.json"
IMPROVEMENTS = "state/improvements.md"
MEMORY = "state/memory.md"
LESSONS_JSON = "state/lessons.json"
LESSONS_MD = "state/lessons.md"
BASELINE = "tracking/baseline.json"
RAW_DATA = "tracking/raw_data.json"
EVENTS = "tracking/events.json"
RESULTS = "tracking/results.tsv"
CHART = "tracking/progress.png"

BRIEFS = "state/research_briefs"
PLANS = "plans"
ARCHIVE = "state/plan_archive"
"""Plans with their reviews, kept for good."""
CANDIDATES = "state/benchmark_results"
HISTORIES = "state/iteration_history"
REPORTS = "state/merge_reports"
OF_ROUNDS = (HISTORIES, REPORTS, BRIEFS, ARCHIVE)
"""Folders of a run's record that hold rounds and nothing else."""


def of_round(folder: str, iteration: int) -> str:
    """Return the beginning of the paths of what a folder holds of one round, where that is several files."""
    return f"{folder}/round_{iteration}/"


def brief_path(iteration: int) -> str:
    """Return where a round's research brief lies."""
    return f"{BRIEFS}/round_{iteration}.json"


def plan_path(iteration: int, planner: str) -> str:
    """Return where a planner's plan lies."""
    return f"{of_round(PLANS, iteration)}plan_{planner}.json"


def archive_path(iteration: int, planner: str) -> str:
    """Return where a plan with its reviews is kept for good."""
    return f"{of_round(ARCHIVE, iteration)}plan_{planner}.json"


def result_path(iteration: int, executor: str) -> str:
    """Return where a candidate's benchmark result lies."""
    return f"{of_round(CANDIDATES, iteration)}{executor}.json"


def history_path(iteration: int) -> str:
    """Return where a round's history lies."""
    return f"{HISTORIES}/round_{iteration}.json"


def report_path(iteration: int) -> str:
    """Return where a round's merge report lies."""
    return f"{REPORTS}/round_{iteration}.json"
