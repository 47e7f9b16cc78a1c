"""`sictl config`: settings with the source of each, checked."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from sid_cli.client import Client
from sid_cli.completing import complete_config
from sid_cli.options import FreeWords, topic_option, verb
from sid_cli.session import Session
from sid_cli.status_text import Look
from sid_cli.text import clean, table
from sid_protocol.errors import SettingsInvalid, UsageError

_USAGE = {
    "get": "config get [RUN] KEY",
    "set": "config set [RUN] KEY VALUE",
    "list": "config list [RUN]",
}


@verb(
    "config",
    example="sictl config list\nsictl config set plateau_window 5\nsictl config get deadlines.executor",
    cls=FreeWords,
)
@click.argument("action", type=click.Choice(tuple(_USAGE)))
@click.argument("words", metavar="[RUN] [KEY] [VALUE]", nargs=-1, shell_complete=complete_config)
@topic_option
def command(session: Session, action: str, words: tuple[str, ...], topic: str | None) -> None:
    """Read or change settings; a change in a live run takes effect at the next round."""
    run, key, value = split(action, words)
    if action == "set":
        _set(session, run, topic, str(key), str(value))
    else:
        _show(session, run, topic, key)


def split(action: str, words: tuple[str, ...]) -> tuple[str | None, str | None, str | None]:
    """Tell RUN, KEY and VALUE apart: RUN is what there is one word too many for.

    Raises:
        UsageError: there are too many words or too few.
    """
    wanted = {"list": 0, "get": 1, "set": 2}[action]
    if len(words) not in (wanted, wanted + 1):
        raise UsageError(
            f"config {action} does not take {len(words)} words", hint=f"usage: sictl {_USAGE[action]}"
        )
    run, rest = (words[0], words[1:]) if len(words) > wanted else (None, words)
    padded = (*rest, None, None)
    return run, padded[0], padded[1]


def finite(text: str) -> float | str:
    """Return a number of a JSON text; as text where no float is that large, for the daemon to refuse by its setting."""
    value = float(text)
    return value if math.isfinite(value) else text


def parse_value(text: str, default: Any) -> Any:
    """Return VALUE as JSON where it is JSON, else as a string; a string setting takes any text as it is.

    Args:
        text: What was typed.
        default: The setting's default, whose type says what is meant.
    """
    try:
        value = json.loads(text, parse_constant=str, parse_float=finite)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(default, str) and not isinstance(value, str) else value


def _show(session: Session, run: str | None, topic: str | None, key: str | None) -> None:
    with session.daemon(spawn=True) as client:
        wanted = {"run": session.row(client, run, topic)["run_id"], **({} if key is None else {"key": key})}
        found = client.call("run.config", wanted)["settings"]
    console = session.console
    if key is not None and len(found) == 1:
        console.result({"settings": found}, _shown(found[0]["value"]))
        return
    look = Look(paint=console.paint, marks=console.marks, width=console.width)
    console.result({"settings": found}, _table(found, look))


def _table(found: list[dict[str, Any]], look: Look) -> str:
    body = [
        (
            clean(row["key"]),
            _shown(row["value"]),
            "" if row["value"] == row["default"] else _shown(row["default"]),
            clean(row["source"]),
        )
        for row in found
        # A group is told by its members, each of which has a source of its own.
        if not any(other["key"].startswith(f"{row['key']}.") for other in found)
    ]
    return table(("KEY", "VALUE", "DEFAULT", "SOURCE"), body, width=look.width, flexible=1)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return clean(text)


def _default(client: Client, run_id: str, key: str) -> Any:
    """Return a setting's default; None where the settings as they are cannot be read, which setting one may put right."""
    try:
        present = client.call("run.config", {"run": run_id, "key": key})["settings"]
    except SettingsInvalid:
        return None
    return next((row["default"] for row in present if row["key"] == key), None)


def _set(session: Session, run: str | None, topic: str | None, key: str, value: str) -> None:
    console = session.console
    with session.daemon(spawn=True) as client:
        run_id = session.row(client, run, topic)["run_id"]
        default = _default(client, run_id, key)
        result = client.call("run.config", {"run": run_id, "key": key, "value": parse_value(value, default)})
    change = result.get("changed")
    if change is None:
        told = f"{clean(key)} has that value already"
    else:
        when = f", from round {change['from_round']}" if change["from_round"] is not None else ""
        told = f"{clean(change['key'])} {_shown(change['old'])} {console.marks.arrow} {_shown(change['new'])}{when}"
    notes = result.get("notes", [])
    text = "\n".join([told, *(f"note: {clean(note)}" for note in notes)])
    console.result({"settings": result["settings"], "changed": change, "notes": notes}, text)
