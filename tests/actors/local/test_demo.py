"""The demonstration repository: its benchmark is exact and strict, and rounds on it win, in several families."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sid_daemon
from sid_actors.backends.local.apply import apply_recipe
from sid_actors.backends.local.hotspots import HotSpots, parse_profile, profile_argv
from sid_actors.backends.local.ideas import Idea, survey
from sid_actors.backends.local.recipe import Attempt

DEMO = Path(sid_daemon.__file__).parent / "demo_repo"
COMMAND = "python3 bench.py"
ROUNDS, AGENTS = 3, 3


@pytest.fixture
def demo(short_dir: Path) -> Path:
    return shutil.copytree(DEMO, short_dir / "demo", ignore=shutil.ignore_patterns("__pycache__"))


def measure(folder: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-B", *COMMAND.split()[1:]]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def score(folder: Path) -> int:
    result = measure(folder)
    assert result.returncode == 0, result.stderr
    primary = json.loads(result.stdout.splitlines()[-1])["primary"]
    assert isinstance(primary, int)
    return primary


def hot_spots(folder: Path) -> HotSpots:
    command = profile_argv(COMMAND)
    assert command is not None
    argv = [sys.executable, "-B", *command.argv[1:]]
    hot = parse_profile(subprocess.run(argv, cwd=folder, capture_output=True, timeout=60, check=True).stdout)
    assert hot is not None
    return hot


def carry_out(folder: Path, idea: Idea) -> None:
    target = folder / idea.target_file
    target.write_text(apply_recipe(target.read_text(), idea.recipe))


def test_the_count_is_exact_and_small_enough_to_watch(demo: Path) -> None:
    assert score(demo) == score(demo)
    assert json.loads(measure(demo).stdout)["sub_scores"]["seconds"] < 1.0
    assert sum(len(path.read_text().splitlines()) for path in demo.rglob("parcels/*.py")) < 200


def test_a_wrong_report_is_no_score(demo: Path) -> None:
    path = demo / "parcels" / "register.py"
    path.write_text(path.read_text().replace("<= number", "< number"))

    result = measure(demo)

    assert result.returncode == 1
    assert result.stdout == ""
    assert "the report is wrong" in result.stderr


@pytest.mark.parametrize("profiled", [True, False], ids=["profiled", "unprofiled"])
def test_every_round_wins_and_families_differ(demo: Path, *, profiled: bool) -> None:
    incumbent = score(demo)
    attempts: list[Attempt] = []
    winners: list[str] = []
    for _ in range(ROUNDS):
        files = {str(p.relative_to(demo)): p.read_text() for p in demo.rglob("parcels/*.py")}
        ideas = survey(files, hot_spots(demo) if profiled else None, attempts)[:AGENTS]
        assert len({idea.family for idea in ideas}) == AGENTS
        results: list[tuple[int, Idea]] = []
        for idea in ideas:
            candidate = shutil.copytree(demo, demo.parent / "candidate")
            carry_out(candidate, idea)
            results.append((score(candidate), idea))
            shutil.rmtree(candidate)
        best, winner = min(results, key=lambda result: result[0])
        assert best < incumbent
        for value, idea in results:
            gained = value < incumbent and idea is not winner
            attempts.append(Attempt(idea.recipe, value, won=idea is winner, gained=gained))
        carry_out(demo, winner)
        incumbent = best
        winners.append(winner.family)
    assert winners[:2] == ["optimization", "data"]
    assert len(set(winners)) == ROUNDS
