"""`sictl show`: one round in full."""

from __future__ import annotations

import click

from sid_cli.completing import complete_round
from sid_cli.options import FreeWords, topic_option, verb
from sid_cli.round_text import round_whole
from sid_cli.session import Session
from sid_cli.status_text import Look
from sid_protocol.errors import UsageError

LAST = 0
"""How the daemon is asked for the last round."""

_DIGITS = 18
"""More than any run will have rounds; Python reads no number of thousands of digits."""


def split(words: tuple[str, ...]) -> tuple[str | None, int]:
    """Tell RUN from ROUND: a bare number is ROUND, and without one the last round is meant.

    Raises:
        UsageError: there is more, or ROUND is no number.
    """
    match words:
        case ():
            return None, LAST
        case (word,):
            return (None, _round(word)) if word.removeprefix("-").isdecimal() else (word, LAST)
        case (run, word):
            return run, _round(word)
        case _:
            raise UsageError(
                f"show takes RUN and ROUND, not {len(words)} words", hint="such as 'sictl show 7'"
            )


def _round(word: str) -> int:
    if not word.isascii() or not word.isdecimal() or len(word) > _DIGITS or int(word) < 1:
        raise UsageError(f"ROUND is a number from 1, not {word[:80]!r}", hint="such as 'sictl show 7'")
    return int(word)


@verb("show", example="sictl show\nsictl show 7", cls=FreeWords)
@click.argument("words", metavar="[RUN] [ROUND]", nargs=-1, shell_complete=complete_round)
@topic_option
def command(session: Session, words: tuple[str, ...], topic: str | None) -> None:
    """Show one round in full: plans, reviews, scores, kills, verdict, evidence; without ROUND, the last one."""
    run, iteration = split(words)
    with session.daemon(spawn=True) as client:
        found = session.call_run(client, "run.round", run, topic, iteration=iteration)
    console = session.console
    look = Look(paint=console.paint, marks=console.marks, width=console.width)
    console.result({**found, "round": found}, round_whole(found, look))
