"""`sictl verify`: whether everything that tells of a run tells the same."""

from __future__ import annotations

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean

LIMIT_S = 600.0
"""Comparing thousands of rounds takes its time."""
SHOWN = 50
"""Disagreements that are read; one cause, such as deleted tags, makes thousands."""


@verb("verify", example="sictl verify")
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Compare a run's database, files, branch and tags: exit 0 if they agree, 1 with a line for each that does not."""
    with session.daemon(spawn=True) as client:
        result = session.call_run(client, "run.verify", run, topic, timeout_s=LIMIT_S)
    found = result["disagreements"]
    lines = [clean(line) for line in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"and {len(found) - SHOWN} more; --json has them all")
    if result["agrees"]:
        count = result["rounds"]
        lines = [f"database, files, branch and tags of {count} round{'' if count == 1 else 's'} agree"]
    session.console.result(result, "\n".join(lines))
    session.exit_code = 0 if result["agrees"] else 1
