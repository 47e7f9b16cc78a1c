"""The bench actor hands on what was measured, and lets no guard blame a candidate for the baseline's own fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from sid_actors.actor import WorkRegistry
from sid_actors.roles.bench import BenchActor
from sid_actors.workbench.base import ALONE, BenchRun, CommandRun, Company
from sid_protocol.commands import Measure, RunGuards
from sid_protocol.errors import BenchmarkError
from sid_protocol.events import GuardsDone, RunMeasured, WorkFailed
from sid_protocol.settings import Settings
from tests.actors.fakes import FakeTrack

RUN = BenchRun(
    score=None,
    status="error",
    category="oom",
    why="out of memory",
    sub_scores={"seconds": 1.5},
    raw="text",
    exit_code=1,
    started_at="2024-01-01T00:00:00Z",
    wall_s=2.0,
    cpu_s=1.0,
    load1=0.5,
)


@dataclass
class FakeBench:
    """Guards are red on the commits that `red` names; every run is on record."""

    red: set[tuple[str, str]] = field(default_factory=set)
    broken: bool = False
    ran: list[tuple[str, str]] = field(default_factory=list)

    async def measure(
        self, tree: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> BenchRun:
        if self.broken:
            raise BenchmarkError("the checkout is gone", hint="start again")
        self.ran.append(("benchmark", tree))
        return RUN

    async def measure_both(
        self, tree: str, beside: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> tuple[BenchRun, BenchRun]:
        return await self.measure(tree, iteration, settings), await self.measure(beside, iteration, settings)

    async def holdout(
        self, tree: str, iteration: int, settings: Settings, company: Company = ALONE
    ) -> BenchRun:
        self.ran.append(("holdout", tree))
        return RUN

    async def check(self, tree: str, command: str, iteration: int, settings: Settings) -> CommandRun:
        self.ran.append((command, tree))
        passed = (command, tree) not in self.red
        return CommandRun(
            command=command, passed=passed, output="said", timed_out=command == "slow" and not passed
        )


async def play(bench: FakeBench, *commands: Measure | RunGuards) -> list[Any]:
    letters, inbox = trio.open_memory_channel[Any](9)
    outbox, up = trio.open_memory_channel[Any](0)
    settings = Settings(guard_command=["lint", "slow", "test"])
    actor = BenchActor(
        name="bench",
        inbox=inbox,
        outbox=outbox,
        works=WorkRegistry(),
        bench=bench,
        track=FakeTrack(settings=settings),
        baseline="base",
    )
    events = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        with letters, up:
            for command in commands:
                letters.send_nowait(command)
            events = [await up.receive() for _ in commands]
    return events


def guards(name: str) -> RunGuards:
    return RunGuards(id=name, iteration=1, executor="executor_1", commit=name)


async def test_a_run_is_handed_on_as_it_was(autojump_clock) -> None:
    bench = FakeBench()
    looks = [
        Measure(id=stage[:1], iteration=4, arm="A", tree="t1", stage=stage) for stage in ("merge", "holdout")
    ]
    event, _ = await play(bench, *looks)

    assert isinstance(event, RunMeasured)
    assert (event.cause, event.status, event.category, event.why) == ("m", "error", "oom", "out of memory")
    assert (event.sub_scores, event.wall_s, event.exit_code) == ({"seconds": 1.5}, 2.0, 1)
    assert bench.ran == [("benchmark", "t1"), ("holdout", "t1")]


async def test_a_bench_that_cannot_run_says_what_to_mend(autojump_clock) -> None:
    (event,) = await play(
        FakeBench(broken=True), Measure(id="m", iteration=4, arm="A", tree="t1", stage="smoke")
    )
    assert (type(event), event.why, event.hint) == (WorkFailed, "the checkout is gone", "start again")


async def test_green_guards_all_run_and_the_baseline_is_not_asked(autojump_clock) -> None:
    bench = FakeBench()
    (event,) = await play(bench, guards("c1"))

    assert isinstance(event, GuardsDone)
    assert [result.passed for result in event.results] == [True] * 3
    assert bench.ran == [("lint", "c1"), ("slow", "c1"), ("test", "c1")]


async def test_the_first_red_guard_ends_them_and_its_output_is_kept(autojump_clock) -> None:
    bench = FakeBench(red={("slow", "c1")})
    (event,) = await play(bench, guards("c1"))

    assert [(result.command, result.passed) for result in event.results] == [("lint", True), ("slow", False)]
    assert event.results[-1].output == "said\n[it did not end in time]"
    assert event.baseline_red == ()


@pytest.mark.parametrize("rounds", [1, 2])
async def test_a_guard_that_is_red_on_the_baseline_blames_nobody_and_is_asked_there_once(
    rounds: int, autojump_clock
) -> None:
    bench = FakeBench(red={("lint", commit) for commit in ("c1", "c2", "base")})
    events = await play(bench, *[guards(f"c{number}") for number in range(1, rounds + 1)])

    for event in events:
        assert event.baseline_red == ("lint",)
        assert [result.passed for result in event.results] == [False, True, True]
    assert bench.ran.count(("lint", "base")) == 1
