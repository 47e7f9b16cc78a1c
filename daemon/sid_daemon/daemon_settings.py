"""Settings of the daemon itself (`sid.toml`): optional, every key has a default.

Read once by `app` at the start. What is wrong with the file is told in one line, with the key, and the daemon
does not start: a setting that is silently ignored is worse than none. We never write this file.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sid_protocol.errors import SettingsInvalid
from sid_protocol.prices import Price

SIZE_LIMIT = 1_000_000


Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelPrice(BaseModel):
    """US dollars per million tokens of one model; what is not named is derived from `input`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input: Dollars = Field(description="tokens in")
    output: Dollars = Field(description="tokens out")
    cache_read: Dollars | None = Field(None, description="a tenth of input")
    cache_write: Dollars | None = Field(None, description="a quarter more than input")

    @property
    def price(self) -> Price:
        """As a price."""
        read, write = self.cache_read, self.cache_write
        return Price(
            input=self.input,
            output=self.output,
            cache_read=0.1 * self.input if read is None else read,
            cache_write=1.25 * self.input if write is None else write,
        )


class DaemonSettings(BaseModel):
    """All keys of `sid.toml`, flat but for the tables of `prices`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error|critical)$", description="what a user looks at"
    )
    log_file_mb: int = Field(64, ge=1, le=4096, description="a file that an editor still opens")
    log_files: int = Field(10, ge=1, le=1000, description="weeks of records")
    connections: int = Field(1024, ge=1, le=100_000, description="clients at once; each costs about 20 KiB")
    prices: dict[str, ModelPrice] = Field({}, description="prices of models, which go before our own table's")


def read_daemon_settings(path: Path) -> DaemonSettings:
    """Read `sid.toml`; a file that is not there means all defaults.

    Raises:
        SettingsInvalid: naming the key, why, and what was meant if that is likely.
    """
    try:
        data = path.read_bytes()[:SIZE_LIMIT]
    except FileNotFoundError:
        return DaemonSettings()
    except OSError as error:
        raise SettingsInvalid(str(path), f"cannot be read: {error.strerror}", hint="mend it") from None
    try:
        values = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsInvalid(str(path), f"is not valid TOML: {error}", hint="mend the file") from None
    try:
        return DaemonSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, list(DaemonSettings.model_fields), n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(DaemonSettings.model_fields)}"
            raise SettingsInvalid(key, f"unknown key in {path}", hint=hint) from None
        raise SettingsInvalid(key, f"in {path}: {first['msg'].lower()}") from None
