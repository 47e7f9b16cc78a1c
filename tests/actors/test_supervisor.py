"""Actors answer each command once, survive cancelled work, are restarted, and end in reverse order."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from sid_actors.actor import Actor
from sid_actors.intensity import Intensity
from sid_actors.supervisor import ChildSpec, RestartIntensityExceeded, Supervisor
from sid_actors.watching.activity import ActivityLog
from sid_protocol.commands import Research
from sid_protocol.errors import WrongMoment
from sid_protocol.events import ActorCrashed, AgentFailed, Event


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def command(name: str) -> Research:
    return Research(id=name, iteration=1, head="h")


@dataclass(slots=True)
class World:
    """What the scripted actors report, and the gates that hold them."""

    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    gates: dict[str, trio.Event] = field(default_factory=dict)
    lives: Counter[str] = field(default_factory=Counter)

    def gate(self, name: str) -> trio.Event:
        return self.gates.setdefault(name, trio.Event())


@dataclass(slots=True, kw_only=True, eq=False)
class Scripted(Actor[Research, Event]):
    """Does what the command's id says: `boom…` crashes, `wait…` waits at its gate, `wrong…` answers amiss."""

    world: World

    async def run(self) -> None:
        self.world.lives[self.name] += 1
        try:
            await super(Scripted, self).run()
        finally:
            self.world.ended.append(self.name)

    async def handle(self, message: Research, activity: ActivityLog) -> Event:
        self.world.begun.append(message.id)
        if message.id.startswith("boom"):
            raise ValueError("a fault")
        if message.id.startswith("wait"):
            await self.world.gate(message.id).wait()
        if message.id.startswith("wrong"):
            return AgentFailed(cause="other", why="x")
        return AgentFailed(cause=message.id, why=self.name)


@dataclass
class Running:
    supervisor: Supervisor
    up: trio.MemoryReceiveChannel[Any]
    world: World

    async def answers(self, number: int) -> list[Any]:
        return [await self.up.receive() for _ in range(number)]


