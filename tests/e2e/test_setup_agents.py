"""The agents of set-up through the real daemon: a program and a model interview and write a benchmark, which is sealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.actors.model_server import Say, say, tool
from tests.conftest import MakeRepo
from tests.e2e.harness import World, sandbox_works
from tests.e2e.test_model_run import KEY, served

FILES = {"value.txt": "5\n", "README.md": "One number.\n"}
BUILT: dict[str, Any] = {
    "file": "bench.sh",
    "text": "# reads the number\ncat value.txt\n",
    "run": "sh {file}",
    "format": "number",
    "direction": "higher",
    "why": "The number is the goal.",
}
AGENT = """\
import json, os, sys
prompt = sys.stdin.read()
assert "SID_OUTPUT_SCHEMA" in os.environ and os.path.exists("value.txt")
try:
    open("left", "w")
    sys.exit("the view can be written")
except OSError:
    pass
if os.environ["SID_ROLE"] == "goal_clarifier":
    clear = "The user: the number" in prompt
    print(json.dumps({
        "scores": dict.fromkeys(("objective", "metric", "target", "scope"), 90 if clear else 10),
        "question": "" if clear else "What is to be raised?",
        "objective": "raise the number" if clear else "unknown",
        "direction": "higher",
    }))
else:
    print("Here it is:\\n```json\\n" + json.dumps(BUILT) + "\\n```")
"""


def sandbox() -> dict[str, Any]:
    return {} if sandbox_works() else {"sandbox": "off"}


def test_a_program_interviews_and_its_benchmark_is_validated_and_sealed(world: World, repo: MakeRepo) -> None:
    made = repo(FILES)
    folder = world.base / "setup agent"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT.replace("BUILT", repr(BUILT)))
    flags = {
        "repo": str(made.path),
        "backend": "command",
        "agent_command": f"python3 -IS '{folder}/agent.py'",
        "set": sandbox(),
    }
    world.daemon()
    with world.wire() as wire:
        refused = wire.answer("setup.clarify", **flags)
        assert refused["error"]["code"] == -32002  # nobody has confirmed it: nothing runs
        first = wire.call("setup.clarify", **flags, confirmed=True)
        assert (first["question"], first["scores"]["metric"]) == ("What is to be raised?", 10)
        answers = [{"question": first["question"], "answer": "the number"}]
        clear = wire.call("setup.clarify", **flags, confirmed=True, answers=answers)
        assert (clear["question"], clear["objective"], clear["direction"]) == (
            "",
            "raise the number",
            "higher",
        )
        built = wire.call("setup.benchmark", **flags, confirmed=True, objective=clear["objective"])
    assert built["text"] == BUILT["text"]
    kept = Path(built["file"])
    assert kept.read_text() == BUILT["text"]
    assert kept.is_relative_to(world.state)

    words = [
        *("init", made.path, "--objective", clear["objective"], "--benchmark", built["command"]),
        *("--format", built["format"], "--backend", "command", "--agent-command", flags["agent_command"]),
        *("--set", f"benchmark_paths={json.dumps(built['paths'])}"),
        *(word for key, value in sandbox().items() for word in ("--set", f"{key}={json.dumps(value)}")),
    ]
    ready = world.sictl(*words, "--trust", "--json").json
    assert ready["baseline"]["samples"] == [5.0, 5.0, 5.0]
    assert made.git("status", "--porcelain") == ""

    kept.chmod(0o600)
    kept.write_text("echo 99\n")
    changed = world.sictl(*words, "--trust", code=5)
    assert "the benchmark was changed since it was trusted" in changed.err


@pytest.mark.slow
def test_a_model_does_the_same_and_says_what_it_took(world: World, repo: MakeRepo) -> None:
    made = repo(FILES)

    def model(body: dict[str, Any]) -> Say:
        schema = json.dumps(body["tools"][0]["input_schema"])
        if "scores" in schema:
            scores = dict.fromkeys(("objective", "metric", "target", "scope"), 85)
            return say(tool("answer", scores=scores, objective="raise the number", question=""))
        looked = len(body["messages"]) > 1
        return say(tool("answer", **BUILT)) if looked else say(tool("view", path="value.txt"))

    with served(model) as server:
        world.env["ANTHROPIC_API_KEY"] = KEY
        world.daemon()
        flags = {
            "repo": str(made.path),
            "backend": "anthropic",
            "confirmed": True,
            "set": {"base_url": server.url, **sandbox()},
        }
        with world.wire() as wire:
            clear = wire.call("setup.clarify", **flags)
            built = wire.call("setup.benchmark", **flags, objective=clear["objective"])

    assert clear["objective"] == "raise the number"
    assert clear["input_tokens"] > 100
    assert clear["usd"] > 0
    assert built["text"] == BUILT["text"]
    assert len(server.bodies) == 3
    assert all("no network" in str(body) or "without network" in str(body) for body in server.bodies[1:])
