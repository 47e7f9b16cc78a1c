"""`settings.md`, made from the models of a track's settings and of the daemon's.

Which keys are without effect stands in `NO_EFFECT`, since no model knows; a test looks for code that reads one.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from pages.words import cell, first_line, made_from, prose, table, type_text
from sid_actors.workbench.checks.detectors import DEFAULTS, MEANING
from sid_daemon.daemon_settings_schema import SettingsFile
from sid_protocol.settings import TRUSTED_KEYS, Settings

NO_EFFECT = frozenset(
    {
        "number_of_max_critics",
        "current_repo_url",
        "si_claude_setting",
        "review_candidates",
    }
)
"""Keys that are accepted and kept, and that no code of this version reads; a test looks."""

SETTINGS_HEAD = f"""\
# Settings

{made_from("protocol/sid_protocol/settings.py and daemon/sid_daemon/daemon_settings_schema.py")}

`config/settings.json` in a track's root. `sictl config list` shows each value with its source, `sictl config set KEY VALUE`
checks and changes one (dotted keys reach into a group, an object is merged into the present one), `sictl init --set
KEY=JSON` sets one at set-up. A change in a live run takes effect at the next round and is on record. An unknown key, a
wrong type and a value out of range are refused in one line; a key of another tool that stands in the file already is kept
and not read.

Units are seconds, megabytes and dollars unless the name says otherwise; `null` is no limit. A threshold that is a number is in
absolute score units, a string such as `"1%"` is relative; `init` writes `"1%"` for `plateau_threshold` and `"5%"` for
`regression_threshold`.

**T**: covered by trust; any change asks for `sictl init --trust` again before anything runs. **·**: accepted and kept, but
without effect in this version.
"""


def settings_page() -> str:
    """Return `settings.md`."""
    schema = Settings.model_json_schema()
    groups = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    plain = {name: inner for name, inner in schema["properties"].items() if name not in groups}
    lines = [SETTINGS_HEAD, "## Keys", "", *_settings_table(plain, Settings().model_dump(mode="json"))]
    for name, model in groups.items():
        inner = schema["$defs"][model.__name__]
        mark = " **T**" if name in TRUSTED_KEYS else ""
        lines += ["", f"## `{name}`{mark}", "", first_line(model), ""]
        lines += _settings_table(inner["properties"], model().model_dump(mode="json"), f"{name}.")
    lines += _objects(schema, {model.__name__ for model in groups.values()})
    lines += [
        "",
        "## Detectors",
        "",
        "What each looks for in a candidate's diff; `detectors.NAME` says what is done about it.",
        "",
        *table(
            ("detector", "the candidate", "default"),
            [(f"`{name}`", cell(MEANING[name]), f"`{level}`") for name, level in DEFAULTS.items()],
        ),
    ]
    own = SettingsFile.model_json_schema()
    lines += [
        "",
        "## The daemon's own: `sid.toml`",
        "",
        "`$SID_CONFIG`, else `$XDG_CONFIG_HOME/sid/sid.toml`; optional, read once when the daemon starts.",
        "",
        *_settings_table(own["properties"], SettingsFile().model_dump(mode="json")),
        *_objects(own, set()),
    ]
    return "\n".join(lines) + "\n"


def _objects(schema: dict[str, Any], told: set[str]) -> list[str]:
    """Return a section for each object that a setting holds, but for those told already."""
    lines = []
    for name, inner in schema.get("$defs", {}).items():
        if name not in told:
            fields = inner["properties"]
            defaults = {field: one["default"] for field, one in fields.items() if "default" in one}
            lines += ["", f"### {name}", "", cell(inner.get("description", "")), ""]
            lines += _settings_table(fields, defaults)
    return lines


def _settings_table(fields: dict[str, Any], values: dict[str, Any], prefix: str = "") -> list[str]:
    rows = []
    for name, schema in fields.items():
        key = f"{prefix}{name}"
        marks = [mark for mark, known in (("**T**", TRUSTED_KEYS), ("·", NO_EFFECT)) if key in known]
        default = f"`{json.dumps(values[name], ensure_ascii=False)}`" if name in values else "required"
        rows.append((f"`{key}`", _setting_type(schema), default, prose(schema), " ".join(marks)))
    return table(("key", "type", "default", "why this default", ""), rows)


_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


def _setting_type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " \\| ".join(_setting_type(choice) for choice in schema["anyOf"])
    bounds = " ".join(f"{sign} {schema[word]:.10g}" for word, sign in _BOUNDS if word in schema)
    return f"{type_text(schema)} {bounds}".strip()