@asynccontextmanager
async def running(*specs: dict[str, Any], **options: Any) -> AsyncIterator[Running]:
    world = World()
    outbox, up = trio.open_memory_channel[Any](0)
    children = [ChildSpec(factory=partial(Scripted, world=world), **spec) for spec in specs]
    supervisor = Supervisor(outbox=outbox, specs=children, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await supervisor.started.wait()
        with up:
            yield Running(supervisor, up, world)
            supervisor.stop()


async def test_each_command_gets_one_answer_in_order(autojump_clock) -> None:
    async with running({"name": "a"}) as run:
        for name in ("one", "two", "three"):
            run.supervisor.tell("a", command(name))
        assert [event.cause for event in await run.answers(3)] == ["one", "two", "three"]
        await trio.testing.wait_all_tasks_blocked()
        assert not run.supervisor.works.works


async def test_cancelled_work_is_not_answered_and_the_actor_goes_on(autojump_clock) -> None:
    async with running({"name": "a"}) as run:
        work = run.supervisor.tell("a", command("wait"))
        run.supervisor.tell("a", command("next"))
        await trio.testing.wait_all_tasks_blocked()

        assert run.supervisor.cancel("wait") is work
        await work.done.wait()

        assert not work.answered
        assert [event.cause for event in await run.answers(1)] == ["next"]
        assert run.world.lives["a"] == 1


async def test_work_can_be_withdrawn_while_it_waits_in_the_mailbox(autojump_clock) -> None:
    async with running({"name": "a"}) as run:
        run.supervisor.tell("a", command("wait"))
        waiting = run.supervisor.tell("a", command("never"))
        run.supervisor.cancel("never")
        await waiting.done.wait()
        run.world.gate("wait").set()

        assert [event.cause for event in await run.answers(1)] == ["wait"]
        await trio.testing.wait_all_tasks_blocked()
        assert run.world.begun == ["wait"]
        assert not run.supervisor.works.works


async def test_work_cancelled_before_its_answer_is_taken_is_not_answered(autojump_clock) -> None:
    async with running({"name": "a"}) as run:
        work = run.supervisor.tell("a", command("quick"))
        await trio.testing.wait_all_tasks_blocked()  # its answer waits for the one receiver
        run.supervisor.cancel("quick")
        await work.done.wait()

        assert not work.answered
        with pytest.raises(trio.WouldBlock):
            run.up.receive_nowait()


async def test_cancelling_ended_or_unknown_work_says_so(autojump_clock) -> None:
    async with running({"name": "a"}) as run:
        run.supervisor.tell("a", command("one"))
        await run.answers(1)
        await trio.testing.wait_all_tasks_blocked()

        assert run.supervisor.cancel("one") is None
        assert run.supervisor.cancel("unknown") is None


@pytest.mark.parametrize("fault", ["boom", "wrong"])
async def test_a_crash_is_answered_and_mail_is_not_lost(fault: str, autojump_clock) -> None:
    async with running({"name": "a"}, {"name": "b"}) as run:
        for name in (fault, "next"):
            run.supervisor.tell("a", command(name))
        crashed, answered = await run.answers(2)

        assert isinstance(crashed, ActorCrashed)
        assert (crashed.cause, crashed.actor) == (fault, "a")
        assert answered.cause == "next"
        assert run.world.lives == {"a": 2, "b": 1}


async def test_a_restart_waits_for_its_backoff(autojump_clock) -> None:
    async with running({"name": "a"}, intensity=Intensity(first_backoff_s=2)) as run:
        before = trio.current_time()
        for name in ("boom1", "boom2", "next"):
            run.supervisor.tell("a", command(name))
        await run.answers(3)

        assert trio.current_time() - before == pytest.approx(2 + 4)


async def test_too_many_crashes_fail_the_run_with_the_reason(autojump_clock) -> None:
    with pytest.RaisesGroup(RestartIntensityExceeded) as caught:
        async with running({"name": "a"}, {"name": "b"}, intensity=Intensity(max_restarts=1)) as run:
            run.supervisor.tell("a", command("boom1"))
            run.supervisor.tell("a", command("boom2"))
            assert [event.cause for event in await run.answers(2)] == ["boom1", "boom2"]
            await trio.sleep_forever()

    assert "a fault" in str(caught.value.exceptions[0])
    assert run.world.ended[-1] == "b"


async def test_a_temporary_actor_is_not_restarted_and_its_mail_is_answered(autojump_clock) -> None:
    async with running({"name": "a", "restart": "temporary"}) as run:
        for name in ("boom", "next"):
            run.supervisor.tell("a", command(name))
        events = await run.answers(2)

        assert [(type(event), event.cause) for event in events] == [
            (ActorCrashed, "boom"),
            (ActorCrashed, "next"),
        ]
        await trio.testing.wait_all_tasks_blocked()
        assert run.supervisor.children == ()


async def test_children_end_in_reverse_order_of_their_start(autojump_clock) -> None:
    async with running({"name": "a"}, {"name": "b"}) as run:
        late = ChildSpec(name="c", factory=partial(Scripted, world=run.world), restart="transient")
        run.supervisor.start_child(late)
        await trio.testing.wait_all_tasks_blocked()
    assert run.world.ended == ["c", "b", "a"]


async def test_cancelling_the_supervisor_ends_children_in_reverse_order_too(autojump_clock) -> None:
    outbox, up = trio.open_memory_channel[Any](0)
    world = World()
    children = [ChildSpec(name=name, factory=partial(Scripted, world=world)) for name in "abc"]
    supervisor = Supervisor(outbox=outbox, specs=children)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.run)
        await supervisor.started.wait()
        work = supervisor.tell("b", command("wait"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert world.ended == ["c", "b", "a"]
    assert work.done.is_set()
    with pytest.raises(trio.EndOfChannel):
        up.receive_nowait()


async def test_what_cannot_be_delivered_is_refused(autojump_clock) -> None:
    async with running({"name": "a", "mailbox": 1}) as run:
        with pytest.raises(WrongMoment, match="no actor z"):
            run.supervisor.tell("z", command("one"))
        run.supervisor.tell("a", command("wait"))
        with pytest.raises(WrongMoment, match="already"):
            run.supervisor.tell("a", command("wait"))
        await trio.testing.wait_all_tasks_blocked()
        run.supervisor.tell("a", command("two"))
        with pytest.raises(WrongMoment, match="full"):
            run.supervisor.tell("a", command("three"))
        with pytest.raises(WrongMoment, match="there already"):
            run.supervisor.start_child(ChildSpec(name="a", factory=partial(Scripted, world=run.world)))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["quick", "boom", "wait", "wrong", "open", "cancel", "receive", "settle"]),
        st.integers(0, 1),
        st.integers(0, 5),
    ),
    max_size=25,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_whatever_happens_no_command_is_answered_twice_or_forgotten(steps: list[Any]) -> None:
    async def story() -> None:
        sent: list[Any] = []
        events: list[Any] = []
        async with running({"name": "a"}, {"name": "b"}, intensity=Intensity(max_restarts=99)) as run:
            for number, (what, actor, which) in enumerate(steps):
                match what:
                    case "settle":
                        await trio.testing.wait_all_tasks_blocked()
                    case "receive":
                        with trio.move_on_after(60):
                            events.append(await run.up.receive())
                    case "open" | "cancel" if not sent:
                        pass
                    case "open":
                        run.world.gate(sent[which % len(sent)].command_id).set()
                    case "cancel":
                        run.supervisor.cancel(sent[which % len(sent)].command_id)
                    case _:
                        try:
                            sent.append(run.supervisor.tell("ab"[actor], command(f"{what}{number}")))
                        except WrongMoment as error:
                            assert "full" in str(error)  # noqa: PT017 - a full mailbox is a legal refusal
            for work in sent:
                run.world.gate(work.command_id).set()
            with trio.move_on_after(10_000):
                while True:
                    events.append(await run.up.receive())
            answers = Counter(event.cause for event in events)
            for work in sent:
                assert work.done.is_set()
                cancelled = work.scope.cancel_called
                assert answers[work.command_id] <= 1
                if not cancelled or work.answered:
                    assert answers[work.command_id] == 1
                else:
                    assert answers[work.command_id] == 0
            assert not run.supervisor.works.works

    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))
