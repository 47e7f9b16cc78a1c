"""`sictl completion`: the script that teaches a shell to complete."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

from sid_cli.options import verb
from sid_cli.places import COMPLETION
from sid_cli.session import Session


@verb("completion", example="sictl completion bash > ~/.local/share/bash-completion/completions/sictl")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(session: Session, shell: str) -> None:
    """Print the script that makes a shell complete; verbs, options, runs and setting keys."""
    text = script(shell)
    session.console.result({"shell": shell, "script": text}, text)


def script(shell: str) -> str:
    """Return the completion script of bash, zsh or fish."""
    from sid_cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # Not the subclass's own `source`, which runs a shell to look at its version.
    return ShellComplete.source(kind(cli, {}, "sictl", COMPLETION))
