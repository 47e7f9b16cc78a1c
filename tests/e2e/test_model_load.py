"""32 executors at the same time against a service that fails in every way: through the daemon, within the cap, nothing left."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from typing import Any

import psutil
import pytest

from tests.actors.model_server import Failure, Say, say, text, tool
from tests.conftest import MakeRepo
from tests.e2e.harness import SEALED_BENCHMARK, World, sandbox_works
from tests.e2e.test_model_run import KEY, agents, served
from tests.repos import Repo

pytestmark = pytest.mark.slow
MANY = 32
BUILT_IN = 7
"""Families that need no word on why no other fits."""
CHECKS: dict[str, Any] = {
    **dict.fromkeys(("h001_hypothesis_count", "h002_family_streak", "h003_intra_round_diversity"), "pass"),
    **dict.fromkeys(("schema_valid", "history_aware"), "pass"),
}
MANNERS = ("", "slow", "429", "529", "drop", "cut", "stall", "drop-once")


class Model:
    """Plays every role; each executor's service fails in a manner of its own, by its number.

    Args:
        hold: Executors' replies are begun and not ended.
    """

    def __init__(self, *, hold: bool = False) -> None:
        self.hold = hold
        self.failed: Counter[int] = Counter()
        self.held = 0

    def reply(self, body: dict[str, Any]) -> Say | Failure:
        words = "".join(block["text"] for block in body["messages"][0]["content"] if block["type"] == "text")
        executor = re.search(r"You are executor_(\d+)\.", words)
        if executor:
            return self._execute(body, int(executor[1]))
        planner = re.search(r"You are planner_(\w+)\. Of the families, prefer: (\w+)", words)
        if planner:
            return say(tool("answer", **self._plan(planner[1], planner[2])))
        if "You are the critic" in words:
            return say(tool("answer", verdict="approved", **CHECKS))
        return agents(body)

    def _plan(self, name: str, family: str) -> dict[str, Any]:
        step = {"step": 1, "file": "value.txt", "change": f"the way of {name}"}
        told = f"The way of {name} raises the number, since the score is the number."
        return {"hypothesis": told, "approach_family": family, "target_files": ["value.txt"], "steps": [step]}

    def _execute(self, body: dict[str, Any], number: int) -> Say | Failure:
        manner = MANNERS[number % len(MANNERS)]
        if self.hold:
            self.held += 1
            return say(text("Thinking."), pause_s=300.0)
        if manner in ("429", "529") and self.failed[number] < 2:
            self.failed[number] += 1
            return Failure(int(manner), "rate_limit_error", "slow down", {"retry-after": "0.05"})
        if manner == "drop-once":
            self.failed[number] += 1
            manner = "drop" if self.failed[number] == 1 else ""
        if len(body["messages"]) > 1:
            return say(tool("done", summary="Raised the number."), manner=manner)
        new = str(100 + number)
        made = tool("edit", command="str_replace", path="value.txt", old_text="1", new_text=new)
        return say(text("Raising it."), made, manner=manner)


def set_up(world: World, repo: Repo, url: str, *more: str) -> None:
    sandbox = [] if sandbox_works() else ["--set", 'sandbox="off"']
    families = [word for number in range(MANY - BUILT_IN) for word in ("--family", f"own_{number}")]
    world.sictl(
        *("init", repo.path, "--objective", "raise the number", "--agents", str(MANY), "--trust"),
        *("--benchmark", "sh bench.sh", "--format", "number", "--backend", "anthropic", *families),
        *("--set", f'base_url="{url}"', "--set", "kill_threshold=99", *sandbox, *more),
    )


def sockets_to(pid: int, url: str) -> int:
    port = int(url.rpartition(":")[2])
    return sum(1 for one in psutil.Process(pid).net_connections() if one.raddr and one.raddr.port == port)


@pytest.mark.parametrize("cap", [None, 150], ids=["uncapped", "150 calls"])
def test_every_candidate_is_accounted_for_and_nothing_is_left(
    world: World, repo: MakeRepo, cap: int | None
) -> None:
    made = repo(SEALED_BENCHMARK)
    world.env["ANTHROPIC_API_KEY"] = KEY
    with served(Model().reply) as server:
        set_up(
            world,
            made,
            server.url,
            "--set",
            "deadlines.executor_idle=8",
            "--set",
            f"budget.calls={cap or 'null'}",
        )
        began = time.monotonic()
        world.run(made, *([] if cap else ["--rounds", "1"]), code=12 if cap else 0)
        took_s = time.monotonic() - began
        row = world.row(made)
        found = world.sictl("show", "1", "--run", made.path, "--json").json["round"]
        pid = world.daemon_pid()
        assert server.wait_closed(60)
        left = sockets_to(pid, server.url)
        most, asked = server.most_in_flight, len(server.bodies)

    ends = Counter(
        (one["status"], (one["failure_analysis"] or {}).get("what", "")[:40]) for one in found["results"]
    )
    print(f"\n{cap=} {took_s:.0f} s, {asked} calls, {most} in flight at most, ends: {dict(ends)}")
    assert row["budget"]["calls"]["spent"] == asked
    assert cap is None or asked <= cap
    assert len(found["plans"]) == MANY
    approved = sum(plan["critic_approved"] for plan in found["plans"])
    assert len(found["results"]) == approved
    history = found["history"]
    assert len(history["losers"]) + (history["winner"] is not None) == approved
    assert left == 0
    assert len(made.git("worktree", "list", "--porcelain").split("\n\n")) == 1
    assert not world.jobs()
    if cap is None:
        assert approved == MANY
        by_status = Counter(one["status"] for one in found["results"])
        # drop and cut fail twice; a stall is killed; all the others were measured
        assert by_status == {"success": 20, "error": 8, "timeout": 4}
        kills = history["force_kills"]
        assert {kill["reason"] for kill in kills} == {"network_timeout"}
        assert found["merge_report"]["winner"]["score_after"] == 132.0


def test_a_stop_closes_32_connections_at_once(world: World, repo: MakeRepo) -> None:
    made = repo(SEALED_BENCHMARK)
    world.env["ANTHROPIC_API_KEY"] = KEY
    model = Model(hold=True)
    with served(model.reply) as server:
        set_up(world, made, server.url)
        world.sictl("start", made.path)
        with world.wire() as wire:
            wire.follow(run=str(made.path))
            for _ in range(MANY):
                wire.until("executor_started")
            while model.held < MANY:
                wire.call("daemon.info")
            in_flight = sockets_to(world.daemon_pid(), server.url)
            began = time.monotonic()
            wire.send(
                json.dumps(
                    {
                        "jsonrpc": "2.0",
                        "id": 9,
                        "method": "run.cancel",
                        "params": {"run": str(made.path), "now": True},
                    }
                ).encode()
                + b"\n"
            )
            assert server.wait_closed(60)
            print(
                f"\n{in_flight} connections closed {time.monotonic() - began:.2f} s after the request to stop"
            )
        assert in_flight == MANY
        assert sockets_to(world.daemon_pid(), server.url) == 0
