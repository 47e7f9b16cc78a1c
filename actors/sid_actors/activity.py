"""What an agent was seen doing: the record from which a straggler's reason is decided.

One `ActivityLog` a turn. Back ends write to it while the turn runs, the conductor reads its clocks,
the supervisor takes `evidence` at a deadline. Bounded: the newest entries are kept. It decides nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio
from sid_protocol.events import Activity
from sid_protocol.records import Cost

KEPT = 40
LINE_LIMIT = 400


@dataclass(slots=True)
class ActivityLog:
    """Activity of one turn; times are of trio's clock, in seconds.

    Attributes:
        processes: Returns `(states, sockets, cpu_s)` of the turn's processes; set while there are any.
        on_change: Called at every sign of life, so that the idle clock can be moved.
    """

    started: float = field(default_factory=trio.current_time)
    last_seen: float | None = None
    doing: str = "starting"
    tools: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    outputs: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    stop_reason: str | None = None
    error: str | None = None
    permission_asked: str | None = None
    asked_question: bool = False
    claimed_done: bool = False
    edits: int = 0
    request_since: float | None = None
    cost: Cost = field(default_factory=Cost)
    processes: Callable[[], tuple[tuple[str, ...], tuple[str, ...], float]] | None = None
    processes_killed: int = 0

    def touch(self, doing: str | None = None) -> None:
        """Note a sign of life, and what the agent is at."""
        self.last_seen = trio.current_time()
        if doing:
            self.doing = doing[:LINE_LIMIT]

    def tool(self, name: str, arguments: object) -> None:
        """Note a tool call; the arguments are kept as a hash, since they may hold secrets."""
        digest = hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()
        self.tools.append(f"{name}#{digest[:8]}")
        self.touch(name)

    def output(self, line: str) -> None:
        """Note a line that the agent printed."""
        if line.strip():
            self.outputs.append(line.strip()[:LINE_LIMIT])
        self.touch()

    def edit(self) -> None:
        """Note a change in the worktree."""
        self.edits += 1
        self.touch()

    @property
    def idle_s(self) -> float | None:
        """Seconds since the last sign of life; None before the first."""
        return None if self.last_seen is None else trio.current_time() - self.last_seen

    def evidence(self, deadline_s: float) -> Activity:
        """Return all that is known now, as the core needs it to decide a reason."""
        states, sockets, cpu_s = self.processes() if self.processes else ((), (), 0.0)
        now = trio.current_time()
        repeats = 0
        for tool in reversed(self.tools):
            if tool != self.tools[-1]:
                break
            repeats += 1
        return Activity(
            elapsed_s=now - self.started,
            idle_s=now - (self.last_seen if self.last_seen is not None else self.started),
            deadline_s=deadline_s,
            last_activity=self.doing,
            last_tool=self.tools[-1].split("#")[0] if self.tools else None,
            tools=tuple(self.tools),
            repeats=repeats,
            outputs=tuple(self.outputs),
            snippet="\n".join(self.outputs)[-200:],
            stop_reason=self.stop_reason,
            error=self.error,
            open_request_s=None if self.request_since is None else now - self.request_since,
            permission_asked=self.permission_asked,
            asked_question=self.asked_question,
            edits=self.edits,
            claimed_done=self.claimed_done,
            process_states=states,
            sockets=sockets,
            cpu_s=cpu_s,
        )
