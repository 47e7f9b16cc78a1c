"""`sictl init`: the set-up gate: goal, benchmark, harness, trust."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sid_cli import interview, places
from sid_cli.client import Client
from sid_cli.console import Console
from sid_cli.options import completed, verb
from sid_cli.presets import PRESETS, with_preset
from sid_cli.session import Session
from sid_cli.setup_talk import helped
from sid_cli.status_text import Look
from sid_cli.survey import Offer, survey
from sid_cli.text import clean
from sid_cli.trust_text import done, next_command, trust_question
from sid_cli.verbs.config import finite
from sid_protocol.errors import Refused, SettingsInvalid, UsageError

_READ_BYTES = 65_536
_EXAMPLE = """sictl init
sictl init ~/src/primes --objective "make the sieve faster" --benchmark "python3 bench.py" --format number --trust"""


@verb("init", example=_EXAMPLE)
@click.argument("repo", metavar="[REPO]", required=False, shell_complete=completed("folder"))
@click.option("--objective", metavar="TEXT", help="What should get better.")
@click.option("--metric", metavar="NAME", help="The key of the score in a JSON result.")
@click.option("--target", metavar="X", type=float, help="Stop when the score reaches it.")
@click.option("--direction", type=click.Choice(("higher", "lower")), help="Which values are better.")
@click.option("--scope", metavar="GLOB", multiple=True, help="What may change; repeat it for more.")
@click.option("--out-of-scope", metavar="GLOB", multiple=True, help="What may not change.")
@click.option("--benchmark", metavar="CMD", help="The command that measures.")
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    shell_complete=completed("format"),
    help="json, number, pass_fail or regex:PATTERN.",
)
@click.option("--guard", metavar="CMD", multiple=True, help="A command that every candidate must pass.")
@click.option("--sealed", metavar="GLOB", multiple=True, help="Files that no candidate may change.")
@click.option("--rule", metavar="TEXT", multiple=True, help="A rule for the critics.")
@click.option("--family", metavar="NAME", multiple=True, help="An approach family beyond the built-in ones.")
@click.option("--agents", metavar="N", type=click.IntRange(min=1), help="Plans per round.")
@click.option("--rounds", metavar="N", type=click.IntRange(min=0), help="Sets max_iterations.")
@click.option(
    "--backend",
    metavar="NAME",
    shell_complete=completed("backend"),
    help="local, anthropic, command or replay.",
)
@click.option("--agent", type=click.Choice(tuple(PRESETS)), help="A coding agent, with flags that fit it.")
@click.option("--agent-command", metavar="CMD", help="The program that answers prompts.")
@click.option(
    "--topic",
    metavar="T",
    shell_complete=completed("topic"),
    help="The track's name, for several in one repository.",
)
@click.option("--root", metavar="DIR", shell_complete=completed("folder"), help="Where the track is kept.")
@click.option("--set", "assignments", metavar="KEY=JSON", multiple=True, help="Any setting, dotted.")
@click.option("--trust", is_flag=True, help="Confirm this repository's path and these settings.")
@click.option("--dry-run", is_flag=True, help="Show what would be trusted; write and run nothing.")
def command(
    session: Session, *, repo: str | None, root: str | None, trust: bool, dry_run: bool, **flags: Any
) -> None:
    """Set a repository up: goal, benchmark, harness and trust; asks on a terminal, else takes flags."""
    console = session.console
    meant = session.meant("REPO", repo)
    if meant == "":
        raise UsageError(
            "REPO is empty", hint="name the repository, or leave it out for the one you stand in"
        )
    place = places.absolute(meant or ".")
    if not Path(place).is_dir():
        raise UsageError(f"{place} is not a folder", hint="REPO is the path of a git repository")
    params = {**parameters(flags), "repo": place, "trust": trust, "dry_run": dry_run}
    if root is not None:
        params["root"] = places.absolute(root)
    session.interrupt_note = "nothing was set up"
    with session.daemon(spawn=True) as client:
        if console.may_ask and not dry_run:
            params = _asked(client, params, console)
        elif not dry_run:
            console.hint("checking, then running the benchmark on the baseline, at least three times")
        result = client.call("run.init", params, timeout_s=None)
    if not dry_run and (result["run_id"] is None or result["missing"]):
        raise UsageError(
            f"init needs {', '.join(result['missing'])}", hint="'sictl help init' tells what each is"
        )
    look = Look(paint=console.paint, marks=console.marks, width=console.width)
    if dry_run:
        lacking = f"\nstill missing: {', '.join(map(clean, result['missing']))}" if result["missing"] else ""
        console.result(result, f"{trust_question(result, look)}{lacking}\nnothing was written or run")
        return
    following = next_command(result, places.here(), root=params.get("root"))
    console.result({**result, "next": following}, done(result, following, look))


def parameters(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of `run.init` that the flags make; what was not given is left out.

    Raises:
        UsageError: `--set` is no KEY=JSON, or `--target` no finite number.
    """
    named = {("format" if name == "form" else name): value for name, value in flags.items()}
    params = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in named.items()
        if name not in ("assignments", "agent") and value not in (None, ())
    }
    target: Any = params.get("target", 0.0)
    if not math.isfinite(target):
        raise UsageError("--target is not a finite number", hint="leave it out to improve without a target")
    assigned: dict[str, Any] = {}
    for key, value in map(assignment, flags.get("assignments", ())):
        both = isinstance(value, dict) and isinstance(assigned.get(key), dict)
        assigned[key] = {**assigned[key], **value} if both else value
    params |= {"set": assigned} if assigned else {}
    agent = flags.get("agent")
    return (
        params if agent is None else with_preset(params, agent, lambda path: Path(path).expanduser().exists())
    )


