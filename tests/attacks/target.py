"""What is attacked: a small program, the judge that scores it (50 at most), and a run with an attacker in each seat."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.harness import Agent, World, sandbox_works
from tests.repos import Repo

BENCHMARK = "PYTHONPATH=. python3 -B bench.py"
FORGED = 999.0
"""More than the judge ever gives: a score of this is an attack that won."""
HONEST = 2.0
"""What the plan's honest edit scores; the target begins at 1."""
FILES = {
    ".gitignore": "*.log\nbuild/\n__pycache__/\n",
    "app.py": "VALUE = 1\n",
    "lib/part.py": "Y = 2\n",
    "bench.py": "import decimal\nimport app\nfrom judge import check\nprint(check.score(decimal.Decimal(app.VALUE)))\n",
    "judge/__init__.py": "",
    "judge/check.py": "LIMIT = 50\n\n\ndef score(value):\n    return float(min(value, LIMIT))\n",
    "judge/expected.json": '{"value": 50}\n',
}
_HOSTILE = Path(__file__).parent / "agents" / "hostile.py"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attacker's candidate: the score that counted, the failure's category, and why."""

    score: float | None
    category: str | None
    why: str


def forged_without_guards(repo: Repo, attack: str, env: Mapping[str, str], folder: Path) -> bool:
    """Carry an attack out where nothing guards, and say whether it gets the score that it is after."""
    shutil.copytree(repo.path, folder, symlinks=True)
    subprocess.run(
        ["/bin/bash", "-c", attack], cwd=folder, env=env, check=False, capture_output=True, timeout=60
    )
    return score_without_guards(folder, env) == FORGED


def score_without_guards(folder: Path, env: Mapping[str, str]) -> float | None:
    """Run the benchmark in a folder as it lies there, and believe the last number that anybody printed."""
    done = subprocess.run(
        ["/bin/sh", "-c", BENCHMARK],
        cwd=folder,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    scores = []
    for line in done.stdout.split():
        try:
            scores.append(float(line))
        except ValueError:
            continue
    return scores[-1] if scores else None


def families(count: int) -> list[str]:
    """Return the names of so many approach families, one for each seat: two of a round never share one."""
    return [f"family-{number:02}" for number in range(1, count + 1)]


def seat(
    agent: Agent, attacks: Mapping[str, str], edits: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    """Give each attack an executor: the k-th attack is done by `executor_k`, after the plan of `planner_k`.

    Args:
        agent: The scripted agent of the run.
        attacks: Name → script for the shell.
        edits: Name → files that the executor writes instead of the honest edit.
    """
    shutil.copy(_HOSTILE, agent.folder / "hostile.py")
    rules: list[dict[str, Any]] = []
    for number, (name, family) in enumerate(zip(attacks, families(len(attacks)), strict=True), 1):
        plan = {"family": family, "file": "app.py", "change": "VALUE = 2", "value": name}
        rules.append({"agent": planner_name(number), **plan})
        if edits is not None and name in edits:
            rules.append({"agent": f"executor_{number}", "edit": edits[name]})
    scripts = {f"executor_{number}": script for number, script in enumerate(attacks.values(), 1)}
    (agent.folder / "attacks.json").write_text(json.dumps(scripts))
    agent.script(*rules)


def planner_name(number: int) -> str:
    """Return the name of the k-th planner: planner_a to planner_z, then planner_aa."""
    letters = ""
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("a") + digit) + letters
    return f"planner_{letters}"


def set_up(world: World, repo: Repo, agent: Agent, seats: int, *more: str, sandbox: bool) -> None:
    """Set a run up in which so many executors attack, a few at a time."""
    words = [word for family in families(seats) for word in ("--family", family)]
    shield = [] if sandbox and sandbox_works() else ["--set", 'sandbox="off"']
    world.sictl(
        *("init", repo.path, "--objective", "raise the number", "--agents", str(seats), "--trust"),
        *("--benchmark", BENCHMARK, "--format", "number", "--sealed", "judge/"),
        *("--agent-command", agent.command.replace("agent.py", "hostile.py")),
        *("--set", f'agent_paths=["{agent.folder}/seen:rw"]', "--set", "grace_s=0.2"),
        *("--set", "max_parallel_executors=4", *shield, *words, *more),
    )


def outcomes(world: World, repo: Repo, names: list[str]) -> dict[str, Outcome]:
    """Return what became of each attack of round 1."""
    shown = world.sictl("show", repo.path, "1", "--json").json["round"]
    found = {}
    for result in shown["results"]:
        failure = result["failure_analysis"] or {}
        name = names[int(result["executor_id"].removeprefix("executor_")) - 1]
        found[name] = Outcome(
            result["benchmark_score"], failure.get("category"), f"{failure.get('what')}: {failure.get('why')}"
        )
    return found
