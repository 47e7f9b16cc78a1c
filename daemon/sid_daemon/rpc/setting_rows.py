"""Settings as rows: each key with its value, its default and where the value comes from. Pure.

For `run.config`, which `sictl config` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from sid_protocol.errors import SettingsInvalid
from sid_protocol.settings import Settings, parse_file, refuse_unknown


def _flat(prefix: str, value: Any, schema: Any) -> list[tuple[str, Any]]:
    """Return each group whole and then its leaves as dotted keys; free-form dictionaries stay whole."""
    found = []
    for name, field in type(schema).model_fields.items():
        inner = getattr(schema, name)
        key = f"{prefix}{name}"
        if hasattr(type(inner), "model_fields") and field.annotation is type(inner):
            leaves = _flat(f"{key}.", value[name], inner)
            whole = {leaf.removeprefix(f"{key}."): one for leaf, one in leaves}
            found.extend([(key, whole), *leaves])
        else:
            found.append((key, _plain(value[name])))
    return found


def _plain(value: Any) -> Any:
    """Return a whole number without its `.0`, as the user wrote it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def setting_rows(settings: Settings, raw: Mapping[str, Any], key: str | None) -> list[dict[str, Any]]:
    """Return one row a setting, each group before its members; of a dotted key, itself and what is below it."""
    values = _flat("", settings.model_dump(mode="json"), settings)
    defaults = dict(_flat("", Settings().model_dump(mode="json"), Settings()))
    shown = [
        {
            "key": name,
            "value": value,
            "default": defaults[name],
            # A new settings file spells out the defaults that other tools read; they are defaults all the same.
            "source": "settings.json" if _is_set(raw, name) and value != defaults[name] else "default",
        }
        for name, value in values
        if key is None or name == key or name.startswith(f"{key}.")
    ]
    if not shown and key is not None:
        setting(settings, key)
    return shown


def _is_set(raw: Mapping[str, Any], key: str) -> bool:
    head, _, rest = key.partition(".")
    if head not in raw:
        return False
    inner = raw[head]
    return not rest or (isinstance(inner, Mapping) and _is_set(inner, rest))


def setting(settings: Settings, key: str) -> Any:
    """Return the value of a dotted key.

    Raises:
        SettingsInvalid: there is no such key; with the nearest that there is.
    """
    value: Any = settings.model_dump(mode="json")
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            refuse_unknown(key)
            return None
        value = value[part]
    return _plain(value)


def setting_before(raw: Mapping[str, JsonValue], key: str) -> Any:
    """Return the value of a dotted key before it was set; as it was written where the file held no valid settings."""
    try:
        return setting(parse_file(dict(raw)), key)
    except SettingsInvalid:
        value: Any = raw
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value
