"""Runs that were recorded, made again: the same plans, trees, commits and decisions, and nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.harness import Agent, World
from tests.repos import Repo

KEPT = ("plans/", "state/plan_archive/", "state/iteration_history/", "state/research_briefs/")


def told(root: Path) -> dict[str, Any]:
    """Return what a track's files tell of plans and decisions."""
    found = {
        str(path.relative_to(root)): json.loads(path.read_text())
        for folder in KEPT
        for path in sorted((root / folder).rglob("*.json"))
    }
    return found


def commits(repo: Repo, root: Path, branch: str) -> list[str]:
    """Return the commits of an improvement branch."""
    return repo.git("log", "--format=%H %T", branch).splitlines()


def test_thin(world: World, numbers: Repo) -> None:
    agent = world.agent()
    world.init(numbers, agent, "--set", "record=true", agents=2)
    world.run(numbers, "--rounds", "2")
    before = len(agent.turns())
    result = world.sictl("replay", numbers.path, "--wait", "--json", code=None)
    print(result)
    made = result.json
    original = numbers.path / ".sid/topics/default"
    root = Path(made["root"])
    assert told(root) == told(original)
    assert len(agent.turns()) == before
    a = commits(numbers, root, "improve/raise_the_number")
    names = [name for name in numbers.branches() if "replay" in name]
    assert commits(numbers, root, names[0]) == a
    print(numbers.tags(), numbers.branches(), made)
