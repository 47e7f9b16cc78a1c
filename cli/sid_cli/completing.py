"""Values that the shell completes: runs, rounds and setting keys, asked of the daemon.

Called by click's completion, at a press of the Tab key: one socket call with a budget of 150 ms, and silence where
nobody answers. Never starts a daemon.
"""

from __future__ import annotations

import contextlib
from typing import Any

import click
from click.shell_completion import CompletionItem

from sid_cli import places
from sid_cli.client import Client
from sid_cli.session import Session
from sid_protocol.errors import SidError

BUDGET_S = 0.15
_BACKENDS = ("local", "anthropic", "command", "replay")
_FORMATS = ("json", "number", "pass_fail")


def complete_run(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the ids of runs that begin so, and paths."""
    rows = (_asked(context, "run.list", {}) or {}).get("runs", ())
    items = [
        CompletionItem(row["run_id"], help=f"{row['status']} {row['repo']}")
        for row in rows
        if row["run_id"].startswith(incomplete)
    ]
    return items or [CompletionItem(incomplete, type="dir")]


def complete_topic(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the topics of the repository's tracks, else of all."""
    rows = (_asked(context, "run.list", {}) or {}).get("runs", ())
    here = places.repository(places.here())
    topics = dict.fromkeys(row["topic"] for row in [row for row in rows if row["repo"] == here] or rows)
    return [CompletionItem(topic) for topic in topics if topic.startswith(incomplete)]


def complete_folder(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return that the shell is to complete folders."""
    return [CompletionItem(incomplete, type="dir")]


def complete_file(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return that the shell is to complete files."""
    return [CompletionItem(incomplete, type="file")]


def complete_backend(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the agent back ends."""
    return [CompletionItem(name) for name in _BACKENDS if name.startswith(incomplete)]


def complete_format(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the benchmark formats that are whole words."""
    return [CompletionItem(name) for name in _FORMATS if name.startswith(incomplete)]


def complete_help(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the verbs, and `exit-codes`."""
    verbs = context.find_root().command
    names = verbs.list_commands(context) if isinstance(verbs, click.Group) else []
    return [CompletionItem(name) for name in (*names, "exit-codes") if name.startswith(incomplete)]


def complete_round(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the rounds of the run that was named, else of the repository's or the only one; and runs."""
    words = context.params.get("words") or ()
    rows = (_asked(context, "run.list", {}) or {}).get("runs", ())
    here = places.repository(places.here())
    meant = [row for row in rows if row["run_id"].startswith(words[0]) or row["repo"] == words[0]] if words else (
        [row for row in rows if row["repo"] == here] or rows
    )  # fmt: skip
    numbers = range(meant[0]["iteration"], 0, -1) if len(meant) == 1 else ()
    items = [CompletionItem(str(n), help="round") for n in numbers if str(n).startswith(incomplete)]
    if words:
        return items
    items += [
        CompletionItem(row["run_id"], help=row["repo"])
        for row in rows
        if row["run_id"].startswith(incomplete)
    ]
    return items or [CompletionItem(incomplete, type="dir")]


def complete_config(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the keys of the settings of the repository that the command stands in."""
    repo = places.repository(places.here())
    found = (_asked(context, "run.config", {"run": repo}) or {}) if repo is not None else {}
    return [
        CompletionItem(row["key"], help=row["source"])
        for row in found.get("settings", ())
        if row["key"].startswith(incomplete)
    ]


def complete_lesson(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the keys of the lessons in force of the run that was named, or that the command stands in."""
    run = context.params.get("run") or places.repository(places.here())
    found = (_asked(context, "run.lessons", {"run": run}) or {}) if run is not None else {}
    return [
        CompletionItem(row["key"], help=row["rule"])
        for row in found.get("lessons", ())
        if row["status"] == "in_force" and row["key"].startswith(incomplete)
    ]


def _asked(context: click.Context, method: str, params: dict[str, Any]) -> Any:
    session = context.ensure_object(Session)
    with contextlib.suppress(SidError), Client(session.socket_path) as client:
        return client.call(method, params, timeout_s=BUDGET_S)
    return None
