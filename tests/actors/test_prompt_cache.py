"""Planners share one beginning of their prompts: it is marked for the cache, and one call goes ahead to warm it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from sid_actors.backends.model.prefixes import KEPT, LEAD_S, Prefixes
from tests.actors.model_server import Failure, ModelServer, Say, model_server, say, tool
from tests.actors.test_anthropic_backend import GOOD, Stage, stage

__all__ = ["stage"]
SHARED = "The situation, which is long. " * 40
EPHEMERAL = {"type": "ephemeral"}


def good(body: dict[str, Any]) -> Say:
    return say(tool("answer", **GOOD))


async def play_all(stage: Stage, server: ModelServer, count: int = 4) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(count):
            own = (SHARED, f"You are planner {number}.")

            async def one(own: tuple[str, str] = own) -> None:
                await stage.play(server, prompt=own)

            nursery.start_soon(one)


def prefix_of(body: dict[str, Any]) -> str:
    """Return what a service's cache goes by up to the mark: tools, system, and the first block of the messages."""
    return json.dumps([body["tools"], body["system"], body["messages"][0]["content"][0]])


async def test_the_beginning_is_one_and_the_same_and_marked_at_its_end(stage: Stage) -> None:
    async with model_server(good) as server:
        await play_all(stage, server)

    assert len(server.bodies) == 4
    assert len({prefix_of(body) for body in server.bodies}) == 1
    for body in server.bodies:
        common, own = body["messages"][0]["content"]
        assert (common["text"], common["cache_control"]) == (SHARED, EPHEMERAL)
        assert own["text"].startswith("You are planner")
        marks = json.dumps(body).count("cache_control")
        assert marks == 3  # standing rules, the shared part, the end; a service takes four


async def test_one_goes_ahead_and_the_others_follow_once_it_is_answered(stage: Stage) -> None:
    async with model_server(good) as server:
        server.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(play_all, stage, server)
            await server.arrived.wait()
            alone = len(server.bodies)
            server.gate.set()

    assert alone == 1
    assert len(server.bodies) == 4


async def test_a_failed_first_call_holds_nobody_up(stage: Stage) -> None:
    first = [Failure(529, "overloaded_error")]
    async with model_server(lambda body: first.pop() if first else good(body)) as server:
        await play_all(stage, server, 3)

    assert len(server.bodies) == 4


async def test_a_prompt_without_a_shared_part_waits_for_nobody(stage: Stage) -> None:
    async with model_server(good) as server:
        await stage.play(server, prompt=("", "Do it."))

    assert [block["text"] for block in server.bodies[0]["messages"][0]["content"]] == ["Do it."]


async def test_a_silent_first_call_is_not_waited_for_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    prefixes = Prefixes()
    await prefixes.lead("planner", "m", SHARED)
    began = trio.current_time()
    await prefixes.lead("planner", "m", SHARED)

    assert trio.current_time() - began == pytest.approx(LEAD_S)
    for number in range(2 * KEPT):
        (await prefixes.lead("planner", "m", str(number))).set()
    assert not (await prefixes.lead("planner", "m", SHARED)).is_set()  # forgotten: it would go ahead again
