"""How long an agent's turn may take, and which clock runs out next.

Pure. The conductor sleeps to what `expired` says and reports what passed; the round machine decides what follows.
Only agents' turns have these clocks: a benchmark, a guard and a set-up command end at their own deadline
inside their job, as an ordinary outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sid_protocol.commands import AgentCommand, RunPlan, role_of
from sid_protocol.settings import Settings

Clock = Literal["hard", "idle"]


@dataclass(frozen=True, slots=True)
class Watched:
    """One agent's turn under way; times of any one clock, in seconds.

    Attributes:
        command_id: Which.
        started: When it was dispatched.
        last_seen: Its last sign of life, or None before the first.
        hard_s: Its hard limit.
        idle_s: Its idle limit, or None.
    """

    command_id: str
    started: float
    last_seen: float | None
    hard_s: float
    idle_s: float | None

    @classmethod
    def of(
        cls, command: AgentCommand, settings: Settings, *, started: float, last_seen: float | None
    ) -> Watched:
        """Return the clocks of a command's turn, with the limits that the settings give its role."""
        return cls(command.id, started, last_seen, hard_s(command, settings), idle_s(command, settings))

    @property
    def expiry(self) -> tuple[float, Clock]:
        """When its first clock runs out, and which one that is."""
        hard = self.started + self.hard_s
        if self.idle_s is None or self.last_seen is None:
            return hard, "hard"
        idle = self.last_seen + self.idle_s
        return (idle, "idle") if idle < hard else (hard, "hard")


def hard_s(command: AgentCommand, settings: Settings) -> float:
    """Return the hard limit of a command's turn, in seconds."""
    return float(getattr(settings.deadlines, role_of(command)))


def idle_s(command: AgentCommand, settings: Settings) -> float | None:
    """Return the idle limit of a command's turn, in seconds; only executors have one."""
    return settings.deadlines.executor_idle if isinstance(command, RunPlan) else None


def expired(watched: Iterable[Watched], now: float, looks: int) -> tuple[float, list[tuple[str, Clock]]]:
    """Return when to look again, and which clocks have run out by now.

    Args:
        watched: The turns under way.
        now: On their clock.
        looks: How often, within an idle limit, to look again all the same: signs of life start and move the idle
            clock, and nobody tells of the quiet ones.

    Returns:
        The time, infinite where no clock runs; `(command id, clock)` of each that has run out.
    """
    wake, due = math.inf, list[tuple[str, Clock]]()
    for one in watched:
        when, clock = one.expiry
        if when <= now:
            due.append((one.command_id, clock))
        else:
            wake = min(wake, when, now + one.idle_s / looks if one.idle_s else when)
    return wake, due
