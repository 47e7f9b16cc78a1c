"""`sictl status`, where its arguments are not plain enough for the fast way."""

from __future__ import annotations

import click

from sid_cli.fast_status import Wanted, show
from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session


@verb("status", example="sictl status\nsictl status --json | jq .runs")
@run_argument
@topic_option
@click.option("--line", is_flag=True, help="One short line for a shell prompt; empty when nothing runs.")
def command(session: Session, *, run: str | None, topic: str | None, line: bool) -> None:
    """Show the daemon and its runs; with RUN its round, step, actors, scores, budget and deadlines."""
    wanted = Wanted()
    wanted.as_json, wanted.color, wanted.line = session.as_json, session.color, line
    wanted.run = session.meant("RUN", run)
    wanted.socket, wanted.topic = session.socket, topic
    session.exit_code = show(wanted)
