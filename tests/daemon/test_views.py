"""The files of a root are those of the contracts: names, order and meaning of every field."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from sid_daemon.store.documents import LISTS, render_list
from sid_daemon.store.views import project
from sid_daemon.store.views_round import result_rows, row_line
from sid_protocol.commands import AnyCommand
from sid_protocol.events import (
    AgentFailed,
    AnyEvent,
    CandidateCommitted,
    CandidateRefused,
    ConfigChanged,
    GuardResult,
    GuardsDone,
    PlanJudged,
    RunStopped,
    StopRequested,
)
from sid_protocol.lessons import TrackLessons
from sid_protocol.records import (
    AgentSettings,
    Baseline,
    BenchmarkResult,
    IterationHistory,
    IterationState,
    MergeReport,
    Plan,
    RawEntry,
    Record,
    ResearchBrief,
    TrackEvent,
)
from sid_protocol.settings import Measurement, Settings
from tests.core.play import BASE, Play, World, measured, played, review, scripted

FAILURE = ["what", "why", "category", "lesson"]
ENTRANT = ["plan_id", "score", "approach_family", "hypothesis", "sub_scores"]
PLAN = """plan_id planner_id round hypothesis approach_family critic_approved target_files steps expected_outcome
    history_reference critic_review architect_review"""
CONTRACTS: dict[str, tuple[type[Record], str]] = {
    r"plans/round_\d+/plan_planner_\w\.json": (Plan, PLAN),
    r"state/plan_archive/round_\d+/plan_planner_\w\.json": (Plan, PLAN),
    r"state/benchmark_results/round_\d+/executor_\d+\.json": (
        BenchmarkResult,
        """executor_id plan_id benchmark_score benchmark_raw status sub_scores failure_analysis timestamp
        force_kill commit diff_stat cost durations findings summary""",
    ),
    r"state/research_briefs/round_\d+\.json": (
        ResearchBrief,
        "iteration researcher_id repo_analysis_summary ideas",
    ),
    r"state/iteration_history/round_\d+\.json": (
        IterationHistory,
        """iteration baseline_score winner losers research_brief_id rejected_plans force_kills agent_failures
        evidence started_at ended_at cost ladder costs""",
    ),
    r"state/merge_reports/round_\d+\.json": (
        MergeReport,
        "iteration goal_slug winner archived regressions_detected re_benchmark_score status reason",
    ),
    r"state/iteration_state\.json": (
        IterationState,
        """iteration status current_step started_at updated_at research planning execution tournament recording
        user_ideas_consumed""",
    ),
    r"state/agent-settings\.json": (
        AgentSettings,
        """trust_confirmed si_setting_goal si_setting_benchmark si_setting_harness iterations best_score
        current_milestone current_phase plateau_consecutive_count circuit_breaker_count status goal_slug""",
    ),
    r"state/lessons\.json": (TrackLessons, "run_id repo topic at seen standing lessons replays"),
    r"tracking/baseline\.json": (Baseline, "baseline_score recorded_at samples commit benchmark_command"),
}


def settings(**more: Any) -> Settings:
    fields: dict[str, Any] = {
        "number_of_agents": 5,
        "max_iterations": 2,
        "benchmark_command": "python bench.py",
        "guard_command": ["make test"],
    }
    return Settings(**{**fields, **more})


def gains(arm: str, iteration: int) -> float:
    return (
        10.0 + iteration / 10 if arm == "executor_2" else 10.0 + (iteration - 1) / 10 if arm == "A" else 9.0
    )


def eventful(**more: Any) -> Play:
    """Return a run in whose first round everything happens that a round can tell of."""
    red = GuardsDone(results=(GuardResult(command="make test", passed=False, output="1 failed"),))
    sealed = CandidateRefused(
        category="sealed_file_violation", what="sealed file changed", paths=("bench.py",)
    )
    script: dict[str, list[AnyEvent]] = {
        "r1.research": [AgentFailed(why="no JSON")],
        "r1.judge.planner_e": [PlanJudged(review=review("rejected", "tried in round 0"))],
        "r1.guard.executor_2": [red],
        "r1.run.executor_3": [sealed],
    }
    answer = scripted(script)

    def answers(command: AnyCommand) -> AnyEvent | None:
        found = answer(command)
        if found is None and command.kind == "measure":
            return measured(gains(arm_of(play, command), command.iteration), sub_scores={"memory": 3.0})
        return found

    play = Play(World(settings(**more), ideas=("use a set",), answer=answers))
    play.start()
    play.run(hold="run_plan")
    play.hang("r1.run.executor_1.0.1")
    play.run()
    return play


def arm_of(play: Play, command: Any) -> str:
    return play.world.merged_as["arm"] if command.arm == "merged" else str(command.arm)


def document(play: Play, path: str) -> Any:
    return json.loads(play.files[path])


def lines(play: Play, file: str) -> list[str]:
    return render_list(file, play.entries[file]).splitlines()


def test_every_file_has_the_fields_of_its_contract_in_their_order() -> None:
    play = eventful()

    seen = set()
    for path, text in play.files.items():
        if path in LISTS:
            assert text == render_list(path, [])  # there from the start
            continue
        if path == "state/lessons.md":
            assert text.startswith("# Lessons of ")
            continue
        pattern = next(one for one in CONTRACTS if re.fullmatch(one, path))
        model, fields = CONTRACTS[pattern]
        seen.add(pattern)
        assert list(json.loads(text)) == fields.split(), path
        assert model.model_validate_json(text)
        assert text.endswith("}\n")
        assert text.startswith("{\n  ")
    assert seen == set(CONTRACTS)
    for entry in play.entries["tracking/raw_data.json"]:
        fields = "iteration plan_id benchmark_score is_winner approach_family sub_scores"
        assert list(json.loads(entry)) == fields.split()
        assert RawEntry.model_validate_json(entry)


def test_noisy_scores_carry_their_measurement_at_the_end() -> None:
    jitter = iter(range(10_000))
    play = played(
        settings(guard_command=[], measurement=Measurement(mode="noisy", screen_blocks=1), max_iterations=1),
        score=lambda arm, _: (12.0 if arm == "executor_2" else 10.0) + next(jitter) % 7 * 0.01,
    )

    result = document(play, "state/benchmark_results/round_1/executor_2.json")
    assert {"samples", "interval", "n"} <= set(result["measurement"])
    entry = json.loads(play.entries["tracking/raw_data.json"][1])
    assert list(entry)[-1] == "measurement"
    assert list(entry["measurement"]) == ["n", "gain", "ci", "p", "mode", "sd_pair"]
    report = document(play, "state/merge_reports/round_1.json")
    assert report["measurement"]["n_pairs"] == result["measurement"]["n"]
    assert (report["winner"]["score_after"], report["re_benchmark_score"]) == (result["benchmark_score"],) * 2
    assert list(document(play, "state/agent-settings.json"))[-1] == "measurement"


def test_a_round_is_told_whole() -> None:
    play = eventful()
    history = document(play, "state/iteration_history/round_1.json")

    assert history["baseline_score"] == 10.0
    assert list(history["winner"]) == ENTRANT
    assert (history["winner"]["plan_id"], history["winner"]["score"]) == ("round_1_planner_b", 10.1)
    assert [list(one) for one in history["losers"]] == [[*ENTRANT, "failure_analysis"]] * 3
    assert [(one["plan_id"][-1], one["score"]) for one in history["losers"]] == [
        ("a", None),
        ("c", None),
        ("d", 9.0),
    ]
    categories = [one["failure_analysis"]["category"] for one in history["losers"]]
    assert categories == ["timeout", "sealed_file_violation", "regression"]
    assert all(list(one["failure_analysis"]) == FAILURE for one in history["losers"])
    assert history["research_brief_id"] == "round_1"
    assert [one["plan_id"] for one in history["rejected_plans"]] == ["round_1_planner_e"]
    assert [one["agent_id"] for one in history["force_kills"]] == ["executor_1"]
    assert [one["agent_id"] for one in history["agent_failures"]] == ["researcher"]
    assert history["started_at"] < history["ended_at"]


def test_a_merge_can_be_checked_by_its_evidence() -> None:
    play = eventful()
    (evidence,) = document(play, "state/iteration_history/round_1.json")["evidence"]

    assert list(evidence) == ["claim", "command", "output", "verdict"]
    assert "primary 10.0 → 10.1" in evidence["claim"]
    assert evidence["command"] == "python bench.py"
    assert "executor_2: 10.1 (success)" in evidence["output"]
    merge = document(play, "state/merge_reports/round_1.json")["winner"]["commit"]
    assert f'worktree add --detach "$d" {merge}' in evidence["verdict"]
    assert evidence["verdict"].endswith("SID_ITERATION=1 sh -c 'python bench.py'")


def test_a_round_without_a_win_has_its_evidence_too() -> None:
    play = played(settings(guard_command=[]))
    (evidence,) = document(play, "state/iteration_history/round_1.json")["evidence"]

    assert evidence["claim"] == "no candidate of round 1 improves primary from 10.0"
    assert evidence["verdict"].startswith("not merged: no candidate is better")


def test_a_round_without_a_score_says_of_every_candidate_why() -> None:
    refused = CandidateRefused(commit="d" * 40, category="scope_error", what="changed outside the scope: x")
    script: dict[str, list[AnyEvent]] = {f"r1.run.executor_{k}": [refused] for k in range(1, 6)}
    play = played(settings(guard_command=[]), answer=scripted(script))

    (evidence,) = document(play, "state/iteration_history/round_1.json")["evidence"]
    assert evidence["claim"] == "no candidate of round 1 improves primary from 10.0"
    assert evidence["output"].splitlines() == [
        f"executor_{k}: no score (error): changed outside the scope: x" for k in range(1, 6)
    ]
    assert evidence["verdict"] == "not merged: no candidate gave a valid score"


@pytest.mark.parametrize("mode", ["deterministic", "noisy"])
@pytest.mark.parametrize("level", [10.0, None])
def test_a_round_that_measured_no_incumbent_names_the_score_that_is_known(
    mode: Any, level: float | None
) -> None:
    values = settings(max_iterations=1, measurement=Measurement(mode=mode))
    play = played(values, score=lambda arm, _: level if arm == "A" else None)

    (evidence,) = document(play, "state/iteration_history/round_1.json")["evidence"]
    assert evidence["claim"] == "no candidate of round 1 improves primary from 10.0"


def test_what_an_executor_said_is_kept_with_its_result() -> None:
    said = CandidateCommitted(
        commit="c" * 40, diff_stat="1 file changed", summary="I cached it.\nIt is faster."
    )
    play = played(settings(guard_command=[]), answer=scripted({"r1.run.executor_1": [said]}))

    results = [document(play, f"state/benchmark_results/round_1/executor_{k}.json") for k in (1, 2)]
    assert [result["summary"] for result in results] == ["I cached it.\nIt is faster.", ""]


def test_what_detectors_saw_stands_in_result_and_evidence() -> None:
    seen = ("exit_trick: app.py: os._exit", "clock_read: app.py: time.time")
    script: dict[str, list[AnyEvent]] = {
        "r1.run.executor_1": [
            CandidateCommitted(commit="c" * 40, diff_stat="1 file changed", findings=seen[1:])
        ],
        "r1.run.executor_3": [
            CandidateRefused(
                commit="d" * 40, category="sealed_file_violation", what="a detector rejects it", findings=seen
            )
        ],
    }
    play = played(settings(guard_command=[]), answer=scripted(script))

    of_round, warned, rejected = document(play, "state/iteration_history/round_1.json")["evidence"]
    assert of_round["claim"].startswith("no candidate of round 1")
    assert warned["claim"] == "executor_1: 1 finding in its changes"
    assert (warned["output"], warned["verdict"]) == (
        "clock_read: app.py: time.time",
        "warned of, and measured all the same",
    )
    assert warned["command"].endswith(f" diff {BASE} {'c' * 40}")
    assert rejected["claim"] == "executor_3: 2 findings in its changes"
    assert rejected["verdict"] == "rejected, and not measured"
    results = [document(play, f"state/benchmark_results/round_1/executor_{k}.json") for k in (1, 2, 3)]
    assert [len(result["findings"]) for result in results] == [1, 0, 2]


def test_losers_that_were_merely_not_better_have_no_failure() -> None:
    play = played(settings(guard_command=[]))

    losers = document(play, "state/iteration_history/round_1.json")["losers"]
    assert [one["failure_analysis"] for one in losers] == [None] * 5


def test_the_merge_report_names_branch_scores_and_tags() -> None:
    report = document(eventful(), "state/merge_reports/round_1.json")

    winner = report["winner"]
    fields = ["executor_id", "branch", "hypothesis", "score_before", "score_after", "sub_scores"]
    assert list(winner)[: len(fields)] == fields
    assert winner["branch"] == "experiment/round_1_executor_2"
    assert (winner["score_before"], winner["score_after"]) == (10.0, 10.1)
    assert winner["sub_scores"] == {"memory": 3.0}
    assert report["archived"] == [f"archive/round_1_executor_{number}" for number in (1, 3, 4)]
    assert (report["status"], report["reason"], report["re_benchmark_score"]) == ("merged", None, 10.1)
    assert report["goal_slug"] == "faster_sieve"


def test_the_results_table_has_a_row_an_experiment() -> None:
    rows = lines(eventful(), "tracking/results.tsv")

    assert rows[0] == "# metric_direction: higher_is_better"
    assert rows[1].split("\t") == [
        "iteration",
        "commit",
        "metric",
        "delta",
        "guard",
        "status",
        "description",
    ]
    assert rows[2].split("\t") == ["0", BASE[:7], "10.0", "0.0", "-", "baseline", "baseline"]
    cells = [row.split("\t") for row in rows[3:7]]
    assert [(c[0], c[2], c[3], c[4], c[5]) for c in cells] == [
        ("1", "-", "-", "-", "crash"),
        ("1", "10.1", "+0.1", "pass", "keep (reworked)"),
        ("1", "-", "-", "-", "discard"),
        ("1", "9.0", "-1.0", "pass", "discard"),
    ]
    assert all(len(row.split("\t")) == 7 for row in rows[1:])
    assert cells[0][1] == BASE[:7], "one that made no commit stands at the one it began from, as its tag does"
    assert {len(row.split("\t")[1]) for row in rows[2:]} == {7}


def test_a_table_of_a_metric_that_is_better_lower_says_so() -> None:
    play = played(settings(benchmark_direction="lower_is_better", max_iterations=1))

    assert lines(play, "tracking/results.tsv")[0] == "# metric_direction: lower_is_better"


@pytest.mark.parametrize(("memory", "told"), [(9.0, ["fail", "discard"]), (1.5, ["pass", "keep"])])
def test_a_sub_score_that_falls_is_a_failed_guard_of_its_row(memory: float, told: list[str]) -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        heavier = command.kind == "measure" and command.arm in ("executor_1", "merged")
        score, used = (12.0, memory) if heavier else (10.0, 1.0)
        return measured(score, sub_scores={"memory": used}) if command.kind == "measure" else None

    rules = {"guards": {"memory": {"direction": "lower_is_better", "tolerance": 1.0}}}
    values = settings(guard_command=[], max_iterations=1, measurement=Measurement.model_validate(rules))
    rows = [line.split("\t") for line in lines(played(values, answer=answer), "tracking/results.tsv")[2:]]
    assert [row[4:6] for row in rows][:3] == [["-", "baseline"], told, ["-", "discard"]]


def test_descriptions_keep_to_their_line() -> None:
    play = played(settings(number_of_agents=1, max_iterations=1))
    state = play.steps[-1][0]
    assert state is not None
    one = state.now_round.executions["executor_1"]
    torn = one.plan.model_copy(update={"hypothesis": "Cache\tthe\n\ntable\x1b[31m"})
    now = replace(state.now_round, executions={"executor_1": replace(one, plan=torn)})
    (row,) = result_rows(now)
    assert row_line(row).split("\t")[6].startswith("Cache the table[31m")


def test_raw_data_is_one_array_in_order() -> None:
    play = eventful()
    raw = json.loads(render_list("tracking/raw_data.json", play.entries["tracking/raw_data.json"]))

    first = [one for one in raw if one["iteration"] == 1]
    assert [one["plan_id"][-1] for one in first] == ["a", "b", "c", "d"]
    assert [one["is_winner"] for one in first] == [False, True, False, False]
    assert first[0]["benchmark_score"] is None


@pytest.mark.parametrize("file", LISTS)
def test_a_list_without_entries_is_whole_too(file: str) -> None:
    text = render_list(file, [])

    assert text == "" or text.endswith("\n")
    if file.endswith(".json"):
        assert json.loads(text) == []


def test_an_unknown_list_is_refused() -> None:
    with pytest.raises(KeyError):
        render_list("tracking/other.json", [])


def test_force_kills_become_improvements() -> None:
    text = render_list("state/improvements.md", eventful().entries["state/improvements.md"])

    heading, blank, line = text.splitlines()
    assert re.fullmatch(r"## 20250301-120000-a1b2 · round 1 · 2025-03-01T12:00:\S+", heading)
    assert blank == ""
    assert line.startswith("- agent executor_1 · reason unknown · last_tool none · ")
    assert "processes_killed 2" in line
    assert line.endswith("snippet: …")


def test_a_changed_setting_is_an_event() -> None:
    play = eventful()
    play.feed(ConfigChanged(field="plateau_window", old_value=3, new_value=5))

    told = TrackEvent.model_validate_json(play.entries["tracking/events.json"][-1])
    assert (told.event_type, told.iteration) == ("config_change", 2)
    assert told.details == {"field": "plateau_window", "old_value": 3, "new_value": 5, "source": "user"}


def test_the_step_is_the_earliest_that_is_not_finished() -> None:
    play = Play(World(settings(number_of_agents=2, guard_command=[]), score=gains))
    play.start()
    seen = []
    while play.turn():
        state = document(play, "state/iteration_state.json")
        if state["iteration"] == 1:
            seen.append(state["current_step"])

    order = ["research", "planning", "critic_review", "execution", "tournament", "recording"]
    assert list(dict.fromkeys(seen)) == order
    assert seen == sorted(seen, key=order.index)


def test_steps_overlap_in_the_state() -> None:
    play = Play(World(settings(number_of_agents=2, guard_command=[]), score=gains))
    play.hung.add("r1.plan.planner_b.1")
    play.start()
    play.run()
    state = document(play, "state/iteration_state.json")

    assert state["current_step"] == "planning"
    assert state["research"]["status"] == "completed"
    assert state["research"]["output_path"] == "state/research_briefs/round_1.json"
    assert state["planning"]["plans"] == {
        "planner_a": {
            "status": "completed",
            "output_path": "plans/round_1/plan_planner_a.json",
            "critic_approved": True,
        },
        "planner_b": {"status": "in_progress", "output_path": None, "critic_approved": None},
    }
    assert state["execution"]["executors"]["executor_1"] == {
        "status": "completed",
        "plan_id": "round_1_planner_a",
        "output_path": "state/benchmark_results/round_1/executor_1.json",
        "benchmark_score": 9.0,
    }
    assert state["tournament"]["status"] == "pending"


def test_an_ended_round_is_completed_with_its_recording() -> None:
    state = document(eventful(), "state/iteration_state.json")

    assert (state["iteration"], state["status"], state["current_step"]) == (2, "completed", "stop_check")
    assert state["recording"] == {
        "status": "completed",
        "history_path": "state/iteration_history/round_2.json",
        "visualization_updated": True,
        "cleanup_done": True,
    }
    assert (state["tournament"]["winner"], state["tournament"]["winner_score"]) == ("executor_2", 10.2)
    assert state["user_ideas_consumed"] == ["use a set"]


def test_a_round_without_candidates_skips_what_it_did_not_do() -> None:
    rejected = PlanJudged(review=review("rejected", "no"))
    play = played(settings(max_iterations=1), answer=scripted({"judge": [rejected] * 5}))
    state = document(play, "state/iteration_state.json")

    assert [state[step]["status"] for step in ("planning", "execution", "tournament")] == [
        "completed",
        "skipped",
        "skipped",
    ]
    report = document(play, "state/merge_reports/round_1.json")
    assert report["status"] == "all_rejected"
    assert report["reason"].startswith("round_1_planner_a: no; ")


def test_a_stop_interrupts_the_round() -> None:
    play = Play(World(settings()))
    play.start()
    play.run(until=lambda p: "r1.plan.planner_a.1" in p.now.outstanding)
    play.feed(StopRequested())
    play.feed(RunStopped())

    assert document(play, "state/iteration_state.json")["status"] == "interrupted"
    assert document(play, "state/agent-settings.json")["status"] == "user_stopped"
    play.start()
    assert document(play, "state/iteration_state.json")["status"] == "in_progress"


def test_the_baseline_is_kept_as_measured() -> None:
    baseline = document(eventful(), "tracking/baseline.json")

    assert (baseline["baseline_score"], baseline["samples"], baseline["commit"]) == (10.0, [10.0] * 3, BASE)


def test_only_what_changed_is_written() -> None:
    play = eventful()

    for before, event, after in play.steps:
        for path, text in project(before, event, after).documents.items():
            if path == "state/iteration_state.json" and before is not None:
                assert f'"updated_at": "{event.at}"' in text
        assert project(after, event, after).documents == {}
    writes = sum("state/iteration_state.json" in project(*one).documents for one in play.steps)
    assert writes < len(play.steps)


def test_plans_are_archived_with_their_reviews() -> None:
    play = eventful()

    kept = document(play, "state/plan_archive/round_1/plan_planner_e.json")
    assert kept["critic_review"]["verdict"] == "rejected"
    assert kept["architect_review"]["verdict"] == "approve"
    assert (kept["critic_approved"], kept["planner_id"], kept["round"]) == (False, "planner_e", 1)
