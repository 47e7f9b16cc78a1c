"""The user's files of a track (`config/`): read at every round, written only for `sictl`.

Blocking; called in worker threads. `idea.md` is taken by rename, so that nothing written meanwhile is lost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from sid_actors.workbench.checks.detectors import check_names
from sid_actors.workbench.scores.scoring import check_format
from sid_daemon.goal import read_families, read_ideas, read_rules, render_ideas
from sid_daemon.store.files import remove_unfinished, write_whole
from sid_protocol.errors import SettingsInvalid, StoreError
from sid_protocol.ids import topic_slug
from sid_protocol.settings import (
    Settings,
    check_family_count,
    parse_file,
    parse_json_object,
    refuse_unknown,
    with_value,
)

SIZE_LIMIT = 4_000_000
FILES = ("settings.json", "goal.md", "harness.md", "idea.md")
_WRITING = threading.Lock()
"""Held while a file of `config/` is read to be written again: two clients at once must both be heard."""


@dataclass(frozen=True, slots=True)
class TrackConfig:
    """What a track's `config/` says.

    Attributes:
        raw: The settings file's own object: only what the user set.
        settings: The same with every default.
        goal: Text of `goal.md`.
        rules: The user's rules.
        families: Names of the custom approach families.
    """

    raw: dict[str, JsonValue]
    settings: Settings
    goal: str
    rules: tuple[str, ...]
    families: tuple[str, ...]


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror or error}", hint="check its permissions, then try again"
        ) from error
    if len(data) > SIZE_LIMIT:
        raise SettingsInvalid(path.name, "is over 4 MB", hint="make it smaller")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SettingsInvalid(path.name, "is not UTF-8 text", hint="fix the file") from None


def read_raw(root: Path) -> dict[str, JsonValue] | None:
    """Return the settings file's object, or None where there is no file.

    Raises:
        SettingsInvalid: it is not one JSON object.
    """
    text = _read(root / "config" / "settings.json")
    return None if text is None else parse_json_object(text, "settings.json")


def read_config(root: Path) -> TrackConfig:
    """Read and check everything.

    Raises:
        SettingsInvalid: naming the key or the file, and why.
    """
    raw = read_raw(root)
    if raw is None:
        raise SettingsInvalid("settings.json", "is missing", hint="'sictl init' makes it again")
    settings = parse_file(raw)
    harness = _read(root / "config" / "harness.md") or ""
    families = tuple(name for name, _ in read_families(harness))
    check_family_count(settings, families)
    return TrackConfig(
        raw=raw,
        settings=settings,
        goal=_read(root / "config" / "goal.md") or "",
        rules=read_rules(harness),
        families=families,
    )


def read_text(root: Path, name: str) -> str | None:
    """Return the text of one file of `config/`, or None where it is missing."""
    return _read(root / "config" / name)


def write_raw(root: Path, raw: dict[str, JsonValue]) -> None:
    """Write the settings file whole."""
    text = json.dumps(raw, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(root / "config" / "settings.json", text.encode())


def change_setting(
    root: Path, key: str, value: JsonValue
) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """Set one key in the settings file.

    Args:
        root: The track's root.
        key: Dotted.
        value: Its new value; an object is merged into the present one.

    Returns:
        The file's object before and after.

    Raises:
        SettingsInvalid: the key or the value is not allowed; nothing was written.
    """
    with _WRITING:
        before = read_raw(root) or {}
        after = with_value(before, key, value)
        refuse_unknown(key)
        check_topic(before, after)
        _check_more(root, key, parse_file(after))
        write_raw(root, after)
    return before, after


def check_topic(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue]) -> None:
    """Refuse another topic: it is in the names of branches and tags, and the track lies where it says.

    Raises:
        SettingsInvalid: a track that has a topic was given another.
    """
    present = before.get("topic_slug", "default")
    if isinstance(present, str) and after.get("topic_slug", "default") != present:
        raise SettingsInvalid(
            "topic_slug",
            f"names this track, {topic_slug(present)}, for good",
            hint="make one of another name: sictl init --topic NAME",
        )


def _check_more(root: Path, key: str, settings: Settings) -> None:
    """Check of the key that is set what its type does not say, as a start would."""
    head = key.partition(".")[0]
    if head == "number_of_agents":
        harness = _read(root / "config" / "harness.md") or ""
        check_family_count(settings, tuple(name for name, _ in read_families(harness)))
    elif head == "detectors":
        check_names(settings.detectors)
    elif head == "benchmark_format":
        check_format(settings.benchmark_format)


def write_text(root: Path, name: str, text: str) -> None:
    """Write one file of `config/` whole."""
    write_whole(root / "config" / name, text.encode())


def clear_beside(root: Path) -> None:
    """Remove what a crash left beside files of `config/` that were being written."""
    with _WRITING:
        remove_unfinished(root / "config")


def copy_files(source: Path, target: Path) -> None:
    """Copy the user's files of a track from one folder to another; what is there already is left alone.

    Raises:
        StoreError: a file could not be read or written.
    """
    for name in FILES:
        if (source / name).is_file() and not (target / name).exists():
            try:
                write_whole(target / name, (source / name).read_bytes())
            except OSError as error:
                raise StoreError(f"cannot read {source / name}: {error.strerror}", hint="mend it") from error


def copy_of(copy: Path) -> Path:
    """Return where the user's files lie beside the daemon's copy of a database."""
    return copy.with_suffix(".config")


def keep_copy(root: Path, copy: Path) -> None:
    """Keep the user's files as they are now beside the copy of the database, if they have not been taken away.

    Raises:
        StoreError: they could not be written.
    """
    present, kept = root / "config", copy_of(copy)
    try:
        if not (present / "settings.json").is_file():
            return
        for name in FILES:
            data = _bytes(present / name)
            if data is None:
                (kept / name).unlink(missing_ok=True)
            elif data != _bytes(kept / name):
                write_whole(kept / name, data)
    except OSError as error:
        raise StoreError(
            f"{kept}: {error.strerror}", hint="free some space or fix the permissions"
        ) from error


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def take_ideas(root: Path, iteration: int) -> tuple[str, ...]:
    """Take what stands in `idea.md` for a round; what is written from now on waits for the next.

    The text lies in a file of the round's number until a later round begins, since only then it is sure to
    be in the journal: a take that a crash cut short is taken again. An empty `idea.md` is left in its place; one
    that holds no idea (headings, comments) is left alone.
    """
    config = root / "config"
    ideas, taken = config / "idea.md", config / f".idea.taken.{iteration}.md"
    with _WRITING:
        for old in config.glob(".idea.taken.*.md"):
            if old != taken:
                old.unlink(missing_ok=True)
        before = _read(taken) or ""
        text = _read(ideas) or ""
        if read_ideas(text):
            if before.strip():
                write_whole(taken, f"{before.rstrip()}\n\n{text}".encode())
                ideas.unlink(missing_ok=True)
            else:
                with suppress(FileNotFoundError):
                    ideas.rename(taken)
            ideas.touch()  # keeps what somebody has written since
        return read_ideas(_read(taken) or "")


def return_ideas(root: Path, iteration: int, ideas: tuple[str, ...]) -> None:
    """Put the ideas that a round has taken in front of what has come since, as they were written if that is still known."""
    path, taken = root / "config" / "idea.md", root / "config" / f".idea.taken.{iteration}.md"
    with _WRITING:
        since = _read(path) or ""
        later = read_ideas(since)
        if later[: len(ideas)] != ideas:
            text = _read(taken) or ""
            if read_ideas(text) != ideas:
                text = render_ideas(ideas)
            elif not text.endswith("\n"):
                text += "\n"
            if read_ideas(text + since) != (*ideas, *later):
                text += "\n"  # else the last one and the first one since are one paragraph
            write_whole(path, (text + since).encode())
        taken.unlink(missing_ok=True)


def append_idea(root: Path, text: str) -> None:
    """Add one idea at the end of `idea.md`."""
    path = root / "config" / "idea.md"
    with _WRITING:
        before = _read(path) or ""
        if before and not before.endswith("\n"):
            before += "\n"
        write_whole(path, f"{before}- {' '.join(text.split())}\n".encode())
