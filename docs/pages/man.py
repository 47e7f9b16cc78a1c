"""Manual pages, made from what there is: the verbs as click knows them, the daemon's settings as its model has them.

The wheel carries them under `share/man`, and `make install` puts them where `man` looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pages import verbs
from pages.words import json_text, prose, type_text
from sid_cli.verbs.help import EXIT_CODES
from sid_daemon.daemon_settings_schema import SettingsFile
from sid_protocol import __version__

Lines = Iterable[str]


def escaped(text: str) -> str:
    """Return text for troff: no escape, no hyphen that becomes another one, no line that begins a request."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in plain.splitlines())


def sictl_page() -> str:
    """Return `sictl.1`: every verb with its options, and the exit codes."""
    parts = [
        *_head("sictl", 1, "control sid, the daemon that improves a git repository in measured rounds"),
        ".SH SYNOPSIS",
        ".B sictl",
        "[\\fIOPTIONS\\fR] \\fIVERB\\fR [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        _plain(verbs.RUN),
        ".SH OPTIONS",
        "Before or after the verb:",
        *_options(verbs.shared_options()),
    ]
    for title, group in verbs.groups():
        parts.append(f".SH {escaped(title.upper())}")
        for one in group:
            parts += _verb(one)
    parts += [
        ".SH EXIT STATUS",
        *_verbatim(EXIT_CODES.splitlines()),
        ".SH ENVIRONMENT",
        *_environment(),
        ".SH SEE ALSO",
        ".BR sid (8),",
        ".BR sid.toml (5)",
    ]
    return "\n".join(parts) + "\n"


def sid_page() -> str:
    """Return `sid.8`: the daemon."""
    parts = [
        *_head("sid", 8, "daemon that improves a git repository in measured rounds"),
        ".SH SYNOPSIS",
        ".B sid",
        escaped("[--help] [--version] [--doctor]"),
        ".SH DESCRIPTION",
        escaped(
            "sid runs in the foreground, serves JSON-RPC on a Unix socket of its user's, and goes on with every run that "
            "was active when it ended. sictl starts it where it is needed; 'sictl service install' makes it a service of "
            "the user's. SIGTERM, SIGINT and SIGHUP stop it: runs are left so that they go on at the next start."
        ),
        ".SH FILES",
        ".TP",
        escaped("$XDG_RUNTIME_DIR/sid/sid.sock"),
        "The socket, mode 0600; else ~/.local/state/sid/sid.sock.",
        ".TP",
        escaped("~/.local/state/sid"),
        "Registry of runs, trust, logs, lessons and copies of the runs' databases.",
        ".TP",
        escaped("REPOSITORY/.sid/topics/TOPIC"),
        "What one track keeps: settings, state, plans and tracking; its database is state/run.db.",
        ".SH ENVIRONMENT",
        *_environment(),
        ".SH SEE ALSO",
        ".BR sictl (1),",
        ".BR sid.toml (5)",
    ]
    return "\n".join(parts) + "\n"


def toml_page() -> str:
    """Return `sid.toml.5`: the daemon's settings."""
    schema = SettingsFile.model_json_schema()
    parts = [
        *_head("sid.toml", 5, "settings of the daemon sid"),
        ".SH DESCRIPTION",
        escaped(
            "Optional: every key has a default. It is read from $SID_CONFIG, else $XDG_CONFIG_HOME/sid/sid.toml, else "
            "~/.config/sid/sid.toml, once, when the daemon starts. What is wrong with it is told in one line, and the "
            "daemon does not start. The settings of a run are not here: see 'sictl config list'."
        ),
        ".SH KEYS",
    ]
    for name, field in schema["properties"].items():
        default = json_text(field.get("default"))
        parts += [
            ".TP",
            f".B {escaped(name)}",
            _plain(f"{type_text(field)}, default {default}: {prose(field)}"),
        ]
    parts += [".SS prices.MODEL"]
    for name, field in schema["$defs"]["ModelPrice"]["properties"].items():
        parts += [".TP", f".B {escaped(name)}", _plain(f"{type_text(field)}: {prose(field)}")]
    return "\n".join([*parts, ".SH SEE ALSO", ".BR sid (8),", ".BR sictl (1)"]) + "\n"


def _plain(text: str) -> str:
    """Return prose of the Markdown pages for troff."""
    return escaped(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("\\|", "|"))


def _head(name: str, section: int, what: str) -> list[str]:
    title = f'.TH "{escaped(name.upper())}" "{section}" "" "sid {__version__}"'
    return [title, ".SH NAME", f"{escaped(name)} \\- {escaped(what)}"]


def _verb(one: verbs.Verb) -> list[str]:
    lines = [f".SS sictl {escaped(one.typed)}", escaped(one.about)]
    lines += [f"The same: sictl {escaped(other)}." for other in one.also]
    lines += _options(one.options)
    return [*lines, ".PP", "Example:", *_verbatim(one.example)] if one.example else lines


def _options(options: Iterable[tuple[str, str]]) -> list[str]:
    return [line for names, told in options for line in (".TP", f".B {escaped(names)}", escaped(told))]


def _verbatim(lines: Lines) -> list[str]:
    return [".PP", ".nf", ".RS", *(escaped(line) for line in lines), ".RE", ".fi"]


def _environment() -> list[str]:
    told = (
        ("SID_SOCKET", "The socket, instead of the one in XDG_RUNTIME_DIR."),
        ("SID_STATE_DIR", "The daemon's state, instead of ~/.local/state/sid."),
        ("SID_CONFIG", "The daemon's settings, instead of ~/.config/sid/sid.toml."),
        ("SID_NO_SPAWN", "If 1, sictl starts no daemon."),
        ("NO_COLOR, FORCE_COLOR", "Whether to use colour."),
        ("SID_DEBUG", "If 1, an unexpected error prints its traceback."),
    )
    return [line for name, what in told for line in (".TP", f".B {escaped(name)}", escaped(what))]
