"""`sictl start`: start or resume a run, and with --wait follow it to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sid_cli import places, runs
from sid_cli.client import Client
from sid_cli.follow import EXIT_CODES, start_and_follow
from sid_cli.options import completed, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean
from sid_protocol.errors import NoSuchRun, UsageError
from sid_protocol.locations import track_root


@verb("start", example="sictl start\nsictl start ~/src/primes --rounds 3 --wait")
@click.argument("repo", metavar="[REPO]", required=False, shell_complete=completed("run"))
@topic_option
@click.option(
    "--root",
    metavar="DIR",
    shell_complete=completed("folder"),
    help="The track's root, if it is not the usual one.",
)
@click.option("--rounds", metavar="N", type=click.IntRange(min=1), help="Run at most N more rounds.")
@click.option("--wait", is_flag=True, help="Follow the run to its end and print the summary.")
def command(
    session: Session,
    *,
    repo: str | None,
    topic: str | None,
    root: str | None,
    rounds: int | None,
    wait: bool,
) -> None:
    """Start a run, or resume a stopped one; prints its id."""
    with session.daemon(spawn=True) as client:
        track = target(session, client, repo, topic, root)
        asked = {"rounds": rounds, "root": None if root is None else places.absolute(root)}
        params = {**track, **{name: value for name, value in asked.items() if value is not None}}
        if not wait:
            _tell(session, client.call("run.start", params, timeout_s=None))
            return
    _wait(session, params)


def target(
    session: Session, client: Client, repo: str | None, topic: str | None, root: str | None
) -> dict[str, Any]:
    """Return `{repo, topic?, root?}` of the track that was meant.

    Raises:
        NoSuchRun: REPO is neither a path nor a run's id.
        UsageError: REPO and `--run` disagree, or REPO has several tracks and none at the usual place.
    """
    meant = session.meant("REPO", repo)
    named = {} if topic is None else {"topic": topic}
    path = places.existing(meant) if meant is not None else places.here()
    rows = client.call("run.list")["runs"]
    if path is None:
        if meant is not None and "/" in meant:
            raise NoSuchRun(
                f"{places.absolute(meant)} is not a folder", hint="REPO is the path of a git repository"
            )
        row = runs.choose(rows, text=meant, path=None, cwd=places.here(), topic=topic)
        return {"repo": row["repo"], "topic": row["topic"], "root": row["root"]}
    found = runs.of_path(rows, path, topic)
    if len(found) == 1:
        row = found[0]
        return {"repo": row["repo"], "topic": row["topic"], "root": row["root"]}
    if (
        topic is None
        and root is None
        and found
        and not _is_dir(track_root(found[0]["repo"], None, None, _is_dir))
    ):
        raise runs.several(found, f"{path} has several runs", "--topic T")
    if not Path(path).is_dir():
        raise UsageError(f"{path} is not a folder", hint="REPO is the path of a git repository")
    return {"repo": places.repository(path) or path, **named}


def _is_dir(path: str) -> bool:
    return Path(path).is_dir()


def _tell(session: Session, result: dict[str, Any]) -> None:
    status = result.get("status", "running")
    console = session.console
    console.result(
        {"run_id": result["run_id"], "resumed": result["resumed"], "status": status}, clean(result["run_id"])
    )
    if runs.is_active({"status": status}):
        done = "resumed" if result["resumed"] else "started"
        console.hint(f"{done}; 'sictl attach' follows it, 'sictl stop' ends it")
        return
    if not session.as_json:
        more = "raise the budget" if status == "budget" else "--rounds N adds rounds"
        console.note(f"nothing left to do: {clean(status).replace('_', ' ')}; {more}")
    session.exit_code = EXIT_CODES.get(status, 0)


def _wait(session: Session, params: dict[str, Any]) -> None:
    console = session.console

    def started(result: dict[str, Any]) -> None:
        session.interrupt_note = f"the run goes on; stop it with 'sictl stop {result['run_id']}'"
        console.say(clean(result["run_id"]))
        resumed.append(result["resumed"])

    resumed: list[bool] = []
    outcome = start_and_follow(session.socket_path, params, console, started=started)
    session.exit_code = outcome.exit_code
    content = {
        "run_id": outcome.row["run_id"],
        "resumed": resumed[-1],
        "status": outcome.status,
        "summary": outcome.fields,
        "text": outcome.text,
    }
    console.result(content, outcome.shown)
