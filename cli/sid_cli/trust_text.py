"""What `init` shows: the trust question, the result, and the one command to type next.

Pure. The trust question names the path, every command that would run, and what no candidate may change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sid_cli.status_text import Look
from sid_cli.text import clean, number
from sid_protocol.locations import shell_word

_COMMANDS = ("benchmark_command", "guard_command", "holdout_command", "setup_command", "agent_command")
_SEALED_SHOWN = 20


def trust_question(result: Mapping[str, Any], look: Look) -> str:
    """Return everything that trust covers, in the words of the settings."""
    trusts = result["trusts"]
    lines = [look.paint(f"sid would work in {clean(result['repo'] or result['root'])}", "bold")]
    lines += [f"  runs     {line}" for line in _commands(trusts)]
    scope = trusts.get("scope") or {}
    lines.append(f"  changes  {_globs(scope.get('include'))}{_except(scope.get('exclude'))}")
    lines += [f"  sealed   {line}" for line in sealed_lines(result["sealed"])]
    shown = {*_COMMANDS, "scope", "sealed_files"}
    rest = [
        f"{clean(key)}={clean(_plain(value))}"
        for key, value in trusts.items()
        if key not in shown and _says(value)
    ]
    if rest:
        lines.append(f"  with     {'  '.join(rest)}")
    lines += [f"  note     {clean(note)}" for note in result.get("notes", ())]
    return "\n".join(lines)


def _commands(trusts: Mapping[str, Any]) -> list[str]:
    lines = []
    for key in _COMMANDS:
        value = trusts.get(key)
        commands = value if isinstance(value, list) else [value]
        lines += [f"{key.removesuffix('_command')}: {clean(command)}" for command in commands if command]
    return lines


def _globs(patterns: Sequence[str] | None) -> str:
    named = [clean(pattern) for pattern in patterns or () if pattern != "**"]
    return ", ".join(named) or "any file that is not sealed"


def _except(patterns: Sequence[str] | None) -> str:
    return f", never {', '.join(clean(pattern) for pattern in patterns)}" if patterns else ""


def _says(value: Any) -> bool:
    return value not in (None, "", [], {})


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def sealed_lines(sealed: Sequence[str]) -> list[str]:
    """Return the sealed files, a line each, and how many more there are."""
    lines = [clean(path) for path in sealed[:_SEALED_SHOWN]] or ["nothing"]
    more = len(sealed) - _SEALED_SHOWN
    return [*lines, f"and {more} more"] if more > 0 else lines


def next_command(result: Mapping[str, Any], cwd: str, *, root: str | None) -> str:
    """Return the one command to type next.

    Args:
        result: Of `run.init`.
        cwd: Where the user stands.
        root: `--root` as it was given, absolute, or None.
    """
    words = ["sictl", "start"]
    if result["repo"] and result["repo"] != cwd:
        words.append(result["repo"])
    if result["topic"] != "default":
        words += ["--topic", result["topic"]]
    if root is not None:
        words += ["--root", root]
    return " ".join(map(shell_word, words))


def done(result: Mapping[str, Any], command: str, look: Look) -> str:
    """Return what set-up found: baseline, sealed files, notes, and what to type."""
    lines = [
        f"{look.paint(f'{look.marks.yes} ready', 'green')}: run {clean(result['run_id'])} in {clean(result['root'])}"
    ]
    if result.get("took_over"):
        lines.append("an existing track goes on")
    if baseline := result.get("baseline"):
        how = "the same each time" if baseline["deterministic"] else f"spread {baseline['spread_pct']:.2f} %"
        lines.append(f"baseline {number(baseline['score'])} ({len(baseline['samples'])} runs, {how})")
    lines.append("sealed, no candidate may change them:")
    lines += [f"  {line}" for line in sealed_lines(result["sealed"])]
    lines += [f"note: {clean(note)}" for note in result.get("notes", ())]
    return "\n".join([*lines, f"next: {look.paint(command, 'bold')}"])
