"""Stalls by real processes, labelled by what was simulated, and the reasons that the daemon gives: a confusion table."""

from __future__ import annotations

import json
import shlex
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attacks.target import FILES, HONEST, seat, set_up
from tests.conftest import MakeRepo
from tests.e2e.conftest import world
from tests.e2e.harness import World, clean_repository, sandbox_works

__all__ = ["world"]
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


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where everybody gets a connection and nobody an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


def test_reasons_are_those_that_were_simulated(repo: MakeRepo, world: World, silent_port: int) -> None:
    target = repo(FILES)
    stalls = {
        f"{label} {number}": f"# heard\nPORT={silent_port}; {script}"
        for label, scripts in STALLS.items()
        for number, script in enumerate(scripts)
    }
    agent = world.agent()
    seat(agent, stalls)
    set_up(
        *(
            world,
            target,
            agent,
            len(stalls),
            "--set",
            "deadlines.executor=8",
            "--set",
            "deadlines.executor_idle=3",
        ),
        *("--set", "kill_threshold=100", "--set", "max_parallel_executors=14"),
        sandbox=True,
    )
    with clean_repository(target):
        world.run(target, "--rounds", "1", code=0)
    shown = world.sictl("show", target.path, "1", "--json").json["round"]

    names = list(stalls)
    table: Counter[tuple[str, str]] = Counter()
    wrong = {}
    for result in shown["results"]:
        name = names[int(result["executor_id"].removeprefix("executor_")) - 1]
        kill = result["force_kill"]
        given = kill["reason"] if kill else "not killed"
        table[name.split()[0], given] += 1
        if given != name.split()[0]:
            wrong[name] = (given, kill)
        else:
            assert kill["processes_killed"] >= 1, (name, kill)
    print("\nsimulated \\ given".ljust(24), *(f"{reason:>20}" for reason in REASONS))
    for label in REASONS:
        print(label.ljust(24), *(f"{table[label, reason]:>20}" for reason in REASONS))
    assert len(shown["results"]) == len(stalls)
    for name, (given, kill) in wrong.items():
        print(name, given, json.dumps(kill))
    assert len(wrong) <= (1 - RIGHT_SHARE) * len(stalls), sorted(wrong)


BUSY = {
    "writes files": say("begin") + "for i in $(seq 6); do sleep 1; echo $i > note.log; done",
    "computes": say("begin") + "python3 -c 'import time\nwhile time.process_time() < 4: pass'",
}


def test_quiet_work_is_no_stall(repo: MakeRepo, world: World) -> None:
    target = repo(FILES)
    agent = world.agent()
    seat(agent, BUSY)
    set_up(world, target, agent, len(BUSY), "--set", "deadlines.executor_idle=2", sandbox=True)
    world.run(target, "--rounds", "1")
    shown = world.sictl("show", target.path, "1", "--json").json["round"]
    assert [(result["force_kill"], result["benchmark_score"]) for result in shown["results"]] == [
        (None, HONEST)
    ] * 2
