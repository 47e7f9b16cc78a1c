"""A whole run with the anthropic back end: the real daemon, its real SDK, a model of the tests on the loopback."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.from_thread

from tests.actors.model_server import Failure, ModelServer, Say, model_server, say, text, tool
from tests.e2e.harness import World, sandbox_works
from tests.repos import Repo

KEY = "sk-e2e-0123456789abcdef"


@contextmanager
def served(reply: Callable[[dict[str, Any]], Say | Failure]) -> Iterator[ModelServer]:
    """A model server in a thread of its own, since a test with `sictl` blocks."""
    ready, found = threading.Event(), list[Any]()

    async def main() -> None:
        async with model_server(reply) as server:
            leave = trio.Event()
            found.extend((server, trio.lowlevel.current_trio_token(), leave))
            ready.set()
            await leave.wait()

    thread = threading.Thread(target=trio.run, args=(main,), name="model server")
    thread.start()
    ready.wait()
    server, token, leave = found
    try:
        yield server
    finally:
        trio.from_thread.run_sync(leave.set, trio_token=token)
        thread.join()


def agents(body: dict[str, Any]) -> Say:
    """Play every role: plan to raise the number of `value.txt`, look it up, raise it by one."""
    prompt = "".join(block["text"] for block in body["messages"][0]["content"] if block["type"] == "text")
    tools = {one["name"] for one in body["tools"]}
    if "edit" in tools:
        results = [
            block["content"]
            for message in body["messages"]
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        if not results:
            return say(text("Looking."), tool("view", path="value.txt"), tool("run", command="cat value.txt"))
        if len(results) == 2:
            old = results[0].split("\t")[1].split("\n")[0]
            new = str(int(old) + 1)
            return say(tool("edit", command="str_replace", path="value.txt", old_text=old, new_text=new))
        return say(tool("done", summary="Raised the number."))
    families = ["architecture", "optimization", "training_config"]
    if "a planner of" in prompt:
        wanted = re.search(r"prefer: (\w+)", prompt)
        return say(
            tool(
                "answer",
                hypothesis="A higher number scores higher, since the score is the number.",
                approach_family=wanted[1] if wanted else families[0],
                target_files=["value.txt"],
                steps=[{"step": 1, "file": "value.txt", "change": "add one"}],
            )
        )
    if "You are the researcher" in prompt:
        ideas = [
            {
                "title": f"Idea {n}",
                "approach_family": families[n % 3],
                "evidence": "value.txt",
                "confidence": "high",
            }
            for n in range(3)
        ]
        return say(tool("answer", repo_analysis_summary="One number.", ideas=ideas))
    if "You are the architect" in prompt:
        points = ("testability", "novelty", "scope", "target_files", "clarity", "expected_outcome")
        return say(tool("answer", verdict="approve", checks=dict.fromkeys(points, "pass"), notes="Fine."))
    names = "h001_hypothesis_count", "h002_family_streak", "h003_intra_round_diversity"
    checks = dict.fromkeys((*names, "schema_valid", "history_aware"), "pass")
    return say(tool("answer", verdict="approved", checks=checks))


def set_up(world: World, repo: Repo, url: str, *more: str, code: int = 0) -> None:
    sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
    world.sictl(
        *("init", repo.path, "--objective", "raise the number", "--agents", "2", "--trust"),
        *("--benchmark", "sh bench.sh", "--format", "number", "--backend", "anthropic"),
        *("--set", f'base_url="{url}"', *sandbox, *more),
        code=code,
    )


def test_a_run_is_played_by_a_model_within_its_budget(world: World, numbers: Repo) -> None:
    world.env["ANTHROPIC_API_KEY"] = KEY
    with served(agents) as server:
        set_up(world, numbers, server.url)
        done = world.run(numbers, "--rounds", "2")
        row = world.row(numbers)
    assert "Status: max_iterations" in done.out
    (branch,) = [name for name in numbers.branches() if name.startswith("improve/")]
    assert numbers.git("show", f"{branch}:value.txt").strip() == "3"
    assert row["budget"]["tokens"]["spent"] == server.spent_tokens
    assert row["budget"]["calls"]["spent"] == len(server.bodies)
    assert row["budget"]["usd"]["spent"] > 0
    assert "executor" in done.out
    everywhere = [*world.state.rglob("*"), *(numbers.path / ".sid").rglob("*")]
    assert not [path for path in everywhere if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_budget_that_is_used_up_ends_the_run_with_its_round_recorded(world: World, numbers: Repo) -> None:
    world.env["ANTHROPIC_API_KEY"] = KEY
    with served(agents) as server:
        set_up(world, numbers, server.url, "--set", 'budget={"calls": 6}')
        done = world.run(numbers, code=12)
        assert "Status: budget" in done.out
        assert len(server.bodies) <= 6
        assert world.run(numbers, code=12).out.count("Status: budget") == 1
        assert len(world.rounds(numbers)) == 1
        assert len(server.bodies) <= 6
        world.sictl("config", "set", numbers.path, "budget", json.dumps({"calls": 60}))
        assert "Status: max_iterations" in world.run(numbers, "--rounds", "1").out
    log = world.sictl("attach", numbers.path, "--no-follow", "--since", "0", "--json").out
    assert [json.loads(line)["share"] for line in log.splitlines() if '"budget_used"' in line][:2] == [
        0.5,
        0.8,
    ]


def test_init_refuses_a_model_without_a_key(world: World, numbers: Repo, short_dir: Path) -> None:
    done = world.sictl(
        *("init", numbers.path, "--objective", "raise the number", "--trust", "--backend", "anthropic"),
        *("--benchmark", "sh bench.sh", "--format", "number"),
        code=2,
    )
    assert "ANTHROPIC_API_KEY" in done.err
    assert "api_key_file" in done.err


def test_a_stop_closes_the_connections_and_keeps_count_of_what_was_spent(world: World, numbers: Repo) -> None:
    world.env["ANTHROPIC_API_KEY"] = KEY
    held = threading.Event()

    def reply(body: dict[str, Any]) -> Say:
        said = agents(body)
        edits = any(block["name"] == "edit" for block in said.blocks if block["type"] == "tool_use")
        if edits:
            held.set()
        return Say(said.blocks, pause_s=60.0) if edits else said

    with served(reply) as server:
        set_up(world, numbers, server.url)
        world.sictl("start", numbers.path)
        assert held.wait(60)
        world.sictl("stop", numbers.path, "--now")
        with world.wire() as wire:
            assert wire.call("daemon.info")["pid"]
        row = world.row(numbers)
        assert server.wait_closed(5)
    # Calls in the middle of which it was stopped count, too; what they wrote was not told.
    spent = row["budget"]["calls"]["spent"]
    assert spent == len(server.bodies)


@pytest.mark.slow
def test_a_killed_daemon_forgets_no_call_and_counts_none_twice(world: World, numbers: Repo) -> None:
    world.env["ANTHROPIC_API_KEY"] = KEY
    held = threading.Event()

    def reply(body: dict[str, Any]) -> Say:
        said = agents(body)
        edits = any(block["name"] == "edit" for block in said.blocks if block["type"] == "tool_use")
        if edits and not held.is_set():
            held.set()
            return Say(said.blocks, manner="stall")
        return said

    with served(reply) as server:
        set_up(world, numbers, server.url)
        world.sictl("start", numbers.path, "--rounds", "1")
        assert held.wait(60)
        limit = time.monotonic() + 60
        while world.row(numbers)["budget"]["calls"]["spent"] != len(server.bodies):
            assert time.monotonic() < limit
        world.kill()
        world.run(numbers)
        row = world.row(numbers)
    assert row["budget"]["calls"]["spent"] == len(server.bodies)
    # A call in the middle of which it was killed had told what its prompt took.
    read = sum(role["input_tokens"] for role in row["budget"]["roles"])
    assert read == sum(server.usage_input(body) + 10 for body in server.bodies)
