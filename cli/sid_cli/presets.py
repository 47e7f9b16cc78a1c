"""Coding agents that `init --agent NAME` knows: the command for unattended, streaming use, and what it needs.

Pure. Each command reads the prompt on standard input, asks for no permission (the sandbox is the wall) and prints
its events as JSON lines, so that what it does is seen. What the user says with other flags goes before a preset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Preset:
    """One agent.

    Attributes:
        command: Its `agent_command`.
        env: What of the environment it is given, where it is set.
        paths: What of HOME it sees, where it exists; `:rw` behind what it writes.
    """

    command: str
    env: tuple[str, ...]
    paths: tuple[str, ...]


PRESETS = {
    "claude": Preset(
        "claude -p --output-format stream-json --verbose --dangerously-skip-permissions",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
        ("~/.claude:rw", "~/.claude.json:rw"),
    ),
    "codex": Preset(
        "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -",
        ("OPENAI_API_KEY", "CODEX_API_KEY"),
        ("~/.codex:rw",),
    ),
    "gemini": Preset(
        "gemini --output-format stream-json --yolo",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("~/.gemini:rw",),
    ),
    "opencode": Preset(
        "opencode run --format json",
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        ("~/.config/opencode", "~/.local/share/opencode:rw"),
    ),
}


def with_preset(params: dict[str, Any], name: str, exists: Callable[[str], bool]) -> dict[str, Any]:
    """Return the parameters of `run.init`, what they leave open filled from a preset.

    Args:
        params: As the other flags make them.
        name: The preset.
        exists: Says whether a path such as `~/.claude` is there.
    """
    preset = PRESETS[name]
    paths = [path for path in preset.paths if exists(path.removesuffix(":rw"))]
    own = params.get("set", {})
    return {
        "backend": "command",
        "agent_command": preset.command,
        **params,
        "set": {"agent_env": list(preset.env), "agent_paths": paths, **own},
    }
