"""`sictl idea`: tell the planners something to try."""

from __future__ import annotations

import click

from sid_cli.options import FreeWords, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean
from sid_protocol.errors import UsageError


def split(words: tuple[str, ...]) -> tuple[str | None, str]:
    """Tell RUN from TEXT: one word is TEXT, of two the first is RUN.

    Raises:
        UsageError: there is no TEXT, or more than these.
    """
    match words:
        case (text,):
            run = None
        case (run, text):
            pass
        case _:
            raise UsageError(f"idea takes [RUN] TEXT, not {len(words)} words", hint="put TEXT in quotes")
    if not text.strip():
        raise UsageError("TEXT is empty", hint="such as 'sictl idea \"cache the primes\"'")
    return run, text


@verb("idea", example='sictl idea "sieve only odd numbers"', cls=FreeWords)
@click.argument("words", metavar="[RUN] TEXT", nargs=-1)
@topic_option
def command(session: Session, words: tuple[str, ...], topic: str | None) -> None:
    """Append an idea for the planners of the next round to idea.md."""
    run, text = split(words)
    with session.daemon(spawn=True) as client:
        run_id = session.row(client, run, topic)["run_id"]
        client.call("run.idea", {"run": run_id, "text": text})
    session.console.result({"run_id": run_id}, f"noted for the next round of {clean(run_id)}")
