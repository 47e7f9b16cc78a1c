"""`cli.md`, made from the verbs as click knows them."""

from __future__ import annotations

import click

from pages.words import cell, made_from, table
from sid_cli.main import GROUPS, VERBS, cli
from sid_cli.options import global_options
from sid_cli.session import Session
from sid_cli.verbs.help import EXIT_CODES

CLI_HEAD = f"""\
# sictl

{made_from("the verbs in cli/sid_cli/")}

    sictl [OPTIONS] VERB [ARGUMENTS]

RUN is the path of a repository (with `--topic` where it has several tracks), a run's id, or a beginning of one of at least 4
characters. Left out, it is the only active run, else the repository that the command stands in. Results go to standard
output, problems to standard error in one line that says what to do next.

## Options of every verb

"""


def cli_page() -> str:
    """Return `cli.md`."""
    root = click.Context(cli, info_name="sictl", obj=Session())
    rows = [_option(option, root) for option in global_options()]
    lines = [CLI_HEAD.rstrip("\n"), "", *table(("option", ""), rows), "", "Before or after the verb."]
    for title, names in GROUPS:
        lines += ["", f"## {title}"]
        for name in names:
            lines += _verb(name, root)
    lines += ["", "## Exit codes", "", "```", EXIT_CODES, "```"]
    return "\n".join(lines) + "\n"


def _verb(name: str, root: click.Context) -> list[str]:
    command = cli.get_command(root, name)
    if command is None:
        raise LookupError(f"a group names the verb {name}, which does not exist")
    context = click.Context(command, info_name=name, parent=root)
    shared = {option.name for option in global_options()}
    own = [param for param in command.params if isinstance(param, click.Option) and param.name not in shared]
    arguments = [param.make_metavar(context) for param in command.params if isinstance(param, click.Argument)]
    also = [other for other, module in VERBS.items() if module == VERBS[name] and other != name]
    lines = ["", f"### `sictl {' '.join([name, *arguments])}`", "", cell(command.help or "")]
    lines += [f"\nThe same: `sictl {other}`." for other in also]
    example = str(getattr(command, "example", "")).splitlines()
    lines += ["", *(f"    {line}" for line in example)] if example else []
    rows = [_option(option, context) for option in own]
    return [*lines, "", *table(("option", ""), rows)] if rows else lines


def _option(option: click.Parameter, context: click.Context) -> tuple[str, ...]:
    shown = option.get_help_record(context)
    names, told = shown if shown is not None else (", ".join(option.opts), "")
    return f"`{names}`".replace("|", "\\|"), cell(told)
