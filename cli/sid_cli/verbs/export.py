"""`sictl export`: write every view again from the run's database."""

from __future__ import annotations

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean


@verb("export", example="sictl export")
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Write every view again: history, reports, raw data, table, chart, from the run's database."""
    with session.daemon(spawn=True) as client:
        result = session.call_run(client, "run.export", run, topic, timeout_s=None)
    text = f"wrote {len(result['files'])} files below {clean(result['root'])}"
    session.console.result({"root": result["root"], "files": result["files"]}, text)
