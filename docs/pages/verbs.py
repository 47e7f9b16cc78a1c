"""What click knows of `sictl`'s verbs, as plain data for the pages that lay it out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click

from sid_cli.main import GROUPS, VERBS, cli
from sid_cli.options import global_options
from sid_cli.session import Session

RUN = (
    "RUN is the path of a repository (with `--topic` where it has several tracks), a run's id, or a beginning of one of "
    "at least 4 characters. Left out, it is the only active run, else the repository that the command stands in. Results go "
    "to standard output, problems to standard error in one line that says what to do next."
)


@dataclass(frozen=True)
class Verb:
    """One verb: what is typed, what it does, its other names, an example's lines, and `(names, help)` of its own options."""

    typed: str
    about: str
    also: tuple[str, ...]
    example: tuple[str, ...]
    options: tuple[tuple[str, str], ...]


def shared_options() -> tuple[tuple[str, str], ...]:
    """Return `(names, help)` of the options that every verb has."""
    root = _root()
    return tuple(_told(option, root) for option in global_options())


def groups() -> Iterator[tuple[str, tuple[Verb, ...]]]:
    """Yield each group's title and its verbs, in the order of `sictl help`."""
    root = _root()
    for title, names in GROUPS:
        yield title, tuple(_verb(name, root) for name in names)


def _root() -> click.Context:
    return click.Context(cli, info_name="sictl", obj=Session())


def _verb(name: str, root: click.Context) -> Verb:
    command = cli.get_command(root, name)
    if command is None:
        raise LookupError(f"a group names the verb {name}, which does not exist")
    context = click.Context(command, info_name=name, parent=root)
    shared = {option.name for option in global_options()}
    own = [param for param in command.params if isinstance(param, click.Option) and param.name not in shared]
    arguments = [param.make_metavar(context) for param in command.params if isinstance(param, click.Argument)]
    return Verb(
        typed=" ".join([name, *arguments]),
        about=" ".join((command.help or "").split()),
        also=tuple(other for other, module in VERBS.items() if module == VERBS[name] and other != name),
        example=tuple(str(getattr(command, "example", "")).splitlines()),
        options=tuple(_told(option, context) for option in own),
    )


def _told(option: click.Parameter, context: click.Context) -> tuple[str, str]:
    shown = option.get_help_record(context)
    names, told = shown if shown is not None else (", ".join(option.opts), "")
    return names, " ".join(told.split())
