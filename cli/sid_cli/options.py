"""How verbs are declared: global options before or after the verb, an example first in their help.

Used by every module under `verbs/` and by `main`. Parses nothing itself: click does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sid_cli.color import CHOICES
from sid_cli.session import Session

Function = Callable[..., Any]


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Store a global option in the session; what is not given here keeps what was given before the verb."""
    if value not in (None, False) and parameter.name is not None:
        setattr(context.ensure_object(Session), parameter.name.removeprefix("global_"), value)


def _help(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if value and not context.resilient_parsing:
        # Not printed here: `--json` may still follow, and the document is made where it is known.
        raise HelpAsked(context)


class HelpAsked(Exception):
    """`--help` was given for a verb or for `sictl` itself."""

    def __init__(self, context: click.Context) -> None:
        super().__init__(context.info_name)
        self.context = context


def global_options() -> list[click.Parameter]:
    """Return new instances of the options that stand before or after every verb."""
    return [
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            expose_value=False,
            callback=_keep,
            help="One JSON document on stdout.",
        ),
        click.Option(
            ["--socket"],
            metavar="PATH",
            expose_value=False,
            callback=_keep,
            shell_complete=completed("file"),
            help="The daemon's socket.",
        ),
        click.Option(
            ["--run", "global_run"],
            metavar="RUN",
            expose_value=False,
            callback=_keep,
            shell_complete=completed("run"),
            help="A repository's path, a run id or its beginning.",
        ),
        click.Option(
            ["--color"],
            type=click.Choice(CHOICES),
            expose_value=False,
            callback=_keep,
            help="Whether to use colour.",
        ),
        click.Option(
            ["--no-spawn"], is_flag=True, expose_value=False, callback=_keep, help="Never start a daemon."
        ),
        click.Option(
            ["--help", "-h"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_help,
            help="Show this and leave.",
        ),
    ]


class Verb(click.Command):
    """A verb of `sictl`.

    Args:
        example: One or two command lines, shown first in its help.
    """

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "add_help_option": False})
        self.example = example
        self.params.extend(global_options())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, then usage, what it does, and the options."""
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"  {line}\n")
            formatter.write_paragraph()
        super().format_help(ctx, formatter)


class FreeWords(Verb):
    """A verb whose words are the user's own: a number below zero and text with a blank are no options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Hide such words from click's parser, which knows options by their dash alone."""
        options = args[: args.index("--")] if "--" in args else args
        hidden = [_HIDDEN + word if _is_own_word(word) else word for word in options]
        rest = super().parse_args(ctx, hidden + args[len(options) :])
        ctx.params["words"] = tuple(word.removeprefix(_HIDDEN) for word in ctx.params["words"])
        return rest


_HIDDEN = "\0"
"""No argument of a process can hold it."""


def _is_own_word(word: str) -> bool:
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return any(character.isspace() for character in word)
    return True


def verb(name: str, *, example: str, cls: type[Verb] = Verb) -> Callable[[Function], click.Command]:
    """Declare a function as the verb `name`; its docstring is the help, its first argument the session."""

    def declare(function: Function) -> click.Command:
        return click.command(name, cls=cls, example=example)(click.pass_obj(function))

    return declare


def completed(what: str) -> Callable[[click.Context, click.Parameter, str], list[Any]]:
    """Return how the shell completes an argument: `complete_<what>` of `sid_cli.completing`."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        from sid_cli import completing  # only at a press of the Tab key

        return list(getattr(completing, f"complete_{what}")(context, parameter, incomplete))

    return complete


run_argument = click.argument("run", metavar="[RUN]", required=False, shell_complete=completed("run"))
topic_option = click.option(
    "--topic",
    metavar="T",
    shell_complete=completed("topic"),
    help="The track, where a repository has several.",
)
