"""Agents stand still while another run measures: their processes, their deadlines, their clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
import trio.testing

from sid_actors.jobs.job import JobHandle, JobResult, JobSpec
from sid_actors.jobs.process import run_job
from sid_actors.standstill import AgentClock, Standstill

HANG_S = 60.0
TREE = "for i in 1 2; do sh -c 'while :; do echo >> {out}; sleep 0.01; done' & done; wait"


class Agent:
    """A job that writes all the time, from two children."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.result: JobResult | None = None

    async def run(self, clock: AgentClock, started: trio.Event, **spec: Any) -> None:
        def begun(handle: JobHandle) -> None:
            clock.enlist(handle)
            started.set()

        argv = ("/bin/sh", "-c", TREE.format(out=self.out))
        wanted = {"deadline_s": None, **spec}
        self.result = await run_job(
            JobSpec(argv=argv, cwd="/", env={"PATH": "/usr/bin:/bin"}, sandbox=None, **wanted), on_start=begun
        )

    def written(self) -> int:
        return self.out.stat().st_size if self.out.exists() else 0

    async def grows(self) -> None:
        before = self.written()
        with trio.fail_after(HANG_S):
            while self.written() == before:  # noqa: ASYNC110 -- another process's file
                await trio.sleep(0.005)


async def test_others_stand_still_and_go_on_and_the_own_agents_never_stop(short_dir: Path) -> None:
    standstill, own, other = Standstill(), AgentClock(), AgentClock()
    mine, theirs = Agent(short_dir / "mine"), Agent(short_dir / "theirs")
    for clock in (own, other):
        standstill.join(clock)
    async with trio.open_nursery() as nursery:
        for agent, clock in ((mine, own), (theirs, other)):
            started = trio.Event()
            nursery.start_soon(agent.run, clock, started)
            await started.wait()
            await agent.grows()
        async with standstill.around(own):
            before, at = theirs.written(), other.now()
            for _ in range(20):
                await mine.grows()
            assert (theirs.written(), other.now()) == (before, at)
            assert own.now() > at
        await theirs.grows()
        assert other.now() > at
        nursery.cancel_scope.cancel()


async def test_a_job_that_begins_meanwhile_and_one_of_a_new_run_stand_still_at_once(short_dir: Path) -> None:
    standstill, other, late = Standstill(), AgentClock(), AgentClock()
    standstill.join(other)
    agents = [Agent(short_dir / "one"), Agent(short_dir / "two")]
    async with trio.open_nursery() as nursery:
        async with standstill.around(None):
            standstill.join(late)
            for agent, clock in zip(agents, (other, late), strict=True):
                started = trio.Event()
                nursery.start_soon(agent.run, clock, started)
                await started.wait()
            before = [agent.written() for agent in agents]
            await trio.sleep(0.1)
            assert [agent.written() for agent in agents] == before
        for agent in agents:
            await agent.grows()
        nursery.cancel_scope.cancel()


async def test_a_jobs_deadline_waits_with_it(short_dir: Path) -> None:
    standstill, clock = Standstill(), AgentClock()
    standstill.join(clock)
    agent = Agent(short_dir / "out")
    async with trio.open_nursery() as nursery:
        started = trio.Event()
        nursery.start_soon(lambda: agent.run(clock, started, deadline_s=0.5))
        await started.wait()
        async with standstill.around(None):
            await trio.sleep(0.8)
            assert agent.result is None
        begun = clock.now()
        await agent.grows()
    assert agent.result is not None
    assert agent.result.timed_out
    assert clock.now() > begun


async def test_a_job_that_stands_still_can_be_ended(short_dir: Path) -> None:
    standstill, clock = Standstill(), AgentClock()
    standstill.join(clock)
    agent = Agent(short_dir / "out")
    async with standstill.around(None), trio.open_nursery() as nursery:
        started = trio.Event()
        nursery.start_soon(lambda: agent.run(clock, started, grace_s=0.2))
        await started.wait()
        nursery.cancel_scope.cancel()
    assert clock.jobs[0].ended


async def test_no_deadline_is_due_on_a_clock_that_stands_still(autojump_clock: object) -> None:
    clock = AgentClock()
    await trio.sleep(5)
    begun = clock.now()
    clock.stop()
    await trio.sleep(100)
    assert clock.now() == begun
    assert clock.trio_time(begun + 1) == float("inf")
    clock.go()
    await trio.sleep(3)
    assert clock.now() == begun + 3
    assert clock.trio_time(begun + 4) == trio.current_time() + 1
