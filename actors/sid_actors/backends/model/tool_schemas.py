"""What a model is told of its tools: a name, a description and the JSON Schema of the arguments for each.

`dialogue` sends them, `toolbox` carries the calls out.
"""

from __future__ import annotations

from typing import Any

DEFAULT_RUN_S = 120.0

_PATH = {"type": "string", "description": "Path from the working directory."}
VIEW: dict[str, Any] = {
    "name": "view",
    "description": "Show a file with line numbers, or the entries of a directory.",
    "input_schema": {
        "type": "object",
        "properties": {
            "path": _PATH,
            "first_line": {"type": "integer", "description": "First line to show, from 1."},
            "last_line": {"type": "integer", "description": "Last line to show."},
        },
        "required": ["path"],
    },
}
SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Search text in files: every line that matches an extended regular expression.",
    "input_schema": {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "Extended regular expression, as for grep -E."},
            "path": {**_PATH, "description": "Directory or file to search in; all by default."},
        },
        "required": ["pattern"],
    },
}
EDIT: dict[str, Any] = {
    "name": "edit",
    "description": "Change one file: str_replace puts new_text in the place of old_text, which must stand in the "
    "file exactly once; insert puts new_text after line `line` (0 is the top); create makes a new file of new_text.",
    "input_schema": {
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": ["str_replace", "insert", "create"]},
            "path": _PATH,
            "old_text": {"type": "string"},
            "new_text": {"type": "string"},
            "line": {"type": "integer"},
        },
        "required": ["command", "path", "new_text"],
    },
}
RUN: dict[str, Any] = {
    "name": "run",
    "description": "Run a shell command in the working directory, in a sandbox without standard input.",
    "input_schema": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout_s": {"type": "number", "description": f"Default {DEFAULT_RUN_S:.0f} s."},
        },
        "required": ["command"],
    },
}
DONE: dict[str, Any] = {
    "name": "done",
    "description": "Say that the plan is carried out. Nothing more can be done after it.",
    "input_schema": {
        "type": "object",
        "properties": {"summary": {"type": "string", "description": "What was changed, in a few sentences."}},
        "required": ["summary"],
    },
}
READING = (VIEW, SEARCH)
EXECUTING = (VIEW, SEARCH, EDIT, RUN, DONE)
