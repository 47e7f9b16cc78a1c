"""Where the key of the model service comes from, and that there is one.

`init` and `start` ask before anything runs, the model back end at every turn, since a key may be exchanged.
Blocking. The key is returned to its user alone: it is in no setting, no log, no record and no child's environment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from sid_protocol.errors import SettingsInvalid
from sid_protocol.settings import Settings

VARIABLE = "ANTHROPIC_API_KEY"
CREDENTIAL = "anthropic_api_key"
"""The name of the systemd credential (`LoadCredential=anthropic_api_key:PATH`)."""
_LONGEST = 1000
_ALONE = "write the key into it, alone"


def read_key(settings: Settings, repo: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the key: of the file that the settings name, else of the environment, else systemd's credential.

    Args:
        settings: The run's settings.
        repo: Absolute path of the repository's top, which a relative `api_key_file` is relative to.
        environ: The daemon's environment.

    Raises:
        SettingsInvalid: there is none, or it cannot be one.
    """
    if settings.api_key_file is not None:
        path = Path(repo, Path(settings.api_key_file).expanduser())
        return _checked(_from_file(path), str(path))
    if environ.get(VARIABLE, "").strip():
        return _checked(environ[VARIABLE], VARIABLE)
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if folder and (path := Path(folder, CREDENTIAL)).is_file():
        return _checked(_from_file(path), str(path))
    raise SettingsInvalid(
        "api_key_file",
        f"the anthropic back end has no key: {VARIABLE} is not in the daemon's environment",
        hint=f"export {VARIABLE} and restart the daemon ('sictl daemon shutdown'), or name a file: "
        "--set 'api_key_file=\"~/.config/sid/key\"'",
    )


def has_key() -> bool:
    """Say whether a key is there without any setting."""
    try:
        read_key(Settings(), "/")
    except SettingsInvalid:
        return False
    return True


def _from_file(path: Path) -> str:
    try:
        # Without O_NONBLOCK a pipe would hold its reader until somebody wrote into it.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise SettingsInvalid("api_key_file", f"{path} is no regular file", hint=_ALONE)
            return os.read(file, _LONGEST + 100).decode("utf-8", "replace")
        finally:
            os.close(file)
    except OSError as error:
        raise SettingsInvalid(
            "api_key_file", f"{path} cannot be read: {error.strerror}", hint=_ALONE
        ) from None


def _checked(text: str, source: str) -> str:
    key = text.strip()
    if not key or len(key) > _LONGEST or not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsInvalid("api_key_file", f"{source} holds no key", hint="the key alone, on one line")
    return key
