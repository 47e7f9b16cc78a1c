"""Which model answers which role, and how much it may write: one dated table.

`settings.models` overrides a role's model; the key `default` stands for all roles that it does not name.
"""

from __future__ import annotations

from collections.abc import Mapping

from sid_actors.backends.base import Role

AS_OF = "2026-10-10"
"""When the ids were last compared with the vendor's list."""

MODELS: Mapping[Role, str] = {
    "researcher": "claude-opus-5-5",
    "planner": "claude-opus-5-5",
    "architect": "claude-sonnet-5-5",
    "critic": "claude-sonnet-5-5",
    "executor": "claude-opus-5-5",
    "goal_clarifier": "claude-sonnet-5-5",
    "benchmark_builder": "claude-opus-5-5",
}
"""The strong one where ideas and edits are made, the cheaper one where they are reviewed."""

OUTPUT_TOKENS: Mapping[Role, int] = {
    "researcher": 16_000,
    "planner": 16_000,
    "architect": 8_000,
    "critic": 8_000,
    "executor": 16_000,
    "goal_clarifier": 8_000,
    "benchmark_builder": 32_000,
}
"""The most that one call may write, thinking included; also what a call reserves."""

LEAST_OUTPUT_TOKENS = 1_000
"""Where the budget leaves less than this, a call is not worth its prompt."""

READING_CALLS: Mapping[Role, int] = {
    "researcher": 24,
    "planner": 12,
    "architect": 6,
    "critic": 6,
    "goal_clarifier": 12,
    "benchmark_builder": 24,
}
"""Calls in which a role that only reads may look at code before it must answer."""

EXECUTOR_CALLS = 80
"""Calls of one executor's turn."""

CONTEXT_TOKENS = 160_000
"""A turn's messages are cut back before they grow beyond this; every model of the table can hold it."""


def model_of(role: Role, chosen: Mapping[str, str]) -> str:
    """Return the model that answers a role.

    Args:
        role: The role.
        chosen: `settings.models`.
    """
    return chosen.get(role) or chosen.get("default") or MODELS[role]
