"""`sictl node run`: a node of the self-improving kind, a prompt, a judge and any program as its model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from sid_cli import places
from sid_cli.options import verb
from sid_cli.presets import PRESETS
from sid_cli.session import Session
from sid_cli.text import clean
from sid_protocol.errors import UsageError


@verb("node", example="sictl node run examples/commit-msg examples/commit-msg/seed.md --runs 6")
@click.argument("action", type=click.Choice(("run",)))
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.argument("seed", metavar="SEED", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--runs", type=click.IntRange(min=1), default=1, metavar="N", help="How many runs, one after another."
)
@click.option(
    "--model",
    metavar="COMMAND",
    help="Reads a prompt on stdin, writes an answer to stdout; default: $MODEL_CMD, else the program 'model' in DIR.",
)
@click.option(
    "--window",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="How many runs to look back on.  [default: 5]",
)
@click.option(
    "--threshold",
    type=click.IntRange(min=1),
    default=2,
    metavar="N",
    help="How many runs make a lesson.  [default: 2]",
)
@click.option(
    "--env",
    "names",
    multiple=True,
    metavar="NAME",
    help="A variable of the daemon's environment that the model gets, too.",
)
@click.option("--path", "paths", multiple=True, metavar="PATH[:rw]", help="A path that the model sees, too.")
@click.option("--no-sandbox", is_flag=True, help="Run model and judge without a sandbox, as you.")
def command(
    session: Session,
    *,
    action: str,  # noqa: ARG001 - `run` is the only one there is
    folder: str,
    seed: str,
    runs: int,
    model: str | None,
    window: int,
    threshold: int,
    names: tuple[str, ...],
    paths: tuple[str, ...],
    no_sandbox: bool,
) -> None:
    """Run a node: its model answers, its judge scores, and what goes wrong in two runs becomes a lesson in BANS.md."""
    command_line = model if model is not None else os.environ.get("MODEL_CMD")
    if command_line is not None and not command_line.strip():
        raise UsageError("the model's command is empty", hint="such as --model 'claude -p'")
    wanted = {
        "node": places.absolute(folder),
        "seed": places.absolute(seed),
        "cwd": places.here(),
        "model": command_line,
        "agent_env": list(names) + _known(command_line, "env"),
        "agent_paths": list(paths) + _known(command_line, "paths"),
        "window": window,
        "threshold": threshold,
        "sandbox": not no_sandbox,
    }
    found: list[dict[str, Any]] = []
    with session.daemon(spawn=True) as client:
        for number in range(1, runs + 1):
            result = client.call("node.run", wanted, timeout_s=None)
            found.append(result)
            session.console.say(_line(number, result))
    session.console.result({"runs": found, "scores": [one["final_score"] for one in found]}, "")
    session.exit_code = 1 if found[-1]["status"] in ("failed", "aborted") else 0


def _known(command_line: str | None, what: str) -> list[str]:
    """Return what an agent that `init --agent` knows needs to find its own settings."""
    program = Path((command_line or " ").split(" ")[0]).name
    if program not in PRESETS:
        return []
    found = getattr(PRESETS[program], what)
    if what == "paths":
        found = [path for path in found if Path(path.removesuffix(":rw")).expanduser().exists()]
    return list(found)


def _line(number: int, result: dict[str, Any]) -> str:
    score = "no score" if result["final_score"] is None else f"score {result['final_score']:g}"
    rounds = f"{result['rounds']} round{'' if result['rounds'] == 1 else 's'}"
    parts = [f"run {number}: {score}", f"{result['status'].replace('_', ' ')} in {rounds}"]
    if result["status"] in ("failed", "aborted"):
        parts.append(clean(result["exit_reason"]))
    if result["promoted"]:
        parts.append(f"learned {', '.join(map(clean, result['promoted']))}")
    return "   ".join(parts)
