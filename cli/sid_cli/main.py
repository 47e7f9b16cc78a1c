"""`sictl`'s verbs: finds the module of the one that was typed, and turns every error into one line.

Called by `entry` with the arguments. Holds no verb itself; a verb's module is imported when it is typed.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Sequence
from typing import Any

import click

from sid_cli import faults
from sid_cli.options import HelpAsked, Verb, global_options
from sid_cli.places import COMPLETION
from sid_cli.session import Session
from sid_protocol import __version__
from sid_protocol.errors import SidError

VERBS = {
    "demo": "demo",
    "init": "init",
    "start": "start",
    "status": "status",
    "stop": "stop",
    "cancel": "stop",
    "pause": "pause",
    "resume": "resume",
    "attach": "attach",
    "logs": "attach",
    "history": "history",
    "show": "show",
    "diff": "diff",
    "plot": "plot",
    "idea": "idea",
    "config": "config",
    "apply": "apply",
    "export": "export",
    "calibrate": "calibrate",
    "verify": "verify",
    "lessons": "lessons",
    "replay": "replay",
    "node": "node",
    "completion": "completion",
    "help": "help",
    "doctor": "doctor",
    "service": "service",
    "daemon": "daemon",
}
"""Verb → its module under `verbs`; two verbs of one module are the same."""

GROUPS = (
    ("See it work", ("demo",)),
    ("Set up and run", ("init", "start", "stop", "pause", "resume")),
    ("Look", ("status", "attach", "history", "show", "diff", "plot", "lessons", "verify", "replay")),
    ("Steer and take", ("idea", "config", "calibrate", "apply", "export")),
    ("The rest", ("node", "doctor", "service", "daemon", "completion", "help")),
)


class Sictl(click.Group):
    """The group of all verbs, each imported when it is typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return all verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return a verb, importing its module; None if there is no such verb."""
        module = VERBS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(f"sid_cli.verbs.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb that was typed; an unknown one gets the nearest as a hint."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise unknown_verb(args[0])
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what `sictl` is, its verbs by purpose, and the options."""
        formatter.write("Usage: sictl [OPTIONS] VERB [ARGUMENTS]\n\n")
        formatter.write(f"{self.help}\n")
        for title, names in GROUPS:
            with formatter.section(title):
                commands = ((name, self.get_command(ctx, name)) for name in names)
                formatter.write_dl([(name, _summary(found)) for name, found in commands if found is not None])
        with formatter.section("Options, before or after the verb"):
            records = (option.get_help_record(ctx) for option in self.params)
            formatter.write_dl([record for record in records if record is not None])
        formatter.write("\n'sictl help VERB' tells more, 'sictl help exit-codes' what the exit codes mean.\n")


def _summary(command: click.Command) -> str:
    """Return what a verb does in a few words: its help up to its first stop."""
    return re.split(r"[;:.](?=\s|$)", command.help or "", maxsplit=1)[0]


def unknown_verb(name: str) -> click.UsageError:
    """Return the error of a verb that does not exist, with the nearest one as a hint."""
    near = difflib.get_close_matches(name, VERBS, n=1)
    return click.UsageError(f"unknown verb {name!r}; {f'did you mean {near[0]!r}?' if near else _HELP_HINT}")


_HELP_HINT = "'sictl help' lists the verbs"


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's
    if value and not context.resilient_parsing:
        raise VersionAsked


class VersionAsked(Exception):
    """`--version` was given."""


@click.pass_context
def _what_next(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        from sid_cli.whatnext import tell_what_next

        tell_what_next(context.ensure_object(Session))


cli = Sictl(
    name="sictl",
    help="Controls sid, the daemon that improves a git repository in measured rounds.",
    callback=_what_next,
    invoke_without_command=True,
    add_help_option=False,
    params=[
        *global_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Show the version and leave.",
        ),
    ],
)


def run(args: Sequence[str]) -> int:
    """Run a command line and return its exit code; every error is printed as one line."""
    session = Session()
    asked_json = "--json" in args[: args.index("--")] if "--" in args else "--json" in args
    try:
        # Not `cli.main`, which answers Ctrl-C and errors with lines of its own.
        with cli.make_context("sictl", list(args), obj=session) as context:
            cli.invoke(context)
    except HelpAsked as asked:
        session.as_json = asked_json
        text = asked.context.command.get_help(asked.context)
        session.console.result({"help": text}, text)
    except VersionAsked:
        session.as_json = asked_json
        session.console.result({"version": __version__}, f"sictl {__version__}")
    except SidError as error:
        return faults.report(error, as_json=asked_json)
    except click.ClickException as error:
        return _usage(error, as_json=asked_json)
    except KeyboardInterrupt:
        return faults.interrupted(as_json=asked_json and not session.streams, note=session.interrupt_note)
    return session.exit_code


def complete(instruction: str) -> int:
    """Answer the completion script of a shell; silence where nothing fits."""
    from click.shell_completion import shell_complete

    return shell_complete(cli, {"obj": Session()}, "sictl", COMPLETION, instruction)


def _usage(error: click.ClickException, *, as_json: bool) -> int:
    if isinstance(error, click.NoSuchOption):
        near = error.possibilities or []
        message, hint = f"no such option {error.option_name}", f"did you mean {near[0]}?" if near else ""
    else:
        said = " ".join(error.format_message().split()).rstrip(".")
        message, _, hint = said.partition("; ")
    context: Any = getattr(error, "ctx", None)
    if not hint:
        known = isinstance(context, click.Context) and isinstance(context.command, Verb)
        hint = f"see 'sictl help {context.info_name}'" if known else _HELP_HINT
    faults.print_problem("usage", f"{message[:1].lower()}{message[1:]}", hint, as_json=as_json)
    return 2
