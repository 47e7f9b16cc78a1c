"""`sictl replay`: replay a recorded run, without any agent or benchmark."""

from __future__ import annotations

from typing import Any

import click

from sid_cli import places
from sid_cli.follow import EXIT_CODES, start_and_follow
from sid_cli.options import completed, run_argument, topic_option, verb
from sid_cli.runs import is_active
from sid_cli.session import Session
from sid_cli.text import clean


@verb("replay", example="sictl replay --wait\nsictl replay k3vmw8 --into again")
@run_argument
@topic_option
@click.option(
    "--in",
    "repo",
    metavar="REPO",
    shell_complete=completed("folder"),
    help="Replay it in a clone of its repository.",
)
@click.option("--into", metavar="TOPIC", help="The replay's topic.  [default: a new one]")
@click.option(
    "--root",
    metavar="DIR",
    shell_complete=completed("folder"),
    help="The replay's root, if it is not the usual one.",
)
@click.option("--wait", is_flag=True, help="Follow the replay to its end and print the summary.")
def command(
    session: Session,
    *,
    run: str | None,
    topic: str | None,
    repo: str | None,
    into: str | None,
    root: str | None,
    wait: bool,
) -> None:
    """Replay a recorded run in a track of its own: no model, no benchmark, the same commits; prints its id."""
    with session.daemon(spawn=True) as client:
        folders = {"repo": repo, "root": root}
        asked = {name: None if path is None else places.absolute(path) for name, path in folders.items()}
        given = {name: value for name, value in {**asked, "into": into}.items() if value is not None}
        # A clone may be all that is there: a recording names its run, whether or not this daemon had it.
        meant = run if run is not None else session.run
        named = repo is not None and meant is not None and places.existing(meant) is None
        params = {"run": meant if named else session.row(client, run, topic)["run_id"], **given}
        if not wait:
            _tell(session, client.call("run.replay", params, timeout_s=None))
            return
    _wait(session, params)


def _tell(session: Session, result: dict[str, Any]) -> None:
    session.console.result(result, clean(result["run_id"]))
    if is_active(result):
        where = f"in topic {clean(result['topic'])}"
        session.console.hint(f"replays {clean(result['replay_of'])} {where}; 'sictl attach' follows it")
    else:
        session.exit_code = EXIT_CODES.get(result["status"], 0)


def _wait(session: Session, params: dict[str, Any]) -> None:
    console = session.console
    made: list[dict[str, Any]] = []

    def started(result: dict[str, Any]) -> None:
        session.interrupt_note = f"the replay goes on; stop it with 'sictl stop {result['run_id']}'"
        console.say(clean(result["run_id"]))
        made.append(result)

    outcome = start_and_follow(session.socket_path, params, console, started=started, method="run.replay")
    session.exit_code = outcome.exit_code
    told = {"status": outcome.status, "summary": outcome.fields, "text": outcome.text}
    console.result({**made[-1], **told}, outcome.shown)
