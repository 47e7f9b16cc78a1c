"""Stalls by real processes, labelled by what was simulated, and the reasons that the daemon gives: a confusion table."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sid_protocol.records import FAMILIES
from tests.actors.model_server import Say
from tests.actors.model_server import say as says
from tests.actors.model_server import tool as calls
from tests.attacks.target import FILES, HONEST, families, seat, set_up
from tests.conftest import MakeRepo
from tests.crowd import crowd
from tests.e2e.conftest import world
from tests.e2e.harness import World, clean_repository, sandbox_works
from tests.e2e.test_model_run import agents, served
from tests.repos import Repo

__all__ = ["world"]
Row = dict[str, Any]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")]
REASONS = (
    "context_limit",
    "stuck_on_permission",
    "tool_loop",
    "network_timeout",
    "ambiguous_task",
    "unknown",
)
RIGHT_SHARE = 0.95


def say(*lines: str) -> str:
    return "; ".join(f"echo {shlex.quote(line)}" for line in lines) + "; "


def event(**fields: object) -> str:
    return json.dumps(fields)


def text(words: str) -> str:
    return event(type="assistant", message={"content": [{"type": "text", "text": words}]})


def tool(command: str) -> str:
    use = {"type": "tool_use", "name": "Bash", "input": {"command": command}}
    return event(type="assistant", message={"content": [use]})


HANG = "exec sleep 600"
CONNECT = "exec 3<>/dev/tcp/127.0.0.1/$PORT; cat <&3"
START = event(type="system", subtype="init")


def over(*commands: str) -> str:
    """Do the same again and again, and say so."""
    lines = say(*map(tool, commands))
    return f"while :; do {lines} sleep 0.3; done"


STALLS: dict[str, tuple[str, ...]] = {
    "context_limit": (
        say(START, event(type="result", subtype="error", result="prompt is too long: 210000 tokens > 200000 maximum")) + HANG,
        say(event(type="assistant", message={"content": [], "stop_reason": "max_tokens"})) + HANG,
        say(event(type="assistant", message={"content": [], "stop_reason": "model_context_window_exceeded"})) + HANG,
        "echo 'Error: context length exceeded' >&2; " + HANG,
        "echo 'input exceeds the maximum context of the model' >&2; " + HANG,
        say("Auto-compacting conversation...", "Auto-compacting conversation...") + HANG,
        say(START, text("The conversation is too long, please start a new one.")) + HANG,
    ),
    "stuck_on_permission": (
        say("Do you want to proceed? [y/N]") + HANG,
        say("Allow edit of app.py?") + HANG,
        "printf 'Password: '; " + HANG,
        say("This command requires approval") + HANG,
        say(START, text("Claude requested permissions to write, but you haven't granted it yet.")) + HANG,
        "echo 'Press enter to continue' >&2; " + HANG,
        say("Enter passphrase for key:") + HANG,
    ),
    "tool_loop": (
        over("pytest"),
        over("ls", "cat app.py"),
        over("a", "b", "c"),
        over("a", "b", "c", "d"),
        say(tool("x")) + over("pytest -x"),
        "while :; do echo 'FAILED tests/test_app.py'; sleep 0.2; done",
        say(*[tool("pytest")] * 8) + HANG,
    ),
    "network_timeout": (
        say("calling the model") + CONNECT,
        say(START, tool("edit")) + CONNECT,
        f"{CONNECT.split(';', maxsplit=1)[0]}; echo connected; cat <&3",
        "echo 'Error: Connection timed out' >&2; " + HANG,
        "echo 'API error 529 overloaded_error, retrying' >&2; " + HANG,
        "echo 'getaddrinfo EAI_AGAIN api.example.invalid' >&2; " + HANG,
        say("Rate limit reached, waiting") + HANG,
    ),
    "ambiguous_task": (
        say(START, text("Which file should I change?")) + HANG,
        say("The task is unclear to me.") + HANG,
        say("Could you clarify what faster means?") + HANG,
        say(text("What would you like me to do first?")) + HANG,
        say("I need more information about the target.") + HANG,
        say(event(type="assistant", message={"content": [{"type": "text", "text": "Hm."}], "stop_reason": "end_turn"})) + HANG,
        say(text("Should I rewrite it, or tune it?")) + HANG,
    ),
    "unknown": (
        say("working") + HANG,
        say(START, tool("edit")) + HANG,
        say(text("Now I edit the file.")) + HANG,
        "echo x = 1 > new.py; " + say("edited") + HANG,
        say("thinking", "still thinking") + "kill -STOP $$",
        "for i in 1 2 3; do echo step $i; done; " + HANG,
        say(tool("a"), tool("b"), tool("a")) + HANG,
    ),
}  # fmt: skip


SAID = {
    "context_limit": (
        "prompt is too long: 250112 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens",
        "context_length_exceeded",
        "Error: context window exceeded",
        "input has too many tokens",
    ),
    "stuck_on_permission": (
        "Do you want to continue? (yes/no)",
        "Allow this command to run?",
        "Permission required to write app.py",
        "Approve the edit of app.py?",
        "Bash requires your approval",
    ),
    "network_timeout": (
        "connect ECONNREFUSED 10.1.2.3:443",
        "read ECONNRESET",
        "Temporary failure in name resolution",
        "Request timed out.",
        "503 Service Unavailable",
    ),
    "ambiguous_task": (
        "Please clarify which metric counts.",
        "It is ambiguous whether speed or memory matters.",
        "What should I optimise?",
        "Could you specify the file?",
        "Which option do you prefer?",
    ),
    "unknown": (
        "Reading app.py",
        "Planning the change",
        "Compiling",
        "Step 3 of 7",
        "Warming the cache",
    ),
}
"""What is said before nothing more is."""
HANGS = (HANG, "read -r _ < <(sleep 600)", "kill -STOP $$")
TALK: dict[str, Callable[[str], str]] = {
    "standard output": say,
    "standard error": lambda words: f"echo {shlex.quote(words)} >&2; ",
    "without an end of line": lambda words: f"printf %s {shlex.quote(words)}; ",
    "a stream's text": lambda words: say(START, text(words)),
    "a stream's text after a tool": lambda words: say(START, tool("ls"), text(words)),
    "after other words": lambda words: say("Hello.", "I begin.", words),
}
LOOPS = (
    *(over(f"{word} {number}") for number in range(4) for word in ("pytest -q", "cat")),
    *(over(f"a{n}", f"b{n}") for n in range(4)),
    *(over(f"a{n}", f"b{n}", f"c{n}") for n in range(4)),
    *(over(f"a{n}", f"b{n}", f"c{n}", f"d{n}") for n in range(4)),
    *(f"while :; do echo 'E   assert {n} == 3'; sleep 0.2; done" for n in range(3)),
)
PARTS = 3
PART_SIZE = 60


def stalls_of(part: int) -> dict[str, str]:
    """Return one part of the stalls, by `label number`: all those above, then words, ways of talking and ways to hang."""
    dice = random.Random(part)
    made: dict[str, list[str]] = {}
    for label, scripts in STALLS.items():
        drawn = list(scripts) if part == 0 else []
        more = [LOOPS[(part * 10 + n) % len(LOOPS)] for n in range(10)]
        if label in SAID:
            ways = [(words, way, hang) for words in SAID[label] for way in TALK.values() for hang in HANGS]
            more = [way(words) + hang for words, way, hang in dice.sample(ways, PART_SIZE // 6)]
        made[label] = [*drawn, *more][: PART_SIZE // 6]
    return {f"{label} {n}": script for label, scripts in made.items() for n, script in enumerate(scripts)}


def judged(shown: Row, names: dict[str, str]) -> list[str]:
    """Print the confusion table of a round, and return which were misjudged."""
    table: Counter[tuple[str, str]] = Counter()
    wrong = []
    for result in shown["results"]:
        name = names[result["executor_id"]]
        label, kill = name.split()[0], result["force_kill"]
        given = kill["reason"] if kill else "not killed"
        table[label, given] += 1
        if given != label:
            wrong.append(f"{name}: {given}: {json.dumps(kill or result['failure_analysis'])}")
        else:
            assert kill["processes_killed"] >= (0 if "model" in name else 1), (name, kill)
    print("\nsimulated \\ given".ljust(24), *(f"{reason:>20}" for reason in REASONS))
    for label in REASONS:
        print(label.ljust(24), *(f"{table[label, reason]:>20}" for reason in REASONS))
    print(*wrong, sep="\n")
    assert len(shown["results"]) == len(names)
    return wrong


def to_its_end(world: World, target: Repo) -> None:
    """Run one round, however long it takes."""
    world.sictl("start", target.path, "--rounds", "1")
    with world.wire() as wire:
        wire.follow().until("run_ended")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where everybody gets a connection and nobody an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_reasons_are_those_that_were_simulated(
    repo: MakeRepo, world: World, silent_port: int, part: int
) -> None:
    target = repo(FILES)
    stalls = {name: f"# heard\nPORT={silent_port}; {script}" for name, script in stalls_of(part).items()}
    agent = world.agent()
    seat(agent, stalls)
    clocks = ("--set", "deadlines.executor=8", "--set", "deadlines.executor_idle=3")
    more = ("--set", "kill_threshold=1000", "--set", "max_parallel_executors=14")
    set_up(world, target, agent, len(stalls), *clocks, *more, sandbox=True)
    with clean_repository(target):
        to_its_end(world, target)
    shown = world.sictl("show", target.path, "1", "--json").json["round"]
    wrong = judged(shown, {f"executor_{number}": name for number, name in enumerate(stalls, 1)})
    assert len(wrong) <= (1 - RIGHT_SHARE) * len(stalls)


SILENT = says(pause_s=600.0)
PLAYED: dict[str, tuple[Callable[[int], Say], ...]] = {
    "network_timeout": (lambda turn: SILENT, lambda turn: says(calls("view", turn, path="app.py")) if turn < 2 else SILENT),
    "tool_loop": (
        lambda turn: says(calls("run", turn, command="sleep 0.9; cat app.py")),
        lambda turn: says(calls("run", turn, command=f"sleep 0.9; grep V{turn % 2} app.py")),
        lambda turn: says(calls("run", turn, command="sleep 0.8; false")),
    ),
    "stuck_on_permission": (
        lambda turn: says(calls("run", turn, command="printf 'Password: '; sleep 600")),
        lambda turn: says(calls("run", turn, command="echo 'Proceed? [y/N]'; sleep 600")),
    ),
    "unknown": (
        lambda turn: says(calls("run", turn, command="sleep 600")),
        lambda turn: says(calls("run", turn, command="echo begin; kill -STOP $$")),
    ),
}  # fmt: skip
"""What a model does in its k-th call of a turn, by what comes of it."""
MODELS = 20


@pytest.mark.timeout(900)
def test_reasons_of_agents_that_a_model_plays(repo: MakeRepo, world: World) -> None:
    target = repo(FILES)
    world.env["ANTHROPIC_API_KEY"] = "sk-stalls-0123456789abcdef"
    known = [*FAMILIES, *families(MODELS)]
    kinds = [(label, play) for label, plays in PLAYED.items() for play in plays]
    played = {family: kinds[n % len(kinds)] for n, family in enumerate(known)}

    def reply(body: Row) -> Say:
        prompt = "".join(block["text"] for block in body["messages"][0]["content"])
        if "edit" not in {one["name"] for one in body["tools"]}:
            said = agents(body)
            wanted = re.search(r"prefer: ([\w-]+)", prompt)
            family = wanted[1] if wanted else "data"
            for block in said.blocks:
                if "hypothesis" in block["input"]:
                    block["input"] |= {
                        "hypothesis": f"By {family}, since it counts.",
                        "approach_family": family,
                        "target_files": ["app.py"],
                        "steps": [{"step": 1, "file": "app.py", "change": "VALUE = 2"}],
                    }
            return said
        chosen = re.search(r"By ([\w-]+), since it counts", prompt)
        assert chosen
        return played[chosen[1]][1](len(body["messages"]) // 2)

    with served(reply) as server:
        shield = [] if sandbox_works() else ["--set", 'sandbox="off"']
        world.sictl(
            *("init", target.path, "--objective", "raise the number", "--agents", str(MODELS), "--trust"),
            *("--benchmark", "python3 -B bench.py", "--format", "number", "--backend", "anthropic"),
            *("--set", f'base_url="{server.url}"', "--set", "deadlines.executor=40", *shield),
            *("--set", "deadlines.executor_idle=10", "--set", "kill_threshold=1000"),
            *("--set", "max_parallel_executors=10"),
            *(word for family in families(MODELS) for word in ("--family", family)),
        )
        to_its_end(world, target)
    shown = world.sictl("show", target.path, "1", "--json").json["round"]
    plans = {plan["plan_id"]: plan["approach_family"] for plan in shown["plans"]}
    names = {
        one["executor_id"]: f"{played[plans[one['plan_id']]][0]} by a model {n}"
        for n, one in enumerate(shown["results"])
    }
    wrong = judged(shown, names)
    assert len(names) == MODELS
    assert len(wrong) <= (1 - RIGHT_SHARE) * MODELS


BUSY = {
    "writes files": say("begin") + "for i in $(seq 6); do sleep 1; echo $i > note.log; done",
    "computes": say("begin")
    + "python3 -c 'import time\nend = time.time() + 15\nwhile time.time() < end: pass'",
    "runs commands": say("begin")
    + "end=$(($(date +%s) + 15)); while [ $(date +%s) -lt $end ]; do /bin/true; done",
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("each", [0, 10])
def test_quiet_work_is_no_stall(repo: MakeRepo, world: World, each: int) -> None:
    target = repo(FILES)
    agent = world.agent()
    seat(agent, BUSY)
    set_up(world, target, agent, len(BUSY), "--set", "deadlines.executor_idle=4", sandbox=True)
    with crowd(each, os.sched_getaffinity(0)):
        to_its_end(world, target)
    shown = world.sictl("show", target.path, "1", "--json").json["round"]
    assert [(result["force_kill"], result["benchmark_score"]) for result in shown["results"]] == [
        (None, HONEST)
    ] * len(BUSY)
