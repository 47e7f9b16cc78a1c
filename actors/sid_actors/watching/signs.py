"""Quiet signs of life: CPU time of a turn's processes and changes of files in its worktree. Blocks; for a thread.

The conductor looks for them while an executor's idle clock runs and nothing is heard of it, and once more when
evidence is taken. Bounded, so that a worktree of any size costs no more than `LOOK_LIMIT_S`. The rule that these are
activity is containment's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

LOOK_LIMIT_S = 0.15
BUSY_SHARE = 0.05
"""Of one core: less than this is a program that waits and polls."""
SHORTEST_S = 1.0
"""A look after less than this asks for as much CPU time as one after it: a start or an end is no work."""
_NOT_WORK = frozenset((".git", "__pycache__", "node_modules", ".venv"))


@dataclass(frozen=True, slots=True)
class Seen:
    """What processes do.

    Attributes:
        states: Of each `pid state channel command`, oldest first.
        sockets: Of each open internet socket `STATE address:port`.
        cpu_s: The CPU seconds they used so far, with those of children that ended.
        ready_s: How long each thread, by id, stood ready so far and had no processor, in seconds.
        any_ready_s: How long any of them did, ended ones too; 0 where that is not known.
    """

    states: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    cpu_s: float = 0.0
    ready_s: Mapping[int, float] = field(default_factory=dict)
    any_ready_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Signs:
    """What one look found.

    Attributes:
        cpu_s: As in `Seen`.
        newest: When a file was changed last until then; Unix, seconds.
        changed: How many files are newer than asked.
        ready_s: As in `Seen`.
        any_ready_s: As in `Seen`.
    """

    cpu_s: float = 0.0
    newest: float = 0.0
    changed: int = 0
    ready_s: Mapping[int, float] = field(default_factory=dict)
    any_ready_s: float = 0.0


def at_work(before: Signs, now: Signs, passed_s: float) -> str | None:
    """Say what the CPU time between two looks shows: "working", "waiting for a processor", or nothing.

    Who computes on a machine whose processors are taken gets as little as one who polls on an idle machine. What
    tells them apart is the rest of the time: the one stands ready, the other does not want a processor. So CPU time
    is held against the time in which nobody kept it waiting, which is all of it on an idle machine.

    Args:
        before: The earlier look.
        now: The later one.
        passed_s: Between them.
    """
    used = now.cpu_s - before.cpu_s
    wanted = BUSY_SHARE * max(passed_s, SHORTEST_S)
    if used > wanted:
        return "working"
    # Of several threads the one that waited longest: they may all have waited for the same moment. Short commands
    # take what they waited along when they end; of those the whole job knows, where the kernel keeps its account.
    kept = max(
        now.any_ready_s - before.any_ready_s,
        *(total - before.ready_s.get(thread, 0.0) for thread, total in now.ready_s.items()),
        0.0,
    )
    free = 1 - kept / passed_s if passed_s else 1.0
    return "waiting for a processor" if used > wanted * free else None


def look(seen: Seen, worktree: str | None, since: float) -> Signs:
    """Look once.

    Args:
        seen: What the processes do.
        worktree: The folder, or None.
        since: Changes after this time (Unix, seconds) are counted.
    """
    newest, changed = 0.0, 0
    # A time to come was set by hand, or before the clock was put back: it would hide every change until it is past.
    now = time.time()
    give_up_at = time.monotonic() + LOOK_LIMIT_S
    pending = [worktree] if worktree else []
    while pending and time.monotonic() < give_up_at:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.name in _NOT_WORK:
                        continue
                    at = entry.stat(follow_symlinks=False).st_mtime
                    if at <= now:
                        newest = max(newest, at)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif at > since:
                        changed += 1
        except OSError:
            continue  # gone meanwhile, or closed to us: no sign either way
    return Signs(seen.cpu_s, newest, changed, seen.ready_s, seen.any_ready_s)
