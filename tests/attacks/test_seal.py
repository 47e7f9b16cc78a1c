"""Attacks on the judge, through the real daemon: each wins where nothing guards, and none wins a score of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.seal_attacks import SEALED, SILENT, UNMEASURED
from tests.attacks.target import FILES, FORGED, HONEST, forged_without_guards, outcomes, seat, set_up
from tests.conftest import MakeRepo
from tests.e2e.conftest import world
from tests.e2e.harness import World, clean_repository, sandbox_works
from tests.repos import Repo

__all__ = ["world"]
pytestmark = pytest.mark.slow
ALL = {**SEALED, **SILENT, **UNMEASURED, "honest": "true"}


@pytest.fixture
def target(repo: MakeRepo) -> Repo:
    return repo(FILES)


def test_each_attack_wins_where_nothing_guards(target: Repo, world: World, short_dir: Path) -> None:
    attacks = {**SEALED, "compiled twin": UNMEASURED["compiled twin"]}
    lost = [
        name
        for number, (name, script) in enumerate(attacks.items())
        if not forged_without_guards(target, script, world.env, short_dir / f"u{number}")
    ]
    assert lost == [], "no attacks at all: they prove nothing of a guard"


def test_none_passes_the_check_when_nothing_holds_the_agent(target: Repo, world: World) -> None:
    """With the sandbox off every edit succeeds, and the comparison with what was checked out finds it."""
    agent = world.agent()
    seat(agent, ALL)
    set_up(world, target, agent, len(ALL), sandbox=False)
    with clean_repository(target):
        world.run(target, "--rounds", "1")
    found = outcomes(world, target, list(ALL))

    wrong = {
        name: found[name] for name in (*SEALED, *SILENT) if found[name].category != "sealed_file_violation"
    }
    assert wrong == {}
    assert {name: found[name].score for name in (*UNMEASURED, "honest")} == dict.fromkeys(
        (*UNMEASURED, "honest"), HONEST
    )
    assert world.row(target)["best_score"] == HONEST
    assert target.git("diff", "--name-only", "main", "improve/raise_the_number") == "app.py"
    assert not any("\x1b" in found[name].why or "\n" in found[name].why for name in ALL)


@pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")
def test_none_gets_a_score_out_of_the_sandbox(target: Repo, world: World) -> None:
    """In the sandbox most edits fail at once; what is left is refused, or is the honest edit alone."""
    agent = world.agent()
    seat(agent, ALL)
    set_up(world, target, agent, len(ALL), sandbox=True)
    before = target.fingerprint()
    with clean_repository(target):
        world.run(target, "--rounds", "1")
    found = outcomes(world, target, list(ALL))

    assert {name: one for name, one in found.items() if one.score == FORGED} == {}
    assert {one.score for one in found.values()} <= {HONEST, None}
    assert {one.category for one in found.values()} <= {None, "sealed_file_violation"}
    assert found["honest"].score == HONEST
    assert target.fingerprint() == before