def assignment(text: str) -> tuple[str, Any]:
    """Read one `KEY=JSON`; a bare word is a string, as in `config set`.

    Raises:
        UsageError: there is no `=`.
        SettingsInvalid: the value begins as JSON and is none.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text!r} is not KEY=JSON", hint="such as --set plateau_window=5")
    try:
        return key.strip(), json.loads(value, parse_constant=_refuse, parse_float=finite)
    except (ValueError, RecursionError):
        if not value.lstrip().startswith(("{", "[", '"')):
            return key.strip(), value
        hint = f"put it in quotes as a whole: --set '{key.strip()}={value[:80]}'"
        raise SettingsInvalid(key.strip(), f"{value[:80]!r} is not JSON", hint=hint) from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _asked(client: Client, params: dict[str, Any], console: Console) -> dict[str, Any]:
    """Ask for what is missing, show what would be trusted, and ask for trust."""
    # `trust` stays out until the user has seen what it covers.
    draft = {**params, "trust": False, "dry_run": True}
    result = client.call("run.init", draft, timeout_s=None)
    if {"--objective", "--benchmark"} & set(result["missing"]):
        draft = helped(client, draft, result, console)
        draft = interviewed(draft, result, console)
        result = client.call("run.init", draft, timeout_s=None)
    missing = [flag for flag in result["missing"] if flag != "--trust"]
    if missing:
        raise UsageError(f"init needs {', '.join(missing)}", hint="'sictl help init' tells what each is")
    if not params["trust"] and not result["trusted"]:
        look = Look(paint=console.problem_paint, marks=console.marks, width=None)
        console.note(trust_question(result, look))
        if not console.confirm("Trust this path with these settings?"):
            raise Refused("not trusted, so nothing was written or run", hint="'sictl init' asks again")
    console.note("running the benchmark on the baseline, at least three times")
    return {**draft, "trust": True, "dry_run": False}


def interviewed(params: dict[str, Any], result: dict[str, Any], console: Console) -> dict[str, Any]:
    """Ask one question at a time, about the weakest dimension, and return the completed parameters."""
    offers = _offers(result["repo"] or params["repo"])
    benchmarks = [offer for offer in offers if offer.kind == "benchmark"] or offers
    goal = known_goal(params, result)
    asked = 0
    while question := interview.next_question(goal, asked, [_listed(offer) for offer in benchmarks]):
        asked += 1
        known = interview.scores(goal)
        told = "  ".join(f"{name} {known[name]}" for name in interview.DIMENSIONS)
        default = f" [{question.default}]" if question.default else ""
        answer = console.ask(f"({told})\n{question.text}{default} ")
        if answer is None:
            raise UsageError(
                "the interview was ended", hint="'sictl init' asks again, 'sictl help init' lists flags"
            )
        try:
            goal = interview.answered(
                goal, question, answer, [(offer.command, offer.format) for offer in benchmarks]
            )
        except ValueError as error:
            console.note(f"that does not fit: {error}")
    completed = {**params, **_goal_params(goal)}
    test = next((offer for offer in offers if offer.kind == "test" and offer.command != goal.benchmark), None)
    if (
        test is not None
        and not completed.get("guard")
        and console.confirm(f"Must every candidate pass '{clean(test.command)}', too?")
    ):
        completed["guard"] = [test.command]
    return completed


def known_goal(params: dict[str, Any], result: dict[str, Any]) -> interview.Goal:
    """Return what flags and an existing track already say."""
    objective, benchmark = params.get("objective", ""), params.get("benchmark", "")
    return interview.Goal(
        objective=objective,
        objective_known=not objective and "--objective" not in result["missing"],
        benchmark=benchmark,
        metric_known=not benchmark and "--benchmark" not in result["missing"],
        format=params.get("format") or ("json" if params.get("metric") else ""),
        direction=params.get("direction", ""),
        target=params.get("target"),
        target_known="target" in params,
        scope=tuple(params.get("scope", ())),
        scope_known="scope" in params or "out_of_scope" in params,
    )


def _goal_params(goal: interview.Goal) -> dict[str, Any]:
    values = dataclasses.asdict(goal)
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if not name.endswith("_known") and value not in (None, "", ())
    }


def _listed(offer: Offer) -> str:
    return f"{clean(offer.command)}  ({clean(offer.why)}, {offer.format})"


def _offers(repo: str) -> Sequence[Offer]:
    listed = subprocess.run(
        ["git", "-C", repo, "ls-files", "-z"], capture_output=True, check=False, stdin=subprocess.DEVNULL
    )
    files = [name for name in listed.stdout.decode(errors="surrogateescape").split("\0") if name]
    return survey(files, lambda name: _text(Path(repo, name)))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_READ_BYTES).decode(errors="replace")
    except OSError:
        return ""
