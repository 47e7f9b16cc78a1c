"""`sictl diff`: what the improvement branch changes against the target branch."""

from __future__ import annotations

import os
import sys

import click

from sid_cli.color import Paint
from sid_cli.console import Console
from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean


@verb("diff", example="sictl diff\nsictl diff | git apply --check")
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Show what the improvement branch changes against the target branch."""
    with session.daemon(spawn=True) as client:
        result = session.call_run(client, "run.diff", run, topic)
    console = session.console
    if session.as_json:
        console.result(result, "")
        return
    if not result["diff"]:
        branch, target = (
            result.get("branch") or "the improvement branch",
            result.get("target_branch") or "its target",
        )
        console.note(f"{clean(branch)} changes nothing against {clean(target)}")
        return
    show(result["diff"], console)
    if result.get("truncated"):
        console.note(f"cut short; the whole: git diff {clean(result['base'])} {clean(result['head'])}")


def show(diff: str, console: Console, *, paged: bool = True) -> None:
    """Print a diff: coloured and escaped in the user's pager on a terminal, as it is into a pipe.

    Args:
        diff: The diff.
        console: Where to.
        paged: Whether the pager may hold a terminal until the user has read it.
    """
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(diff.encode("utf-8", "surrogateescape"))
        sys.stdout.flush()
        return
    if not paged:
        console.write(painted(diff, console.paint))
        return
    os.environ.setdefault("LESS", "FRX")  # as git does: leave at once if it fits, keep it on the screen
    click.echo_via_pager(painted(diff, console.paint))


def painted(diff: str, paint: Paint) -> str:
    """Return a diff for a terminal: control characters escaped, lines coloured by what they do."""
    return "\n".join(_painted(clean(line.replace("\t", "        ")), paint) for line in diff.split("\n"))


def _painted(line: str, paint: Paint) -> str:
    if line.startswith(("+++", "---", "diff ", "index ")):
        return paint(line, "bold")
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return paint(line, style) if style else line
