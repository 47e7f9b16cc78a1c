"""`sictl` alone: what to type next in the folder one stands in, in five lines.

Called by `main`. Starts no daemon: one that does not answer is part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sid_cli import places, runs
from sid_cli.session import Session
from sid_cli.text import clean, gain_percent, number, percent
from sid_protocol.errors import NoDaemon


def tell_what_next(session: Session) -> None:
    """Print five lines: where things stand here, and the commands that fit."""
    here = places.here()
    rows: Sequence[Mapping[str, Any]] = ()
    try:
        with session.daemon(spawn=False) as client:
            rows = client.call("run.list")["runs"]
    except NoDaemon:
        rows = ()
    repo = places.repository(here)
    lines = next_lines(rows, here, repo)
    session.console.result({"next": lines}, "\n".join(lines))


def next_lines(rows: Sequence[Mapping[str, Any]], here: str, repo: str | None) -> list[str]:
    """Return where things stand and what fits, five lines.

    Args:
        rows: All runs that the daemon knows; none if it does not answer.
        here: The folder that the command stands in, resolved.
        repo: The repository that it lies in, or None.
    """
    found = runs.of_path(rows, here)
    if found:
        row = next((row for row in found if runs.is_active(row)), found[0])
        return [_standing(row), *(_running() if runs.is_active(row) else _ended())]
    active = sum(runs.is_active(row) for row in rows)
    elsewhere = f"; {active} active elsewhere" if active else ""
    if repo is not None:
        return [
            f"no run is set up in {clean(repo)}{elsewhere}",
            "  sictl init         set it up: goal, benchmark, trust",
            "  sictl demo         watch sid improve a small program first",
            "  sictl status       the daemon and its runs",
            "  sictl help         all verbs",
        ]
    return [
        f"{clean(here)} is no git repository{elsewhere}",
        "  sictl demo         watch sid improve a small program",
        "  sictl init REPO    set up a repository",
        "  sictl status       the daemon and its runs",
        "  sictl help         all verbs",
    ]


def _standing(row: Mapping[str, Any]) -> str:
    gained = gain_percent(row)
    gain = f", {percent(gained)}" if gained is not None else ""
    return (
        f"run {clean(row['run_id'])}: {clean(row['status']).replace('_', ' ')}, round {row['iteration']}/"
        f"{row['max_iterations']}, best {number(row['best_score'])}{gain}"
    )


def _running() -> list[str]:
    return [
        "  sictl attach       follow it",
        "  sictl status .     every actor and what it is doing",
        "  sictl idea TEXT    tell it something to try",
        "  sictl stop         end it safely",
    ]


def _ended() -> list[str]:
    return [
        "  sictl history      what happened",
        "  sictl diff         what changed",
        "  sictl apply        take it over",
        "  sictl start        go on",
    ]
