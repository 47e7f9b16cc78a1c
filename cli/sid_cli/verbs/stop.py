"""`sictl stop` and `sictl cancel`: end a run safely, within seconds."""

from __future__ import annotations

import click

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.runs import is_active
from sid_cli.session import Session
from sid_cli.text import clean
from sid_protocol.errors import Refused
from sid_protocol.locations import track_command


@verb("stop", example="sictl stop\nsictl stop --now --yes")
@run_argument
@topic_option
@click.option("--now", is_flag=True, help="Within 1 s, without a grace period; the state stays whole.")
@click.option("--yes", is_flag=True, help="Do not ask before --now.")
def command(session: Session, *, run: str | None, topic: str | None, now: bool, yes: bool) -> None:
    """End a run safely, within seconds: finished candidates are kept, unfinished ones are redone by the next start."""
    console = session.console
    with session.daemon(spawn=False) as client:
        row = session.row(client, run, topic)
        working = [actor for actor in row["actors"] if actor["left_s"] is not None]
        if now and not yes and working and is_active(row) and console.may_ask:
            console.note(
                f"{len(working)} at work in {row['run_id']}; what they have not finished is redone later"
            )
            if not console.confirm("Stop at once?"):
                raise Refused(
                    "not stopped", hint=f"'sictl stop {row['run_id']}' lets them finish within 10 s"
                )
        session.interrupt_note = "the run stops all the same; 'sictl status' shows when it has"
        result = client.call("run.cancel", {"run": row["run_id"], "now": now})
    again = track_command("start", row["repo"], row["root"])
    text = f"{clean(row['run_id'])}: {clean(result['status'])}; go on with: {again}"
    console.result({"run_id": row["run_id"], "status": result["status"]}, text)
