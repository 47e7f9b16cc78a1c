"""The whole loop with the command back end: three rounds on a dirty checkout, and what they leave behind."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import contract_files
from tests.e2e.contract_files import load
from tests.e2e.harness import SEALED_BENCHMARK, Agent, World, clean_repository, module_world
from tests.repos import Repo

HOOKS = ("pre-commit", "commit-msg", "post-commit", "post-checkout", "post-merge", "pre-merge-commit")
HOOKS_OF_REFS = ("reference-transaction", "post-rewrite", "pre-push", "fsmonitor-watchman")


@dataclass(frozen=True, slots=True)
class Finished:
    """A run of three rounds that has ended, and how the checkout was before it."""

    world: World
    repo: Repo
    agent: Agent
    before: dict[str, str]
    target: str
    said: str

    @property
    def root(self) -> Path:
        return self.repo.path / ".sid/topics/default"


def dirty(repo: Repo) -> None:
    """Leave a checkout as a user leaves it in the middle of work: on a branch, staged, changed, stashed."""
    repo.git("checkout", "--quiet", "-b", "work")
    repo.commit({"notes.txt": "one\n", "kept.txt": "kept\n"}, "Notes")
    repo.write({"notes.txt": "stashed\n"})
    repo.git("stash", "push", "--quiet")
    repo.write({"kept.txt": "modified\n", "staged.txt": "staged\n", "untracked ü.txt": "untracked\n"})
    repo.git("add", "staged.txt")
    repo.write({"staged.txt": "staged, then changed\n"})
    repo.git("config", "user.note", "mine")
    for name in (*HOOKS, *HOOKS_OF_REFS):
        hook = repo.path / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> '{repo.path.parent}/hooks-run'\n")
        hook.chmod(0o755)


# Loses, is rejected, changes nothing: what a record must hold beside winners.
STORY = (
    {"role": "planner", "agent": "planner_b", "round": 2, "file": "bench.sh", "change": "echo 99\n"},
    {"role": "executor", "agent": "executor_2", "round": 3, "edit": {}},
)


@pytest.fixture(scope="module")
def finished(session_dir: Path) -> Iterator[Finished]:
    with module_world(session_dir) as world:
        path = world.base / "mein Projekt ü"
        path.mkdir()
        repo = Repo(path)
        repo.git("init", "--quiet", "--initial-branch=main")
        target = repo.commit(SEALED_BENCHMARK, "Start")
        dirty(repo)
        agent = world.agent()
        agent.script(*STORY)
        before = repo.fingerprint()
        world.init(repo, agent, agents=2)
        said = world.run(repo, "--rounds", "3").out
        yield Finished(world, repo, agent, before, target, said)


def test_the_users_checkout_is_byte_identical(finished: Finished) -> None:
    assert finished.repo.fingerprint() == finished.before
    assert finished.repo.git("stash", "show", "-p", "stash@{0}").count("+stashed") == 1
    assert finished.repo.git("rev-parse", "main") == finished.target
    assert not (finished.repo.path.parent / "hooks-run").exists(), "a hook of the repository was run"


def test_the_improvement_branch_holds_only_measured_merges(finished: Finished) -> None:
    log = finished.repo.git("log", "--first-parent", "--format=%P|%B|", "main..improve/raise_the_number")
    entries = [entry.strip("\n").removesuffix("\n\n") for entry in log.split("|\n") if entry.strip()]
    told = [(len(entry.split("|")[0].split()), entry.split("|")[1].strip()) for entry in entries]
    assert told == [
        (2, f"Iteration {n}: Set the value to {10 * n}: it counts directly (score: {before} → {10.0 * n})")
        for n, before in ((3, 20.0), (2, 10.0), (1, 1.0))
    ]


def test_losers_are_tags_and_nothing_else_is_left(finished: Finished) -> None:
    with clean_repository(finished.repo):
        assert finished.repo.branches() == ["improve/raise_the_number", "main", "work"]
        # planner_b's plan of round 2 was rejected, so it never was a candidate.
        assert finished.repo.tags() == ["archive/round_1_executor_2", "archive/round_3_executor_2"]
    assert finished.repo.git("show", "archive/round_1_executor_2:value.txt") == "9"
    assert not (finished.root / "pool").exists()


def test_every_contract_file_holds_what_it_promises(finished: Finished) -> None:
    root = finished.root
    contract_files.check_root(root, 3)

    assert load(root / "tracking/baseline.json")["baseline_score"] == 1
    assert [
        (entry["iteration"], entry["plan_id"], entry["benchmark_score"], entry["is_winner"])
        for entry in load(root / "tracking/raw_data.json")
    ] == [
        (1, "round_1_planner_a", 10.0, True),
        (1, "round_1_planner_b", 9.0, False),
        (2, "round_2_planner_a", 20.0, True),
        (3, "round_3_planner_a", 30.0, True),
        (3, "round_3_planner_b", None, False),
    ]
    second, third = (load(root / f"state/iteration_history/round_{n}.json") for n in (2, 3))
    assert [plan["plan_id"] for plan in second["rejected_plans"]] == ["round_2_planner_b"]
    assert third["losers"][0]["failure_analysis"]["category"] == "logic_error"
    report = load(root / "state/merge_reports/round_1.json")
    assert (report["status"], report["archived"]) == ("merged", ["archive/round_1_executor_2"])
    assert report["winner"]["branch"] == "experiment/round_1_executor_1"
    settings = load(root / "state/agent-settings.json")
    assert (settings["iterations"], settings["best_score"], settings["status"]) == (3, 30.0, "max_iterations")
    assert load(root / "state/iteration_state.json")["status"] == "completed"


def test_results_tsv_has_a_row_an_experiment(finished: Finished) -> None:
    direction, rows = contract_files.rows_of((finished.root / "tracking/results.tsv").read_text())

    assert direction == "higher_is_better"
    assert [(row["iteration"], row["metric"], row["delta"], row["guard"], row["status"]) for row in rows] == [
        ("0", "1.0", "0.0", "-", "baseline"),
        ("1", "10.0", "+9.0", "-", "keep"),
        ("1", "9.0", "+8.0", "-", "discard"),
        ("2", "20.0", "+10.0", "-", "keep"),
        ("3", "30.0", "+10.0", "-", "keep"),
        ("3", "-", "-", "-", "no-op"),
    ]
    assert all(len(row["commit"]) == 7 for row in rows if row["status"] != "no-op")


def test_the_run_ends_with_the_summary(finished: Finished) -> None:
    summary = finished.said[finished.said.index("=== Self") :].splitlines()

    assert summary[:5] == [
        "=== Self-Improvement Loop Complete ===",
        "Status: max_iterations",
        "Iterations: 3",
        "Best Score: 30.0 (baseline: 1.0)",
        "Improvement: 29.0 (2900.0%)",
    ]
    path = shlex.quote(str(finished.repo.path))
    assert sum("skipped" in line for line in summary) == 2
    assert summary[-2:] == [
        f"Push skipped (auto_push: false). Run manually: git -C {path} push origin improve/raise_the_number",
        "PR creation skipped (auto_pr: false). Run manually: gh pr create --head improve/raise_the_number --base main",
    ]


def test_export_writes_every_view_identically(finished: Finished) -> None:
    views = {
        path: path.read_bytes()
        for folder in ("state", "plans", "tracking")
        for path in (finished.root / folder).rglob("*")
        if path.is_file() and not path.name.startswith(("run.db", "progress."))
    }
    for path in views:
        path.write_text("spoilt")

    told = finished.world.sictl("export", finished.repo.path, "--json").json

    assert {path: path.read_bytes() for path in views} == views
    assert {Path(name) for name in told["files"]} >= set(views)


def test_looking_verbs_tell_what_happened(finished: Finished) -> None:
    world, path = finished.world, finished.repo.path
    rounds = world.sictl("history", path, "--json").json["rounds"]
    assert [(row["iteration"], row["status"], row["score"]) for row in rounds] == [
        (1, "merged", 10.0), (2, "merged", 20.0), (3, "merged", 30.0),
    ]  # fmt: skip
    row = world.row(finished.repo)
    assert (row["status"], row["best_score"], row["baseline"], row["iteration"]) == (
        "max_iterations",
        30.0,
        1.0,
        3,
    )
    shown = world.sictl("show", path, "2", "--json").json["round"]
    assert [plan["critic_approved"] for plan in shown["plans"]] == [True, False]
    assert "is sealed" in shown["plans"][1]["critic_review"]["rejection_reason"]
    assert "round 3" in world.sictl("show", path).out.lower()
    assert "-1\n+30\n" in world.sictl("diff", path).out
    for verb in ("history", "show", "status"):
        assert world.sictl(verb, path).out.strip()


@pytest.mark.parametrize(
    ("form", "start"), [pytest.param("png", b"\x89PNG", marks=pytest.mark.slow), ("svg", b"<svg")]
)
def test_plot_draws_the_chart(finished: Finished, form: str, start: bytes) -> None:
    picture = finished.world.base / f"chart.{form}"
    finished.world.sictl("plot", finished.repo.path, "-o", picture)

    assert picture.read_bytes().startswith(start)


def test_config_is_checked_and_its_changes_are_events(finished: Finished) -> None:
    world, path = finished.world, finished.repo.path
    changed = world.sictl("config", "set", path, "deadlines.executor", "77", "--json").json

    assert (changed["changed"]["old"], changed["changed"]["new"]) == (1800, 77)
    assert world.sictl("config", "get", path, "deadlines.executor").out == "77\n"
    assert load(finished.root / "config/settings.json")["deadlines"] == {"executor": 77}
    last = load(finished.root / "tracking/events.json")[-1]
    assert (last["event_type"], last["details"]["field"]) == ("config_change", "deadlines.executor")
    again = world.sictl("config", "set", path, "deadlines.executor", "77", "--json").json
    assert again["changed"] is None
    assert load(finished.root / "tracking/events.json")[-1] == last
    log = world.sictl("attach", path, "--no-follow", "--since", "0", "--json").out
    told = map(json.loads, log.splitlines())
    assert [one["new_value"] for one in told if one["event"] == "config_changed"][-1:] == [77]
    wrong = world.sictl("config", "set", path, "plateau_windows", "3", code=2)
    assert "did you mean plateau_window?" in wrong.err
    unknown = world.sictl("config", "set", path, "detectors", '{"no_such": "warn"}', code=2)
    assert "there is no detector no_such" in unknown.err


def test_config_mends_what_a_hand_has_broken(finished: Finished) -> None:
    world, path, file = finished.world, finished.repo.path, finished.root / "config/settings.json"
    file.write_text(json.dumps({**load(file), "plateau_window": "many"}))

    assert "many" in world.sictl("config", "get", path, "plateau_window", code=2).err
    mended = world.sictl("config", "set", path, "plateau_window", "3", "--json").json
    assert (mended["changed"]["old"], mended["changed"]["new"]) == ("many", 3)
    assert world.sictl("config", "get", path, "plateau_window").out == "3\n"


def test_an_idea_is_kept_for_the_next_planner(finished: Finished) -> None:
    finished.world.sictl("idea", finished.repo.path, "Try a hundred")

    assert "Try a hundred" in (finished.root / "config/idea.md").read_text()


def test_agents_get_what_their_role_needs(finished: Finished) -> None:
    planner = finished.agent.seen("2.planner.planner_b.1")
    executor = finished.agent.seen("2.executor.executor_1.1")

    assert planner["env"]["SID_OUTPUT_SCHEMA"]
    assert (
        executor["cwd"]
        == executor["env"]["SID_WORKTREE"]
        == f"{finished.repo.path}/worktrees/round_2_executor_1"
    )
    assert "SID_OUTPUT_SCHEMA" not in executor["env"]
    assert not {"SID_STATE_DIR", "SID_SOCKET", "GIT_AUTHOR_NAME"} & executor["env"].keys()
    assert "Set the value to 10" in planner["prompt"], "round 2 is planned without the history of round 1"
