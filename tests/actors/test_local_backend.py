"""The local back end answers every role from the code alone: valid documents, real edits, nothing claimed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.backends.base import Turn
from sid_actors.backends.local.adapter import LocalBackend
from sid_actors.backends.parse import parse_advice, parse_brief, parse_judgement, parse_plan
from sid_actors.jobs.job import Mount
from sid_actors.track import Attempt
from sid_actors.watching.activity import ActivityLog
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import find_toolchain
from sid_protocol.errors import BackendError
from sid_protocol.records import Plan
from sid_protocol.settings import Scope, Settings
from tests.actors.fakes import PLAN, FakeTrack
from tests.conftest import Spawn

APP = '''\
"""A small, slow program."""

import re

LIMIT = 40


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def unique(items: list[int]) -> list[int]:
    seen = []
    for item in items:
        if item not in seen:
            seen.append(item)
    return seen


def words(lines):
    found = []
    for line in lines:
        found.append(len(re.findall("[a-z]+", line)))
    return found


def drain(items):
    queue = list(items)
    total = 0
    while queue:
        total += queue.pop(0)
    return total


def main():
    return fib(18), len(unique(list(range(LIMIT)) * 9)), sum(words(["a b c"] * 50)), drain(range(200))
'''
BENCH = "import app\nprint(app.main())\nopen('result.txt', 'w').write('x')\nprint(1.0)\n"


class Shop:
    """A checkout with the program, and turns that are played on it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.write({"app.py": APP, "bench.py": BENCH})
        values = {"benchmark_command": "python3 bench.py", "benchmark_format": "number"} | settings
        self.track = FakeTrack(sealed=("bench.py",), settings=Settings(**values))
        path, home = os.environ["PATH"], os.environ["HOME"]
        tools = find_toolchain(path, home=home)
        self.backend = LocalBackend(enclose=Sandbox, path=tools.path, readable=tools.readable)

    def write(self, files: dict[str, str]) -> None:
        self.folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (self.folder / name).write_text(text)

    async def play(self, role: Any, plan: Plan | None = None, number: int = 1, **values: Any) -> str:
        turn = Turn(
            role=role,
            agent_id=role,
            iteration=values.pop("iteration", 1),
            prompt="",
            schema=None,
            cwd=str(self.folder),
            deadline_s=60,
            track=self.track,
            plan=plan,
            number=number,
            **values,
        )
        return (await self.backend.answer(turn, ActivityLog())).text

    async def plan(self, number: int = 1, **values: Any) -> Plan:
        answer = parse_plan(await self.play("planner", number=number, **values))
        return Plan(plan_id="p", planner_id=f"planner_{number}", round=1, **answer.model_dump())


@pytest.fixture
def shop(short_dir: Path, real_process: Spawn) -> Shop:
    return Shop(short_dir / "view")


async def test_a_round_is_answered_from_brief_to_edit(shop: Shop) -> None:
    shop.track.ideas = ("please use a heap",)
    brief = parse_brief(await shop.play("researcher"))
    assert len(brief.ideas) >= 3
    assert "was profiled" in brief.repo_analysis_summary
    assert "1 ideas" in brief.repo_analysis_summary
    assert any("fib" in idea.title and "Profile: `fib` takes" in idea.evidence for idea in brief.ideas)

    plans = [await shop.plan(number) for number in (1, 2, 3)]
    assert len({plan.approach_family for plan in plans}) == 3
    for plan in plans:
        assert parse_advice(await shop.play("architect", plan)).verdict == "approve"
        assert parse_judgement(await shop.play("critic", plan)).verdict == "approved"

    before = {path.name for path in shop.folder.iterdir()}
    summary = await shop.play("executor", plans[0], sealed=(str(shop.folder / "bench.py"),))
    assert plans[0].model_extra
    assert plans[0].model_extra["recipe"]["symbol"] in summary
    assert (shop.folder / "app.py").read_text() != APP
    assert (shop.folder / "bench.py").read_text() == BENCH
    assert {path.name for path in shop.folder.iterdir()} == before


async def test_planners_of_a_round_share_one_survey(shop: Shop) -> None:
    plans: list[Plan] = []

    async def draw(number: int) -> None:
        plans.append(await shop.plan(number))

    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(draw, number)
    assert len({plan.approach_family for plan in plans}) == 3

    shop.write({"app.py": "print()\n"})  # the round goes on with what it saw, the next one looks again
    assert (await shop.plan(1)).target_files == ["app.py"]
    with pytest.raises(BackendError, match="no idea left"):
        await shop.plan(1, iteration=2)


async def test_what_was_tried_is_not_planned_again_and_a_runner_up_is(shop: Shop) -> None:
    # without a profile, whose order is that of a busy machine
    shop.track.settings = Settings(benchmark_command="python3 bench.py | tail -1", benchmark_format="number")
    first = await shop.plan()
    for score, again in ((9.0, False), (11.0, True)):
        extra = first.model_extra or {}
        tried = Attempt(
            iteration=1, family=first.approach_family, score=score, won=False, before=10.0, extra=extra
        )
        shop.track.tried = [tried]
        nxt = await shop.plan(iteration=int(score))
        same = nxt.model_extra == first.model_extra
        assert same == again
        advice = parse_advice(await shop.play("architect", first))
        assert advice.checks
        assert (advice.checks.novelty == "pass") == again
        judged = parse_judgement(await shop.play("critic", first))
        assert (judged.history_aware == "pass") == again


