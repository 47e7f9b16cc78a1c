"""`sictl history`: the rounds of a run as a table."""

from __future__ import annotations

from typing import Any

from sid_cli.client import Client
from sid_cli.options import run_argument, topic_option, verb
from sid_cli.round_text import history_table
from sid_cli.session import Session
from sid_cli.status_text import Look
from sid_cli.text import clean


@verb(
    "history", example="sictl history\nsictl history --json | jq '.rounds[] | select(.status == \"merged\")'"
)
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Show the rounds of a run as a table: result, score, gain, and the winner's hypothesis."""
    with session.daemon(spawn=True) as client:
        row = session.row(client, run, topic)
        run_id = row["run_id"]
        rounds = all_rounds(client, run_id)
    console = session.console
    look = Look(paint=console.paint, marks=console.marks, width=console.width)
    text = history_table(rounds, look) if rounds else "no round has ended yet"
    if row.get("audit"):
        text = f"{text}\n{clean(row['audit'])}"
    console.result({"run_id": run_id, "rounds": rounds}, text)


def all_rounds(client: Client, run_id: str) -> list[dict[str, Any]]:
    """Return every round of a run, oldest first, over as many pages as it takes."""
    rounds: list[dict[str, Any]] = []
    since: int | None = 0
    while since is not None:
        page = client.call("run.history", {"run": run_id, "since": since})
        rounds += page["rounds"]
        since = page["next"]
    return rounds
