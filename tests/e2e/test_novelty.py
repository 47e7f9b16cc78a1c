"""What was tried before costs no benchmark run: through the real daemon, across a restart, and told by `show`."""

from __future__ import annotations

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import World

pytestmark = pytest.mark.slow
FILES = {"bench.sh": "sed -n 's/^X *= *\\([0-9]*\\).*/\\1/p' app.py\n", "app.py": "X = 5\n"}
SAME = {"role": "planner", "hypothesis": "Set X to 3: it is rounder", "change": "X = 3", "file": "app.py"}


def test_a_change_in_another_layout_is_refused_after_a_restart(world: World, repo: MakeRepo) -> None:
    made = repo(FILES)
    agent = world.agent()
    agent.script(
        {**SAME, "round": 1},
        {**SAME, "round": 3},
        {"role": "planner", "file": "app.py", "change": "X = 3"},
        {"role": "executor", "round": 2, "edit": {"app.py": "# three\nX  =  3\n"}},
    )
    world.init(made, agent, "--set", "circuit_breaker_threshold=9")
    world.run(made, "--rounds", "1")
    world.kill()
    world.run(made, "--rounds", "2")

    turns = agent.turns()
    assert [name for name in turns if ".executor." in name] == [
        "1.executor.executor_1.1",
        "2.executor.executor_1.1",
    ]
    second = world.sictl("show", "2", "--run", made.path).out
    assert "tried before: the same change as executor_1 of round 1 (score 3.0 against 5.0)" in second
    assert "smoke" not in second  # nothing was run
    command = next(line for line in second.splitlines() if line.startswith("  $ git -C")).removeprefix("  $ ")
    differences = made.git(*command.split()[3:])
    assert "+# three" in differences
    third = world.sictl("show", "3", "--run", made.path).out
    assert "tried before: the same plan as executor_1 of round 1 (score 3.0 against 5.0)" in third
    table = (made.path / ".sid/topics/default/tracking/results.tsv").read_text().splitlines()
    assert [line.split("\t")[5] for line in table[2:]] == ["baseline", "discard", "discard"]
