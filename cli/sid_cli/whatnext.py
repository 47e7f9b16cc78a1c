"""`sictl` alone: what to type next in the folder one stands in, in five lines.

Called by `main`. Starts no daemon: one that does not answer is part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sid_cli import places, runs
from sid_cli.session import Session
from sid_cli.text import clean, gain_percent, number, percent
from sid_protocol.errors import NoDaemon
from sid_protocol.locations import TOPIC_FOLDERS, track_root

Line = tuple[str, str]


def tell_what_next(session: Session) -> None:
    """Print five lines: where things stand here, and the commands that fit."""
    here = places.here()
    repo = places.repository(here)
    try:
        with session.daemon(spawn=False) as client:
            lines = next_lines(client.call("run.list")["runs"], here, repo)
    except NoDaemon:
        lines = next_lines((), here, repo, tracks=tracks_in(Path(repo)) if repo is not None else ())
    session.console.result({"next": lines}, "\n".join(lines))


def tracks_in(repo: Path) -> list[str]:
    """Return the topics that a repository holds tracks of, by its folders alone."""
    found = {path.name for folder in TOPIC_FOLDERS for path in (repo / folder).glob("*") if path.is_dir()}
    usual = track_root(str(repo), None, None, lambda path: Path(path).is_dir())
    return sorted(found | ({"default"} if Path(usual).is_dir() else set()))


def next_lines(
    rows: Sequence[Mapping[str, Any]], here: str, repo: str | None, *, tracks: Sequence[str] = ()
) -> list[str]:
    """Return where things stand and what fits, five lines.

    Args:
        rows: All runs that the daemon knows; none if it does not answer.
        here: The folder that the command stands in, resolved.
        repo: The repository that it lies in, or None.
        tracks: Topics of the tracks in it, where no daemon answers that knows their runs.
    """
    if found := runs.of_path(rows, here):
        active = [row for row in found if runs.is_active(row)]
        if active:
            return [_standing(active[0]), *_aligned(_RUNNING)]
        if len(found) == 1:
            return [_standing(found[0]), *_aligned(_after(found[0]))]
        listed = ", ".join(
            f"{clean(row['topic'])} ({clean(row['status']).replace('_', ' ')})" for row in found[:5]
        )
        return [f"{len(found)} runs here: {listed}", *_aligned(_looks(" --topic T"))]
    if repo is not None and tracks:
        which = "" if "default" in tracks or len(tracks) == 1 else " --topic T"
        topics = f": {', '.join(map(clean, tracks[:5]))}" if which else ""
        return [f"{clean(repo)} is set up, and no daemon is running{topics}", *_aligned(_looks(which))]
    count = sum(runs.is_active(row) for row in rows)
    elsewhere = f"; {count} active elsewhere" if count else ""
    if repo is not None:
        return [f"no run is set up in {clean(repo)}{elsewhere}", *_aligned(_NEW)]
    return [f"{clean(here)} is not a git repository{elsewhere}", *_aligned(_NOWHERE)]


def _standing(row: Mapping[str, Any]) -> str:
    gained = gain_percent(row)
    gain = f", {percent(gained)}" if gained is not None else ""
    return (
        f"run {clean(row['run_id'])}: {clean(row['status']).replace('_', ' ')}, round {row['iteration']}/"
        f"{row['max_iterations']}, best {number(row['best_score'])}{gain}"
    )


def _aligned(lines: Sequence[Line]) -> list[str]:
    width = max(16, *(len(command) for command, _ in lines))
    return [f"  {command:{width}}  {what}" for command, what in lines]


_NEW = (
    ("sictl init", "set it up: goal, benchmark, trust"),
    ("sictl demo", "watch sid improve a small program first"),
    ("sictl status", "the daemon and its runs"),
    ("sictl help", "all verbs"),
)
_NOWHERE = (
    ("sictl demo", "watch sid improve a small program"),
    ("sictl init REPO", "set up a repository"),
    ("sictl status", "the daemon and its runs"),
    ("sictl help", "all verbs"),
)
_RUNNING = (
    ("sictl attach", "follow it"),
    ("sictl status .", "every actor and what it is doing"),
    ("sictl idea TEXT", "tell it something to try"),
    ("sictl stop", "end it safely"),
)
_FRESH = (
    ("sictl start", "begin"),
    ("sictl idea TEXT", "tell it something to try"),
    ("sictl config list", "how it is set"),
    ("sictl help", "all verbs"),
)


def _after(row: Mapping[str, Any]) -> Sequence[Line]:
    if row["status"] == "idle":
        return _FRESH
    more = " --rounds N" if row["status"] in ("max_iterations", "target_reached") else ""
    return _looks("", more)


def _looks(which: str, more: str = "") -> Sequence[Line]:
    return (
        (f"sictl history{which}", "what happened"),
        (f"sictl diff{which}", "what changed"),
        (f"sictl apply{which}", "take it over"),
        (f"sictl start{which}{more}", "go on"),
    )
