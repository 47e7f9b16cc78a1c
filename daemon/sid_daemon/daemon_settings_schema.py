"""What may stand in `sid.toml`: its keys, their ranges, why they have their defaults.

Used by `daemon_settings` where there is such a file, and by the reference page. What is wrong is told in one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sid_daemon.daemon_settings import DEFAULTS, DaemonSettings
from sid_protocol.errors import SettingsInvalid
from sid_protocol.log_levels import LogLevel
from sid_protocol.prices import Price

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


class SettingsFile(BaseModel):
    """All keys of `sid.toml`, flat but for the tables of `prices`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    log_level: LogLevel = Field(DEFAULTS.log_level, description="what a user looks at")
    log_file_mb: int = Field(
        DEFAULTS.log_file_mb, ge=1, le=4096, description="a file that an editor still opens"
    )
    log_files: int = Field(DEFAULTS.log_files, ge=1, le=1000, description="weeks of records")
    connections: int = Field(
        DEFAULTS.connections, ge=1, le=100_000, description="clients at once; each costs about 20 KiB"
    )
    prices: dict[str, ModelPrice] = Field({}, description="prices of models, which go before our own table's")


def checked(values: Mapping[str, Any], path: Path) -> DaemonSettings:
    """Return what a settings file says.

    Args:
        values: Its contents.
        path: Where it is, for the message.

    Raises:
        SettingsInvalid: naming the key, why, and what was meant if that is likely.
    """
    try:
        read = SettingsFile.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, list(SettingsFile.model_fields), n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(SettingsFile.model_fields)}"
            raise SettingsInvalid(key, f"unknown key in {path}", hint=hint) from None
        raise SettingsInvalid(key, f"in {path}: {first['msg'].lower()}") from None
    return DaemonSettings(
        log_level=read.log_level,
        log_file_mb=read.log_file_mb,
        log_files=read.log_files,
        connections=read.connections,
        prices={name: one.price for name, one in read.prices.items()},
    )
