"""`sictl pause`: pause a run before its next step."""

from __future__ import annotations

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean


@verb("pause", example="sictl pause")
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Pause a run before its next step; work under way finishes."""
    with session.daemon(spawn=False) as client:
        run_id = session.row(client, run, topic)["run_id"]
        status = client.call("run.pause", {"run": run_id})["status"]
    text = f"{clean(run_id)}: {clean(status)}; go on with 'sictl resume {clean(run_id)}'"
    session.console.result({"run_id": run_id, "status": status}, text)
