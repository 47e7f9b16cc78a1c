"""What answers a prompt: the one protocol of all back ends.

A back end turns a `Turn` into an `Answer` or raises `BackendError`. It knows no git, keeps no state
between turns, and never retries: the core decides on that. Cancelling it must leave nothing running.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from sid_actors.jobs.job import Mount
from sid_actors.track import Track
from sid_actors.watching.activity import ActivityLog
from sid_protocol.records import Cost, Plan

Role = Literal[
    "researcher",
    "planner",
    "architect",
    "critic",
    "executor",
    "goal_clarifier",
    "benchmark_builder",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One cold question to an agent.

    Attributes:
        role: Which role answers.
        agent_id: For example `planner_a`.
        iteration: The round.
        prompt: The whole prompt, UTF-8 text.
        shared: Characters at its beginning that all agents of the role are told alike in this round.
        schema: JSON Schema of the answer; None for an executor.
        cwd: Absolute path; an executor's worktree, for others a view of the improvement branch.
        sealed: Absolute paths in `cwd` that must stay read-only (executor).
        shown: What the sandbox shows besides `cwd`, such as shared paths; those in it stand there.
        deadline_s: The role's hard limit, for the agent's own information.
        track: What the agent may know of the run.
        plan: The plan at hand (architect, critic, executor).
        number: The planner's or executor's number, from 1.
        guard_output: Output of a red guard that this turn is to mend, or empty.
    """

    role: Role
    agent_id: str
    iteration: int
    prompt: str
    schema: dict[str, Any] | None
    cwd: str
    deadline_s: float
    track: Track
    sealed: tuple[str, ...] = ()
    shown: tuple[Mount, ...] = ()
    plan: Plan | None = None
    number: int = 1
    guard_output: str = ""
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent said: a JSON document as text, or an executor's summary."""

    text: str
    cost: Cost = field(default_factory=Cost)


class Backend(Protocol):
    """Answers prompts."""

    async def answer(self, turn: Turn, activity: ActivityLog) -> Answer:
        """Carry out one turn.

        Raises:
            BackendError: the agent crashed, could not be started, or ended without an answer.
        """
