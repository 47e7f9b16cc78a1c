"""`sictl lessons`: what a run has learned from its failures, and its force-kills."""

from __future__ import annotations

from typing import Any

import click

from sid_cli.completing import complete_lesson
from sid_cli.lessons_text import across_page, lessons_page
from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.status_text import Look
from sid_cli.text import clean
from sid_protocol.errors import UsageError


@verb(
    "lessons",
    example="sictl lessons\nsictl lessons --all\nsictl lessons --forget timeout/tool_loop/executor",
)
@run_argument
@topic_option
@click.option("--all", "everything", is_flag=True, help="Show the lessons in force of all runs.")
@click.option("--forget", metavar="KEY", shell_complete=complete_lesson, help="End this lesson now.")
def command(
    session: Session, *, run: str | None, topic: str | None, everything: bool, forget: str | None
) -> None:
    """Show what a run has learned; each lesson stands in agents' prompts until it makes no difference."""
    console = session.console
    look = Look(paint=console.paint, marks=console.marks, width=console.width)
    if everything:
        if (run, forget, topic) != (None, None, None):
            raise UsageError("--all is about all runs", hint="leave out RUN, --topic and --forget")
        with session.daemon(spawn=True) as client:
            found = client.call("daemon.lessons")
        console.result(found, across_page(found["tracks"], look))
        return
    wanted: dict[str, Any] = {} if forget is None else {"forget": forget}
    with session.daemon(spawn=True) as client:
        result = session.call_run(client, "run.lessons", run, topic, **wanted)
    if forget is not None:
        text = f"ended {clean(forget)}; it comes back only if the fault is seen again"
    else:
        text = lessons_page(result["run_id"], result["lessons"], result["force_kills"], look)
    console.result(result, text)
