"""`sictl help`: all verbs, one verb, or the exit codes."""

from __future__ import annotations

import click

from sid_cli.options import completed, verb
from sid_cli.session import Session

EXIT_CODES = """\
exit codes of sictl
  0    done
  1    failed
  2    usage or settings
  3    no daemon
  4    no such run
  5    refused: trust, gate, already running, not running
  130  Ctrl-C; 'start --wait' and 'attach' detach, the run goes on
  'start --wait' leaves with how the run ended:
  0    target reached, plateau, or max_iterations
  10   circuit breaker, or blocked
  11   stopped by the user
  12   budget
  1    failed"""


@verb("help", example="sictl help start\nsictl help exit-codes")
@click.argument("topic", metavar="[VERB|exit-codes]", required=False, shell_complete=completed("help"))
@click.pass_context
def command(context: click.Context, session: Session, topic: str | None) -> None:
    """Show all verbs, one verb, or the exit codes."""
    text = EXIT_CODES if topic == "exit-codes" else _help_of(topic, context)
    session.console.result({"help": text}, text)


def _help_of(name: str | None, context: click.Context) -> str:
    from sid_cli.main import cli, unknown_verb

    parent = click.Context(cli, info_name="sictl", obj=context.obj)
    if name is None:
        return cli.get_help(parent)
    found = cli.get_command(parent, name)
    if found is None:
        raise unknown_verb(name)
    return found.get_help(click.Context(found, info_name=name, parent=parent))
