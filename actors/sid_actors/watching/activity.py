"""What an agent was seen doing: the record from which a straggler's reason is decided.

One `ActivityLog` a turn. Back ends write to it while the turn runs, the conductor reads its clocks,
the supervisor takes `evidence` at a deadline. Bounded: the newest entries are kept. It decides nothing.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from sid_actors.standstill import AgentClock
from sid_actors.watching.signs import Seen, Signs, at_work, look
from sid_actors.watching.waits import words
from sid_protocol.events import Activity
from sid_protocol.records import Cost

KEPT = 40
LINE_LIMIT = 400
QUIET_S = 2.0
"""Of whom something was heard since, nobody asks what it waits in."""
LOOP_LENGTH = 3
"""So many calls of a tool make a loop, if nothing was changed meanwhile."""
SIGNS = frozenset({"starting", "printing", "editing", "working", "waiting for a processor"})
"""What an agent is said to be at while nothing but signs of life are known of it."""


@dataclass(slots=True)
class ActivityLog:
    """Activity of one turn; times are of the run's clock for its agents, in seconds.

    Attributes:
        clock: That clock.
        processes: Returns what the turn's processes do; set while there are any.
        unfinished: What it printed after its last line: a question that waits for an answer has no end of line.
        worktree: Where an executor edits; its changed files are signs of life and edits.
        on_cost: Told that the cost has grown while the turn goes on.
        request: What the open request to a model waits for, in words; empty where none is open.
    """

    clock: AgentClock = field(default_factory=AgentClock)
    started: float = field(init=False)
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
    request: str = ""
    cost: Cost = field(default_factory=Cost)
    on_cost: Callable[[], None] = lambda: None
    processes: Callable[[], Seen] | None = None
    processes_killed: int = 0
    unfinished: str = ""
    worktree: str | None = None
    started_at: float = field(default_factory=time.time)
    _tool_times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    _signs: Signs | None = None
    _looked: float | None = None

    def __post_init__(self) -> None:
        """Begin now."""
        self.started = self.clock.now()

    def notice(self, signs: Signs) -> None:
        """Take quiet signs of life in: CPU time and changed files count as much as a word."""
        now, before = self.clock.now(), self._signs
        looked = self.started if self._looked is None else self._looked
        self._signs, self._looked = signs, now
        # Another one, not a later one: after the clock was put back what is new is earlier.
        changed = signs.newest != before.newest if before else signs.newest > self.started_at
        if sign := "editing" if changed else at_work(before or Signs(), signs, now - looked):
            self._show(sign)

    def pay(self, cost: Cost) -> None:
        """Note what the turn has cost by now."""
        self.cost = cost
        self.on_cost()

    def touch(self, doing: str | None = None) -> None:
        """Note a sign of life, and what the agent is at."""
        self.last_seen = self.clock.now()
        if doing:
            self.doing = doing[:LINE_LIMIT]

    def _show(self, sign: str) -> None:
        """Note a sign of life, and name it where no word of the agent's own says what it is at."""
        self.touch(sign if self.doing in SIGNS else None)

    def tool(self, name: str, arguments: object) -> None:
        """Note a tool call; the arguments are kept as a hash, since they may hold secrets."""
        try:
            told = json.dumps(arguments, sort_keys=True, default=str)
        except RecursionError:  # as deep as could just be read
            told = "too deep"
        digest = hashlib.sha256(told.encode()).hexdigest()
        self.tools.append(f"{name}#{digest[:8]}")
        self._tool_times.append(time.time())
        self.touch(name)

    def output(self, line: str) -> None:
        """Note a line that the agent printed."""
        if line.strip():
            self.outputs.append(line.strip()[:LINE_LIMIT])
        self._show("printing")

    def edit(self) -> None:
        """Note a change in the worktree."""
        self.edits += 1
        self._show("editing")

    @property
    def idle_s(self) -> float | None:
        """Seconds since the last sign of life; None before the first."""
        return None if self.last_seen is None else self.clock.now() - self.last_seen

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard for so long that one may ask what it waits in."""
        return self.clock.now() - (self.started if self.last_seen is None else self.last_seen) >= QUIET_S

    def works_in(self, worktree: str) -> None:
        """Note where it edits from now on; what was written there before is none of its edits."""
        self.worktree, self.started_at = worktree, time.time()

    async def look_for_signs(self, every_s: float) -> None:
        """Look for quiet signs of life, unless something was heard or looked for just now.

        That is within half of `every_s` seconds: late as the looks before it may have been, there is one when
        the time is up.
        """
        times = (self.started, self.last_seen, self._looked)
        quiet_s = self.clock.now() - max(at for at in times if at is not None)
        if quiet_s >= every_s / 2:
            await self._look()

    async def gather(self, deadline_s: float) -> Activity:
        """Look once more, and return all that is known, as the core needs it to decide a reason."""
        heard = self.last_seen
        _, seen = await self._look()
        self.last_seen = heard  # what the look found is told as such; it is no excuse for the silence before
        return self.evidence(deadline_s, seen)

    async def _look(self) -> tuple[Signs, Seen]:
        processes = self.processes  # taken here, since the turn may end while the thread is at it

        def blocking() -> tuple[Signs, Seen]:
            seen = processes() if processes else Seen()
            return look(seen, self.worktree, self.started_at), seen

        # A limiter of its own: a straggler must be looked at even when all the usual threads are taken.
        found = await trio.to_thread.run_sync(blocking, limiter=trio.CapacityLimiter(1))
        self.notice(found[0])
        return found

    def evidence(self, deadline_s: float, seen: Seen | None = None) -> Activity:
        """Return all that is known now; `seen` is what the processes do, if that was asked already."""
        seen = seen or (self.processes() if self.processes else Seen())
        signs = self._signs or Signs()
        # A loop that changed nothing is one that changed nothing while it lasted.
        since = self._tool_times[-LOOP_LENGTH] if len(self._tool_times) >= LOOP_LENGTH else self.started_at
        now = self.clock.now()
        waiting = self.unfinished.strip()[-LINE_LIMIT:]
        outputs = (*self.outputs, waiting) if waiting else tuple(self.outputs)
        repeats = 0
        for tool in reversed(self.tools):
            if tool != self.tools[-1]:
                break
            repeats += 1
        return Activity(
            elapsed_s=now - self.started,
            idle_s=now - (self.last_seen if self.last_seen is not None else self.started),
            deadline_s=deadline_s,
            last_activity="printing" if waiting and self.doing in SIGNS else self.doing,
            last_tool=self.tools[-1].split("#")[0] if self.tools else None,
            tools=tuple(self.tools),
            repeats=repeats,
            outputs=outputs,
            snippet="\n".join(outputs)[-200:],
            stop_reason=self.stop_reason,
            error=self.error,
            open_request_s=None if self.request_since is None else now - self.request_since,
            permission_asked=self.permission_asked,
            asked_question=self.asked_question,
            edits=max(self.edits, signs.changed),
            recent_edits=1 if signs.newest > since and signs.changed else 0,
            claimed_done=self.claimed_done,
            process_states=seen.states,
            sockets=seen.sockets,
            cpu_s=seen.cpu_s,
        )


async def what_they_wait_in(activities: Mapping[str, ActivityLog]) -> dict[str, str]:
    """Return what each turn waits in now, in words for people; without those that are not silent or of whom nobody knows.

    The processes of all of them are looked at in one go, in one thread.

    Args:
        activities: The turns, by any name.
    """
    told = {name: one.request for name, one in activities.items() if one.request}
    looks = {
        name: one.processes
        for name, one in activities.items()
        if name not in told and one.processes is not None and one.is_silent
    }

    def look_at_all() -> dict[str, str]:
        seen = {name: processes() for name, processes in looks.items()}
        return {name: words(one.states, one.sockets) for name, one in seen.items()}

    return told | (await trio.to_thread.run_sync(look_at_all) if looks else {})
