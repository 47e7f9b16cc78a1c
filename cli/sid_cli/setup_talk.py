"""The part of `init` that a model helps with: it interviews, and writes a benchmark, if the user lets it.

Used by `verbs/init` on a terminal only. Everything that it says is shown escaped, and nothing of it holds before the
user has said yes; a benchmark is shown in full, and runs only after trust.
"""

from __future__ import annotations

from typing import Any

from sid_cli.client import Client
from sid_cli.console import Console
from sid_cli.cost_text import count
from sid_cli.interview import DIMENSIONS, HARD_CAP, SOFT_CAP
from sid_cli.text import clean, clean_lines
from sid_protocol.errors import SidError

MODELS = {"anthropic": "the model", "command": "your agent"}
"""Back ends that can be asked, and what people call them."""


def helped(
    client: Client, params: dict[str, Any], result: dict[str, Any], console: Console
) -> dict[str, Any]:
    """Offer the agent's help for what is missing, and return the parameters with what the user accepted.

    Args:
        client: The daemon.
        params: Of `run.init`, as a dry run.
        result: What that run said.
        console: Where to ask.
    """
    who = MODELS.get(str(result["trusts"].get("agent_backend")))
    if who is None:
        return params
    try:
        if "--objective" in result["missing"] and console.confirm(
            f"Let {who} interview you? It reads this repository, at your cost."
        ):
            params = _clarified(client, params, console)
        if "--benchmark" in result["missing"] and console.confirm(
            f"Let {who} write a benchmark? It reads this repository, at your cost; you see it before anything runs."
        ):
            params = _benchmarked(client, params, console)
    except SidError as error:
        console.note(f"{clean(error.message)}; going on without {who}")
    return params


def _clarified(client: Client, params: dict[str, Any], console: Console) -> dict[str, Any]:
    answers: list[dict[str, str]] = []
    while True:
        found = client.call(
            "setup.clarify", {**params, "answers": answers, "confirmed": True}, timeout_s=None
        )
        question = "" if len(answers) >= _cap(found["scores"]) else clean(found["question"])
        told = "  ".join(f"{name} {found['scores'].get(name, 0)}" for name in DIMENSIONS)
        if not question:
            break
        answer = console.ask(f"({told})\n{question} ")
        if answer is None:
            break
        answers.append({"question": found["question"], "answer": answer})
    understood = {
        "objective": found["objective"],
        "direction": found["direction"],
        "target": found["target"],
        "scope": found["scope"],
    }
    lines = [
        f"  {name}: {clean(_words(value))}"
        for name, value in understood.items()
        if value not in (None, "", [])
    ]
    console.note("\n".join(["understood:", *lines, *_cost(found)]))
    if not console.confirm("Is that the goal?"):
        return params
    given = {name: value for name, value in understood.items() if value not in (None, "", [])}
    return {**params, **{name: value for name, value in given.items() if name not in params}}


def _cap(scores: dict[str, int]) -> int:
    """Return how many questions may be asked: fewer once nothing is hardly known."""
    return HARD_CAP if min(scores.values(), default=0) < 50 else SOFT_CAP


def _benchmarked(client: Client, params: dict[str, Any], console: Console) -> dict[str, Any]:
    found = client.call("setup.benchmark", {**params, "confirmed": True}, timeout_s=None)
    rule = console.marks.rule * 60
    console.note(f"{rule}\n{clean_lines(found['text'])}\n{rule}")
    console.note("\n".join([clean(found["why"]), f"run by: {clean(found['command'])}", *_cost(found)]))
    if not console.confirm("Use this benchmark?"):
        return params
    chosen = {"benchmark": found["command"], "format": found["format"]}
    assigned = dict(params.get("set", {}))
    paths = [*assigned.get("benchmark_paths", []), *found["paths"]]
    return {
        "direction": found["direction"],
        **params,
        **chosen,
        "set": {**assigned, "benchmark_paths": paths},
    }


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cost(found: dict[str, Any]) -> list[str]:
    if found.get("input_tokens") is None:
        return []
    usd = found.get("usd")
    money = "price unknown" if usd is None else f"~{usd:.4f} USD"
    return [
        f"that took {count(found['input_tokens'])} tokens in, {count(found['output_tokens'])} out, {money}"
    ]