async def test_the_barred_family_is_not_planned(shop: Shop) -> None:
    first = await shop.plan()
    shop.track.streak_family = first.approach_family
    plans = [await shop.plan(number, iteration=2) for number in (1, 2)]

    assert first.approach_family not in {plan.approach_family for plan in plans}
    judged = parse_judgement(await shop.play("critic", first))
    assert (judged.verdict, judged.h002_family_streak) == ("rejected", "fail")


async def test_where_only_the_barred_family_is_left_the_planner_says_that_it_rests(shop: Shop) -> None:
    shop.write({"app.py": "print()\n", "shop.json": '{"order_size": 12}'})
    assert (await shop.plan()).approach_family == "training_config"
    shop.track.streak_family = "training_config"
    with pytest.raises(BackendError, match=r"training_config.*rests for one \(H002\)") as caught:
        await shop.plan(iteration=2)
    assert not caught.value.retryable


async def test_a_program_without_ideas_still_gets_an_honest_brief(
    short_dir: Path, real_process: Spawn
) -> None:
    shop = Shop(short_dir / "view", benchmark_command="make bench | tail -1")
    shop.write({"app.py": "print('hello')\n"})
    brief = parse_brief(await shop.play("researcher"))

    assert {idea.confidence for idea in brief.ideas} == {"low"}
    assert "no profile" in brief.repo_analysis_summary
    with pytest.raises(BackendError, match="no idea left"):
        await shop.plan()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "no recipe"),
        ({"recipe": "junk"}, "no recipe"),
        ({"recipe": {"transformation": "memoise", "path": "../x.py", "symbol": "f"}}, "not a path inside"),
        ({"recipe": {"transformation": "memoise", "path": "gone.py", "symbol": "f"}}, "is not there"),
    ],
)
async def test_a_plan_that_cannot_be_carried_out_is_a_clear_failure(
    shop: Shop, change: Any, told: str
) -> None:
    plan = Plan.model_validate(PLAN.model_dump() | change)
    with pytest.raises(BackendError, match=told):
        await shop.play("executor", plan)
    assert (shop.folder / "app.py").read_text() == APP


async def test_a_red_guard_is_not_mended(shop: Shop) -> None:
    with pytest.raises(BackendError, match="red guard"):
        await shop.play("executor", await shop.plan(), guard_output="test failed")


async def test_the_architect_finds_sealed_missing_and_foreign_targets(shop: Shop) -> None:
    plan = await shop.plan()
    shop.track.settings = Settings(scope=Scope(include=["src/**"]))
    changed = plan.model_copy(update={"target_files": ["bench.py", "gone.py"]})
    advice = parse_advice(await shop.play("architect", changed))

    assert advice.verdict == "reject"
    for told in ("bench.py is sealed", "gone.py does not exist", "bench.py is out of scope"):
        assert told in advice.feedback


async def test_the_checkouts_modules_do_not_stand_in_for_ours(shop: Shop) -> None:
    for name in ("json.py", "sid_actors.py", "libcst.py", "sitecustomize.py"):
        shop.write({name: "raise SystemExit('taken over')\n"})
    shop.track.settings = Settings()
    assert await shop.plan()
    assert json.loads(await shop.play("researcher"))


async def test_ruff_is_asked_where_there_is_one_and_can_only_read(shop: Shop, short_dir: Path) -> None:
    shop.write({"app.py": "def main(rows):\n    return dict([(a, b) for a, b in rows])\n"})
    place = {
        "location": {"row": 2, "column": 12},
        "end_location": {"row": 2, "column": 44},
        "content": "{a: b for a, b in rows}",
    }
    row = {
        "filename": str(shop.folder / "app.py"),
        "code": "C404",
        "message": "Unnecessary list",
        "location": {"row": 2, "column": 12},
        "fix": {"applicability": "unsafe", "edits": [place]},
    }
    ruff = short_dir / "bin" / "ruff"
    ruff.parent.mkdir()
    ruff.write_text(f"#!/bin/sh\ntouch written || :\ncat <<'END'\n[{json.dumps(row)}]\nEND\n")
    ruff.chmod(0o755)
    shop.backend.path, shop.backend.prefix = f"{ruff.parent}:{os.environ['PATH']}", "/nowhere"

    plan = await shop.plan()
    assert plan.hypothesis.count("C404") == 1
    await shop.play("executor", plan)
    assert "return {a: b for a, b in rows}" in (shop.folder / "app.py").read_text()
    assert {path.name for path in shop.folder.iterdir()} == {"app.py", "bench.py"}

    for text in ("#!/bin/sh\nexit 2\n", "#!/bin/sh\necho junk\n"):
        ruff.write_text(text)
        with pytest.raises(BackendError, match="no idea left"):
            await shop.plan(iteration=2 + len(text))


async def test_the_profile_sees_what_the_settings_share(shop: Shop, short_dir: Path) -> None:
    deps = short_dir / "deps"
    deps.mkdir()
    (deps / "helper.py").write_text("N = 18\n")
    shop.write(
        {"bench.py": "import sys\nsys.path.append('deps')\nimport app, helper\nprint(app.fib(helper.N))\n"}
    )
    (shop.folder / "deps").mkdir()
    shared = Mount(str(shop.folder / "deps"), source=str(deps))

    async def told(iteration: int, *shown: Mount) -> str:
        brief = parse_brief(await shop.play("researcher", iteration=iteration, shown=shown))
        return next(idea.evidence for idea in brief.ideas if "fib" in idea.title)

    seen, unseen = await told(1, shared), await told(2)
    assert "called 8361 times" in seen
    assert "under 1 %" in unseen
    assert list((shop.folder / "deps").iterdir()) == []
