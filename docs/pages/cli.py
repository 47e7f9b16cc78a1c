"""`cli.md`: the verbs as Markdown."""

from __future__ import annotations

from pages import verbs
from pages.words import cell, made_from, table
from sid_cli.verbs.help import EXIT_CODES

CLI_HEAD = f"""\
# sictl

{made_from("the verbs in cli/sid_cli/")}

    sictl [OPTIONS] VERB [ARGUMENTS]

{verbs.RUN}

## Options of every verb
"""


def cli_page() -> str:
    """Return `cli.md`."""
    lines = [CLI_HEAD, *table(("option", ""), _rows(verbs.shared_options())), "", "Before or after the verb."]
    for title, group in verbs.groups():
        lines += ["", f"## {title}"]
        for one in group:
            lines += _verb(one)
    lines += ["", "## Exit codes", "", "```", EXIT_CODES, "```"]
    return "\n".join(lines) + "\n"


def _verb(one: verbs.Verb) -> list[str]:
    lines = ["", f"### `sictl {one.typed}`", "", cell(one.about)]
    lines += [f"\nThe same: `sictl {other}`." for other in one.also]
    lines += ["", *(f"    {line}" for line in one.example)] if one.example else []
    return [*lines, "", *table(("option", ""), _rows(one.options))] if one.options else lines


def _rows(options: tuple[tuple[str, str], ...]) -> list[tuple[str, ...]]:
    return [(f"`{names}`".replace("|", "\\|"), cell(told)) for names, told in options]
