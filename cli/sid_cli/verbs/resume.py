"""`sictl resume`: resume a paused run."""

from __future__ import annotations

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean


@verb("resume", example="sictl resume")
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Resume a paused run; 'sictl start' resumes a stopped one."""
    with session.daemon(spawn=False) as client:
        run_id = session.row(client, run, topic)["run_id"]
        status = client.call("run.resume", {"run": run_id})["status"]
    session.console.result({"run_id": run_id, "status": status}, f"{clean(run_id)}: {clean(status)}")
