"""A transition under way: the state as one event changes it, and the commands that follow.

Made by `step` for one event and thrown away after it. It keeps the book-keeping of commands in one place,
so that the machines above it only say what should happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sid_daemon.core.state import Execution, Round, RunState, Slot, Spent
from sid_protocol.commands import (
    AgentCommand,
    AnyCommand,
    CloseRound,
    Halt,
    Inspect,
    Kill,
    PrepareRound,
    ReturnIdeas,
    role_of,
)
from sid_protocol.records import AgentFailure, Cost

AFTER_BLOCK = Halt | CloseRound | ReturnIdeas | PrepareRound
"""Commands that a blocked round may still need: to end."""


class Transition:
    """Collects the effects of one event.

    Attributes:
        state: The state so far.
        at: The event's time.
        commands: What is to be dispatched, in order.
    """

    def __init__(self, state: RunState, at: str) -> None:
        self.state = state
        self.at = at
        self.commands: list[AnyCommand] = []

    @property
    def round(self) -> Round:
        """The round under way."""
        return self.state.now_round

    def set(self, **changes: Any) -> None:
        """Change fields of the run."""
        self.state = replace(self.state, **changes)

    def set_round(self, **changes: Any) -> None:
        """Change fields of the round."""
        self.set(round=replace(self.round, **changes))

    def set_slot(self, planner: str, **changes: Any) -> None:
        """Change fields of one planner's slot."""
        slot = replace(self.round.slots.get(planner) or Slot(planner), **changes)
        self.set_round(slots={**self.round.slots, planner: slot})

    def set_execution(self, executor: str, **changes: Any) -> Execution:
        """Change fields of one execution; returns it."""
        execution = replace(self.round.executions[executor], **changes)
        self.set_round(executions={**self.round.executions, executor: execution})
        return execution

    def issue(self, command: AnyCommand) -> None:
        """Ask for a command, unless it is already asked for or its round is blocked."""
        if command.id in self.state.outstanding:
            return
        now = self.state.round
        if now is not None and now.blocked and not isinstance(command, AFTER_BLOCK):
            return
        self.set(outstanding={**self.state.outstanding, command.id: command})
        self.commands.append(command)

    def settle(self, cause: str) -> AnyCommand | None:
        """Take a command off the book, with what was asked about it; None if it is not on it."""
        command = self.state.outstanding.get(cause)
        if command is None:
            return None
        rest = {
            key: value
            for key, value in self.state.outstanding.items()
            if key != cause and not (isinstance(value, Halt | Inspect | Kill) and value.target == cause)
        }
        self.set(outstanding=rest)
        if cause in self.state.paid:
            self.set(paid={key: cost for key, cost in self.state.paid.items() if key != cause})
        return command

    def spend(self, role: str, cost: Cost, wall_s: float) -> None:
        """Add one turn's cost to its role."""
        if (now := self.state.round) is not None:
            self.set_round(cost=now.cost + cost, spent=_with(now.spent, role, cost, wall_s))
        self.set(spent=_with(self.state.spent, role, cost, wall_s))

    def note_failure(
        self, agent: str, role: str, attempt: int, why: str, *, budget: str | None, final: bool
    ) -> None:
        """Put an agent's failure on the round's record, with the limit that it was for lack of."""
        failure = AgentFailure(
            agent_id=agent, role=role, attempt=attempt, why=why[:1000], at=self.at, budget=budget, final=final
        )
        self.set_round(failures=(*self.round.failures, failure))


def spent_by_now(state: RunState) -> dict[str, Spent]:
    """Return what a run has spent by role, with the calls of turns that are under way."""
    spent = state.spent
    for key, cost in state.paid.items():
        if isinstance(command := state.outstanding.get(key), AgentCommand):
            spent = _with(spent, role_of(command), cost, 0.0)
    return spent


def _with(spent: dict[str, Spent], role: str, cost: Cost, wall_s: float) -> dict[str, Spent]:
    old = spent.get(role, Spent())
    new = Spent(
        calls=old.calls + (1 if cost.calls is None else cost.calls),
        input_tokens=_sum(old.input_tokens, cost.input_tokens),
        output_tokens=_sum(old.output_tokens, cost.output_tokens),
        usd=_sum(old.usd, cost.usd),
        wall_s=old.wall_s + wall_s,
        cached_tokens=_sum(old.cached_tokens, cost.cached_tokens),
        turns=old.turns + 1,
    )
    return {**spent, role: new}


def _sum(old: Any, new: Any) -> Any:
    return old if new is None else new if old is None else old + new


def by_role(parts: Iterable[tuple[AnyCommand | None, Cost]]) -> dict[str, Cost]:
    """Return what agents' turns had cost, by role; what cost nothing that is known is left out."""
    costs: dict[str, Cost] = {}
    for command, cost in parts:
        if isinstance(command, AgentCommand) and cost != Cost():
            role = role_of(command)
            costs[role] = costs.get(role, Cost()) + cost
    return costs
