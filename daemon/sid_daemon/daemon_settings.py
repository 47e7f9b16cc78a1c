"""Settings of the daemon itself (`sid.toml`): optional, every key has a default.

Read once by `app` at the start. What is wrong with the file is told in one line, with the key, and the daemon
does not start: a setting that is silently ignored is worse than none. We never write this file. Where there is none,
nothing is loaded that would check it: the daemon is to answer at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sid_protocol.errors import SettingsInvalid

if TYPE_CHECKING:
    from sid_protocol.log_levels import LogLevel
    from sid_protocol.prices import Price

SIZE_LIMIT = 1_000_000
_FIX = "fix it, or set SID_CONFIG to another file"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSettings:
    """What the daemon goes by; `daemon_settings_schema` says what each key means and may be."""

    log_level: LogLevel = "info"
    log_file_mb: int = 64
    log_files: int = 10
    connections: int = 1024
    prices: Mapping[str, Price] = field(default_factory=dict)


DEFAULTS = DaemonSettings()


def read_daemon_settings(path: Path) -> DaemonSettings:
    """Read `sid.toml`; a file that is not there means all defaults.

    Raises:
        SettingsInvalid: naming the key, why, and what was meant if that is likely.
    """
    try:
        data = _bytes_of(path)
    except FileNotFoundError:
        return DEFAULTS
    except OSError as error:
        raise SettingsInvalid(str(path), f"cannot be read: {error.strerror}", hint=_FIX) from None
    import tomllib

    from sid_daemon import daemon_settings_schema

    try:
        values = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalid(str(path), f"is not valid TOML: {error}", hint=_FIX) from None
    return daemon_settings_schema.checked(values, path)


def _bytes_of(path: Path) -> bytes:
    # A pipe would be waited for; /dev/null is as good as no file.
    if not (path.is_file() or path.is_char_device()):
        path.stat()  # where there is nothing at all
        raise SettingsInvalid(str(path), "is not a file", hint=_FIX)
    with path.open("rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise SettingsInvalid(str(path), f"is longer than {SIZE_LIMIT // 1000} kB", hint=_FIX)
    return data
