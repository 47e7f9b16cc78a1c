"""The systemd user units as this installation needs them: their texts, and where they go.

Called by `sictl service`. The units come with the distribution; only the daemon's path and PATH are this
machine's. Writes nothing and asks systemd nothing. The rules of quoting are those of systemd.service(5) and
systemd.unit(5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

from sid_protocol.errors import SidError

DISTRIBUTION = "sid-daemon"
SERVICE, SOCKET = "sid.service", "sid.socket"
NAMES = (SERVICE, SOCKET)
_SHIPPED = "share/systemd/user"
_EXEC = "ExecStart="


@dataclass(frozen=True, slots=True)
class UnitFile:
    """One file that `sictl service install` writes."""

    path: Path
    text: str


def unit_folder(environ: Mapping[str, str], home: str) -> Path:
    """Return where the user's own units live: absolute, whatever XDG_CONFIG_HOME holds."""
    configured = environ.get("XDG_CONFIG_HOME", "")
    return Path(configured if configured.startswith("/") else f"{home}/.config") / "systemd/user"


def unit_files(folder: Path, command: Sequence[str], search_path: str, home: str) -> list[UnitFile]:
    """Return the files of the service.

    Args:
        folder: Where they go.
        command: How the daemon is started, its first word an absolute path.
        search_path: PATH, which agents and benchmarks get from the daemon.
        home: HOME; its `.local/bin` is always on the daemon's PATH.

    Raises:
        SidError: this installation lacks the units, or lies where systemd starts nothing.
    """
    program, *arguments = command
    if any(sign in "\"'\\" or not sign.isprintable() for sign in program):
        raise SidError(
            f"systemd starts no program with quotes in its path: {program}", hint="install sid elsewhere"
        )
    texts = {name: _shipped(name) for name in NAMES}
    lines = texts[SERVICE].splitlines(keepends=True)
    # A variable is looked for in every word but the first.
    words = [_quoted(program), *(_quoted(word.replace("$", "$$")) for word in arguments)]
    started = f"{_EXEC}{' '.join(words)}\n"
    texts[SERVICE] = "".join(started if line.startswith(_EXEC) else line for line in lines)
    own = UnitFile(drop_in(folder), _drop_in_text(search_path, home))
    return [*(UnitFile(folder / name, texts[name]) for name in NAMES), own]


def drop_in(folder: Path) -> Path:
    """Return where the PATH of this machine goes; a user's own drop-ins lie beside it."""
    return folder / f"{SERVICE}.d" / "path.conf"


def _drop_in_text(search_path: str, home: str) -> str:
    entries = [entry for entry in search_path.split(":") if entry.startswith("/")]
    entries = list(dict.fromkeys([f"{home}/.local/bin", *entries]))
    path = ":".join(entries)
    return (
        "# PATH when 'sictl service install' ran: a user manager knows little of a login shell's.\n"
        f"[Service]\nEnvironment={_quoted(f'PATH={path}')}\n"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return escaped if escaped == text and " " not in text and "'" not in text else f'"{escaped}"'


def _shipped(name: str) -> str:
    for folder in _folders():
        path = folder / name
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise SidError(
        f"this installation of {DISTRIBUTION} has no {name}", hint="install it again: make install"
    )


def _folders() -> list[Path]:
    """Return where the units may be: the checkout of an editable installation, else what the wheel brought."""
    try:
        found = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return []
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    checkout = []
    if origin.get("dir_info", {}).get("editable"):
        checkout = [Path(unquote(urlparse(origin["url"]).path)) / "systemd"]
    wheel = [Path(str(file.locate())).parent for file in found.files or () if _SHIPPED in file.as_posix()]
    return [*checkout, *wheel]
