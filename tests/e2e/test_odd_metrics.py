"""Odd metrics and failing runs through the real daemon: what the measuring page promises for each of them.

The benchmark prints what `value.txt` says in the way that a test asks for, and counts its runs outside of the
daemon's reach, so that a test can let exactly one of them fail. Runs 1 to 5 are set-up's where scores are noisy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import World
from tests.repos import Repo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# `noise` is Gaussian with sd 1, `run` counts from 1, `tree` is what the candidate wrote.
BENCH = """\
import random, sys, time
folder, how = sys.argv[1:]
with open(folder + "/runs", "a+") as file:
    file.write("x")
    file.seek(0)
    run = len(file.read())
tree = open("value.txt").read().strip()
noise = random.Random(run).gauss(0, 1)
exec(how)
"""
EXACT = "print(tree)"


def set_up(
    world: World, repo: MakeRepo, base: object, *candidates: object, how: str = EXACT, **settings: Any
) -> tuple[Repo, Path]:
    """Set a repository up; each planner's candidate writes the next of `candidates` in every round."""
    out = world.base / "out"
    out.mkdir()
    made = repo({"bench.py": BENCH, "value.txt": f"{base}\n", "README.md": "One number.\n"})
    agent = world.agent()
    agent.script(
        *(
            {"role": "planner", "agent": f"planner_{'abcd'[number]}", "change": str(value)}
            for number, value in enumerate(candidates)
        )
    )
    values = {
        "benchmark_paths": [f"{out}:rw"],
        "circuit_breaker_threshold": 100,
        "benchmark_format": "number",
        **settings,
    }
    world.init(
        made,
        agent,
        *("--benchmark", f"python3 -IS bench.py {out} '{how}'", "--sealed", "bench.py"),
        *(word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")),
        agents=len(candidates),
    )
    return made, out


def played(world: World, repo: Repo, rounds: int = 1) -> dict[str, Any]:
    """Play rounds and return the last one whole."""
    world.start_sictl("start", repo.path, "--rounds", str(rounds), "--wait").communicate(timeout=500)
    found: dict[str, Any] = world.sictl("show", repo.path, "--json").json["round"]
    return found


def outcomes(found: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return each candidate's status and failure category."""
    return [
        (one["status"], (one["failure_analysis"] or {}).get("category"))
        for one in sorted(found["results"], key=lambda one: str(one["executor_id"]))
    ]


def head(repo: Repo) -> str:
    return repo.git("show", "improve/raise_the_number:value.txt").strip()


GOOD, WORSE = ("success", None), ("regression", "regression")
NOISE = "print(float(tree) + {sd} * noise)"


@pytest.mark.parametrize(
    ("base", "candidates", "direction", "found", "wins"),
    [
        ("0", ["0.0", "-1", "0.0001"], "higher_is_better", [GOOD, WORSE, GOOD], "0.0001"),
        ("0", ["00", "0.5", "-0.0001"], "lower_is_better", [GOOD, WORSE, GOOD], "-0.0001"),
        ("-5", ["-5.0", "-6", "-4.9999"], "higher_is_better", [GOOD, WORSE, GOOD], "-4.9999"),
        ("-5", ["-4", "-5e0", "-5.0001"], "lower_is_better", [WORSE, GOOD, GOOD], "-5.0001"),
        ("7", ["7.0", "8", "07"], "lower_is_better", [GOOD, WORSE, GOOD], None),
        ("100000", ["100001", "99999", "100000.0"], "higher_is_better", [GOOD, WORSE, GOOD], "100001"),
    ],
)
def test_exact_scores_of_any_sign_and_kind(
    world: World,
    repo: MakeRepo,
    base: str,
    candidates: list[str],
    direction: str,
    found: list[tuple[str, str | None]],
    wins: str | None,
) -> None:
    made, out = set_up(world, repo, base, *candidates, benchmark_direction=direction)
    last = played(world, made)
    assert outcomes(last) == found
    assert last["summary"]["status"] == ("merged" if wins else "no_improvement")
    assert head(made) == (wins or base)
    # Set-up's three, one a candidate, one for the merge and twice two before the first one, the audit's two.
    assert (out / "runs").stat().st_size == 3 + 3 + (1 + 4 + 2 if wins else 0)


def test_pass_is_merged_over_fail_and_never_over_pass(world: World, repo: MakeRepo) -> None:
    made, _ = set_up(
        world, repo, "bad", "good", "worse", how='sys.exit(tree[:4] != "good")', benchmark_format="pass_fail"
    )
    first = played(world, made)
    assert outcomes(first) == [GOOD, GOOD]
    assert (first["summary"]["status"], head(made)) == ("merged", "good")
    propose(world, a="bad", b="good indeed")
    second = played(world, made)
    assert outcomes(second) == [WORSE, GOOD]
    assert (second["summary"]["status"], head(made)) == ("no_improvement", "good")


def propose(world: World, **changes: str) -> None:
    """Let planners propose something else from now on."""
    rules = [{"role": "planner", "agent": f"planner_{x}", "change": y} for x, y in changes.items()]
    (world.base / "agent/script.json").write_text(json.dumps(rules))


@pytest.mark.parametrize(
    ("base", "better", "direction", "how"),
    [
        ("-1", "4", "higher_is_better", NOISE.format(sd=1)),
        ("1", "-4", "lower_is_better", NOISE.format(sd=1)),
        ("100", "90", "lower_is_better", NOISE.format(sd=2)),
        ("200", "230", "higher_is_better", "print(round(float(tree) + 4 * noise))"),
        # A clock that ticks in tenths: half of the runs of one tree are equal.
        ("1.0", "0.7", "lower_is_better", "print(round(float(tree) + 0.05 * noise, 1))"),
    ],
)
def test_noisy_scores_of_any_sign_and_kind(
    world: World, repo: MakeRepo, base: str, better: str, direction: str, how: str
) -> None:
    made, _ = set_up(
        world,
        repo,
        base,
        better,
        how=how,
        benchmark_direction=direction,
        measurement={"mode": "noisy", "screen_blocks": 2, "audit_every": 100},
    )
    found = played(world, made)
    assert found["summary"]["status"] == "merged", found["summary"]
    assert head(made) == better
    low, _ = found["summary"]["ci"]
    assert low is not None
    assert 0 < low <= found["summary"]["gain"]

    propose(world, a=f"{float(better)!r}0")  # the same number in other words
    again = played(world, made)
    assert again["summary"]["status"] != "merged", again["summary"]
    assert head(made) == better


def test_a_failure_now_and_then_voids_its_pair_and_costs_nobody_the_merge(
    world: World, repo: MakeRepo
) -> None:
    how = 'sys.exit("the disk is full") if run > 6 and run % 5 == 0 else None; ' + NOISE.format(sd=1)
    made, _ = set_up(world, repo, "100", "120", how=how, measurement={"screen_blocks": 2, "audit_every": 100})
    found = played(world, made)
    assert found["summary"]["status"] == "merged", found["summary"]
    told = found["merge_report"]["measurement"]
    pairs = [run for run in found["runs"] if run["stage"] == "confirm"]
    failed = [run for run in pairs if run["status"] == "error"]
    assert failed
    assert told["void_pairs"] == len(failed)
    good = [run for run in pairs if run["status"] == "success"]
    # The half of a void pair that ran is on record and in no decision.
    assert 2 * told["n_pairs"] <= len(good) <= 2 * told["n_pairs"] + len(failed)
    assert outcomes(found) == [GOOD]


@pytest.mark.parametrize(
    ("how", "category"),
    [
        ('time.sleep(600 if tree == "120" and run > 14 else 0); ', "timeout"),
        ('sys.exit("a bug") if tree == "120" and run > 14 else None; ', "infrastructure"),
    ],
)
def test_a_merged_tree_that_fails_where_the_incumbent_runs_is_rejected(
    world: World, repo: MakeRepo, how: str, category: str
) -> None:
    # Its screen is over after run 11: warm-up, two blocks of two; run 12 is the merged tree's warm-up, then a pair.
    made, _ = set_up(
        world,
        repo,
        "100",
        "120",
        how=how + NOISE.format(sd=1),
        measurement={"screen_blocks": 2, "run_timeout": 2},
    )
    found = played(world, made)
    assert found["summary"]["status"] == "no_improvement", found["summary"]
    assert outcomes(found)[0][1] == category
    assert head(made) == "100"
    assert all(run["status"] == "success" for run in found["runs"] if run["arm"] == "A")


def test_a_benchmark_that_breaks_on_the_incumbent_blames_nobody_and_ends_the_run_after_three_rounds(
    world: World, repo: MakeRepo
) -> None:
    how = 'sys.exit("no licence") if tree == "100" and run > 6 else None; ' + NOISE.format(sd=1)
    made, _ = set_up(world, repo, "100", "120", how=how)
    found = played(world, made, rounds=9)
    rounds = world.rounds(made)
    assert [one["status"] for one in rounds] == ["no_winner"] * 3
    assert {one["reason"] for one in rounds} == {"benchmark broken on the incumbent"}
    assert outcomes(found) == [GOOD]
    row = world.row(made)
    assert row["status"] == "circuit_breaker"
    assert "the benchmark fails on the improvement branch itself" in world.sictl("status", made.path).out
    assert head(made) == "100"
