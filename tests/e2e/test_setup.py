"""Bad set-up: each ends in one line that says what to do, and nothing is written, lost or left running."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import BIN, SEALED_BENCHMARK, Done, World
from tests.repos import Repo

ROOT = ".sid/topics/default"


def one_line(done: Done) -> str:
    """Return the one problem that was told."""
    lines = [line for line in done.err.splitlines() if line.startswith("sictl: ")]
    assert len(lines) == 1, done.err
    return lines[0]


def test_places_that_are_no_repository_with_commits(world: World, repo: MakeRepo, short_dir: Path) -> None:
    world.daemon()
    agent = world.agent()
    plain = Repo(short_dir / "plain")
    plain.path.mkdir()
    for made, words in (
        (plain, "git init"),
        (repo(None, name="bare", bare=True), "bare"),
        (repo(None, name="empty"), "commit"),
    ):
        assert words in one_line(world.init(made, agent, code=1))
        assert not (made.path / ".sid").exists()
    missing = Repo(short_dir / "missing")
    assert "is not a folder" in one_line(world.init(missing, agent, code=2))


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--set", 'target_branch="develop"'), 1, "no branch develop"),
        (("--set", "plateau_windows=3"), 2, "did you mean plateau_window?"),
        (("--set", 'plateau_window="3"'), 2, "plateau_window"),
        (("--set", "max_iterations=-1"), 2, "max_iterations"),
        (("--set", "deadlines.executer=3"), 2, "did you mean executor?"),
        (("--set", "max_iterations=NaN"), 2, "max_iterations"),
        (
            ("--set", "max_iterations=1e400"),
            2,
            "setting max_iterations: input should be a valid integer (got '1e400')",
        ),
        (("--set", "topic_slug=other"), 2, "--topic NAME"),
        (("--agents", "9"), 2, "9 agents need as many approach families, there are 8"),
        (("--format", "xml"), 2, "benchmark_format"),
        (("--agent-command", "no-such-program --x"), 2, "no-such-program is not on PATH"),
        (("--agent-command", "'unfinished"), 2, "cannot be split"),
        (("--backend", "oracle"), 2, "agent_backend"),
    ],
)
def test_settings_are_refused_with_what_was_meant(
    settled: tuple[World, Repo], flags: tuple[str, ...], code: int, words: str
) -> None:
    world, numbers = settled
    done = world.sictl(
        "init",
        numbers.path,
        "--objective",
        "x y z",
        "--benchmark",
        "sh bench.sh",
        "--trust",
        *flags,
        code=code,
    )

    assert words in one_line(done)
    assert not (numbers.path / ".sid").exists()
    assert numbers.branches() == ["main"]


@pytest.fixture(scope="module")
def settled(session_dir: Path) -> Iterator[tuple[World, Repo]]:
    from tests.e2e.harness import module_world

    with module_world(session_dir) as world:
        numbers = Repo(world.base / "numbers")
        numbers.path.mkdir()
        numbers.git("init", "--quiet", "--initial-branch=main")
        numbers.commit(SEALED_BENCHMARK, "Start")
        world.daemon()
        yield world, numbers


@pytest.mark.parametrize(
    ("script", "form", "words"),
    [
        ("echo broken >&2; exit 3\n", "number", "broken"),
        ("echo no number here\n", "number", "number"),
        ("echo NaN\n", "number", "nan"),
        ("echo '{\"other\": 1}'\n", "json", "primary"),
        ("printf '\\377\\376\\000junk'\n", "number", "number"),
    ],
)
def test_a_benchmark_that_fails_on_the_baseline_is_refused_with_its_words(
    settled: tuple[World, Repo], script: str, form: str, words: str
) -> None:
    world, numbers = settled
    numbers.commit({"bad.sh": script}, "Bad")
    done = world.sictl(
        "init",
        numbers.path,
        "--objective",
        "x y z",
        "--benchmark",
        "sh bad.sh",
        "--format",
        form,
        "--trust",
        code=5,
    )

    assert words in one_line(done).lower()
    assert not (numbers.path / ".sid").exists()
    assert numbers.branches() == ["main"]


def test_init_names_all_missing_flags_at_once(settled: tuple[World, Repo]) -> None:
    world, numbers = settled
    done = world.sictl("init", numbers.path, code=2)

    assert all(flag in one_line(done) for flag in ("--objective", "--benchmark", "--trust"))
    assert done.out == ""


def test_nothing_runs_without_trust_and_after_any_change_of_what_it_covers(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    flags = (
        "--objective",
        "x y z",
        "--benchmark",
        f"touch {world.base}/ran; cat value.txt",
        "--format",
        "number",
    )
    assert "--trust" in one_line(world.sictl("init", numbers.path, *flags, code=2))
    assert not (world.base / "ran").exists()

    world.init(numbers, agent)
    settings = numbers.path / ROOT / "config/settings.json"
    raw = json.loads(settings.read_text())
    for key, value in (
        ("benchmark_command", "echo 99"),
        ("scope", {"include": ["bench.sh"]}),
        ("sealed_files", ["x"]),
    ):
        settings.write_text(json.dumps(raw | {key: value}))
        refused = world.sictl("start", numbers.path, "--json", code=5)
        assert refused.json["error"]["code"] == "refused"
        assert "--trust" in refused.json["error"]["hint"]
    # What trust does not cover may be changed by hand.
    settings.write_text(json.dumps(raw | {"max_iterations": 1}))
    world.run(numbers)
    assert world.row(numbers)["status"] == "max_iterations"


def test_settings_that_were_spoilt_by_hand(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    settings = numbers.path / ROOT / "config/settings.json"
    raw = settings.read_text()
    for text, words in (
        (raw[:-5], "not valid JSON"),
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"a": NaN}', "finite"),
        (raw.replace("{", '{"max_iterations": 1, "max_iterations": 2,', 1), "twice"),
        (raw.replace("{", '{"plateau_windows": 2,', 1), "did you mean plateau_window?"),
        ("[" * 100_000, "settings.json"),
    ):
        settings.write_text(text)
        assert words in one_line(world.sictl("start", numbers.path, code=2))
    settings.write_bytes(b"\xff\xfe{}")
    assert "UTF-8" in one_line(world.sictl("start", numbers.path, code=2))
    settings.unlink()
    one_line(world.sictl("start", numbers.path, code=None))


@pytest.mark.slow
def test_settings_spoilt_in_a_live_run_stop_it_with_the_key(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "planner", "round": 1, "wait": "plan"})
    world.init(numbers, agent)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path)
        wire.until("step_started", step="planning")
        settings = numbers.path / ROOT / "config/settings.json"
        raw = settings.read_text()
        settings.write_text(raw.replace("{", '{"plateau_windows": 2,', 1))
        agent.open_gate("plan")
        ended = wire.until("run_ended")
    assert (ended["status"], "plateau_windows" in ended["reason"]) == ("failed", True)
    settings.write_text(raw)
    world.run(numbers, "--rounds", "1")
    assert [row["iteration"] for row in world.rounds(numbers)] == [1, 2]


@pytest.mark.slow
def test_no_git_identity_is_needed(world: World, numbers: Repo) -> None:
    for name in [name for name in world.env if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER"))]:
        del world.env[name]
    world.env["EMAIL"] = ""
    world.init(numbers, world.agent())
    world.run(numbers, "--rounds", "1")

    assert numbers.git("show", "improve/raise_the_number:value.txt") == "10"
    assert numbers.git("log", "-1", "--format=%an|%ae", "improve/raise_the_number").strip("|")


def test_a_users_worktree_and_branch_in_the_way_are_refused_and_kept(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    mine = numbers.path / "worktrees/round_1_executor_1"
    mine.mkdir(parents=True)
    (mine / "precious").write_text("mine")

    for _ in range(2):
        done = world.run(numbers, "--rounds", "1", code=1)
        assert "in the way" in done.out + done.err
        assert (mine / "precious").read_text() == "mine"

    shutil.rmtree(numbers.path / "worktrees")
    numbers.git("branch", "experiment/round_1_executor_1")
    tip = numbers.git("rev-parse", "experiment/round_1_executor_1")
    for _ in range(2):
        done = world.run(numbers, "--rounds", "1", code=1)
        assert "git -C" in done.out + done.err
        assert numbers.git("rev-parse", "experiment/round_1_executor_1") == tip
    numbers.git("branch", "-m", "experiment/round_1_executor_1", "mine")
    world.run(numbers, "--rounds", "1")
    assert [row["status"] for row in world.rounds(numbers)] == ["merged"]


@pytest.mark.slow
def test_a_file_named_worktrees_is_refused_and_kept(world: World, repo: MakeRepo) -> None:
    numbers = repo({**SEALED_BENCHMARK, "worktrees": "a tracked file\n"})
    before = numbers.fingerprint()
    world.init(numbers, world.agent())

    done = world.run(numbers, "--rounds", "1", code=1)

    assert "worktrees is in the way" in done.out + done.err
    assert numbers.fingerprint() == before


def test_git_clean_costs_nothing(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    world.run(numbers, "--rounds", "2")
    before = world.sictl("history", numbers.path, "--json").json
    numbers.git("clean", "-ffdxq")
    assert not (numbers.path / ".sid").exists()

    lost = world.row(numbers)
    assert "bring back" in (lost["reason"] or "")
    world.run(numbers, "--rounds", "1")

    rounds = world.sictl("history", numbers.path, "--json").json["rounds"]
    assert rounds[:2] == before["rounds"]
    assert [row["iteration"] for row in rounds] == [1, 2, 3]
    world.sictl("export", numbers.path)
    assert (numbers.path / ROOT / "state/iteration_history/round_1.json").exists()


def test_a_repository_made_anew_at_an_old_path_gets_a_run_of_its_own(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent)
    world.run(numbers, "--rounds", "1")
    before = world.row(numbers)["run_id"]
    shutil.rmtree(numbers.path / ".sid")
    shutil.rmtree(numbers.path / ".git")
    numbers.git("init", "--quiet", "--initial-branch=main")
    numbers.commit(message="another repository")
    world.init(numbers, agent)

    row = world.row(numbers)
    assert row["run_id"] != before
    assert (row["status"], row["iteration"]) == ("idle", 0)
    world.run(numbers, "--rounds", "1")


@pytest.mark.slow
def test_a_benchmark_that_the_improvement_branch_does_not_have_yet_is_refused_with_its_name(
    world: World, numbers: Repo
) -> None:
    agent = world.agent()
    world.init(numbers, agent)
    old = numbers.git("rev-parse", "--short=12", "improve/raise_the_number")
    numbers.commit({"better.sh": "cat value.txt\n"})

    again = ("init", numbers.path, "--benchmark", "sh better.sh", "--trust")
    refused = world.sictl(*again, code=5).err
    assert f"fails on improve/raise_the_number at {old}" in refused
    assert "merge main into that branch" in refused

    numbers.git("fetch", ".", "main:improve/raise_the_number")
    world.sictl(*again)
    world.run(numbers, "--rounds", "1")


@pytest.mark.slow
def test_wins_wait_on_a_ref_of_ours_while_the_user_is_on_the_branch(world: World, numbers: Repo) -> None:
    world.init(numbers, world.agent())
    numbers.git("checkout", "--quiet", "improve/raise_the_number")
    before, seen = numbers.head, numbers.fingerprint()
    told = world.run(numbers, "--rounds", "1").out
    assert "Branch: refs/sid/raise_the_number at" in told
    assert "wins are kept on refs/sid/raise_the_number" in told
    world.run(numbers, "--rounds", "1")

    assert (numbers.head, numbers.fingerprint()) == (before, seen)
    assert numbers.git("show", "refs/sid/raise_the_number:value.txt") == "20"
    assert any("refs/sid/raise_the_number" in note for note in world.row(numbers)["notes"])

    numbers.git("checkout", "--quiet", "main")
    world.run(numbers, "--rounds", "1")
    assert numbers.git("show", "improve/raise_the_number:value.txt") == "30"
    subjects = numbers.git("log", "--first-parent", "--format=%s", "main..improve/raise_the_number")
    assert [subject.split(":")[0] for subject in subjects.splitlines()] == [
        f"Iteration {n}" for n in (3, 2, 1)
    ]


def test_a_user_who_moves_the_improvement_branch_stops_the_run(world: World, numbers: Repo) -> None:
    agent = world.agent()
    agent.script({"role": "executor", "round": 2, "wait": "edit"})
    world.init(numbers, agent)
    with world.wire() as wire:
        wire.follow()
        world.sictl("start", numbers.path, "--rounds", "3")
        wire.until("executor_started", iteration=2)
        first = numbers.git("rev-parse", "improve/raise_the_number")
        numbers.git("branch", "--force", "improve/raise_the_number", "main")
        agent.open_gate("edit")
        ended = wire.until("run_ended")
    assert ended["status"] == "failed"
    assert "was moved" in ended["reason"]
    assert "on_branch_moved" in ended["hint"]
    assert numbers.git("rev-parse", "improve/raise_the_number") == numbers.git("rev-parse", "main")

    numbers.git("branch", "--force", "improve/raise_the_number", first)
    world.run(numbers, "--rounds", "1")
    assert [row["status"] for row in world.rounds(numbers)] == ["merged", "merged"]


@pytest.mark.slow
def test_a_moved_branch_is_taken_over_where_the_settings_say_so(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent, "--set", 'on_branch_moved="rebase"')
    world.run(numbers, "--rounds", "1")
    numbers.git("checkout", "--quiet", "improve/raise_the_number")
    mine = numbers.commit({"value.txt": "15\n"}, "Mine")
    numbers.git("checkout", "--quiet", "main")
    world.run(numbers, "--rounds", "1")

    assert [row["score"] for row in world.rounds(numbers)] == [10.0, 20.0]
    assert numbers.git("rev-parse", "improve/raise_the_number^1") == mine


def test_what_a_refusal_says_to_type_is_right_as_it_stands(world: World, repo: MakeRepo) -> None:
    made = repo(SEALED_BENCHMARK, name="it's a\tproject")
    run = world.init(made, world.agent(), "--topic", "one", "--json").json["run_id"]
    noted = world.sictl("config", "set", run, "guard_command", '["true"]', "--json").json["notes"][0]
    command = world.sictl("start", run, "--json", code=5).json["error"]["hint"].partition(": ")[2]
    assert noted.endswith(command)

    path = f"{BIN}:{os.environ['PATH']}"
    typed = subprocess.run(
        ["bash", "-c", f"{command} --json"],
        env={**world.env, "PATH": path},
        cwd="/",
        capture_output=True,
        check=True,
    )

    assert json.loads(typed.stdout)["run_id"] == run
    assert "--topic three" in one_line(world.sictl("start", made.path, "--topic", "three", code=4))
