"""`contracts.md`, made from the records; where each file lies stands in `CONTRACTS`."""

from __future__ import annotations

from typing import Any

from pages.words import cell, made_from, table, type_text
from sid_protocol import records

CONTRACTS: tuple[tuple[str, type[records.Record], str], ...] = (
    (
        "1 Plan",
        records.Plan,
        "`plans/round_<n>/plan_planner_<x>.json`, kept in `state/plan_archive/round_<n>/`",
    ),
    ("2 Benchmark result", records.BenchmarkResult, "`state/benchmark_results/round_<n>/executor_<k>.json`"),
    ("3 Research brief", records.ResearchBrief, "`state/research_briefs/round_<n>.json`"),
    ("4 Iteration history", records.IterationHistory, "`state/iteration_history/round_<n>.json`"),
    ("5 Raw data", records.RawEntry, "`tracking/raw_data.json`, an array"),
    ("7 Failure analysis", records.FailureAnalysis, "in a benchmark result and in a history's losers"),
    ("8 Iteration state", records.IterationState, "`state/iteration_state.json`"),
    ("9 Merge report", records.MergeReport, "`state/merge_reports/round_<n>.json`"),
    ("10 Agent settings", records.AgentSettings, "`state/agent-settings.json`"),
    ("12 Events", records.TrackEvent, "`tracking/events.json`, an array"),
    ("13 Force-kill record", records.ForceKill, "in a benchmark result and in the round's history"),
    (
        "14 Results",
        records.ResultRow,
        "`tracking/results.tsv`, tab-separated; first line `# metric_direction: …`",
    ),
    ("16 Baseline", records.Baseline, "`tracking/baseline.json`"),
)
ANSWERS: tuple[tuple[str, type[records.Record]], ...] = (
    ("researcher", records.BriefAnswer),
    ("planner", records.PlanAnswer),
    ("architect", records.ArchitectReview),
    ("critic", records.CriticReview),
)
CONTRACTS_HEAD = f"""\
# Contracts

{made_from("protocol/sid_protocol/records.py")}

The documents in a track's root, and what agents answer. Paths are relative to the root (`.sid/topics/<slug>/`, or an existing
`.omc/self-improve/…`). All of them are views of `state/run.db`: written whole, read by other tools, never read back;
`sictl export` writes them again. What `iteration_state.json` and `agent-settings.json` name is there before they name it. A reader accepts extra fields and keeps them. Times are ISO 8601 in UTC, scores finite
numbers in Python's shortest form.

The approach families (6) are {", ".join(f"`{family}`" for family in records.FAMILIES)}, and those of `harness.md`. The settings (11)
have [a page of their own](settings.md). `config/goal.md`, `config/harness.md` and `config/idea.md` (15) are the user's, in Markdown.
"""


def contracts_page() -> str:
    """Return `contracts.md`."""
    lines = [CONTRACTS_HEAD]
    shared: dict[str, Any] = {}
    for title, model, where in CONTRACTS:
        schema = model.model_json_schema()
        shared |= schema.get("$defs", {})
        lines += [f"## {title}", "", f"{where}.", "", *_fields(schema), ""]
    lines += [
        "## What an agent answers",
        "",
        "One JSON document; its JSON Schema is in the file that `SID_OUTPUT_SCHEMA` names. An executor answers in free text.",
        "",
    ]
    for role, model in ANSWERS:
        schema = model.model_json_schema()
        shared |= schema.get("$defs", {})
        if model.__name__ not in shared:
            lines += [f"### {role}", "", *_fields(schema), ""]
        else:
            lines += [f"### {role}", "", f"[{model.__name__}](#{model.__name__.lower()})", ""]
    lines += ["## Objects", ""]
    own = {model.__name__ for _, model, _ in CONTRACTS}
    for name, schema in sorted(shared.items()):
        if name not in own or f"(#{name.lower()})" in "\n".join(lines):
            lines += [
                f"### {name}",
                "",
                cell(schema.get("description", "").split("\n\n")[0]),
                "",
                *_fields(schema),
                "",
            ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _fields(schema: dict[str, Any]) -> list[str]:
    required = schema.get("required", ())
    rows = [
        (f"`{name}`", type_text(inner), "required" if name in required else "")
        for name, inner in schema.get("properties", {}).items()
    ]
    return table(("field", "type", ""), rows)
