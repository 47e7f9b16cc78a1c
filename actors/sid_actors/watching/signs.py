"""Quiet signs of life: CPU time of a turn's processes and changes of files in its worktree. Blocks; for a thread.

The conductor looks for them while an executor's idle clock runs and nothing is heard of it, and once more when
evidence is taken. Bounded, so that a worktree of any size costs no more than `LOOK_LIMIT_S`. The rule that these are
activity is containment's.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

LOOK_LIMIT_S = 0.15
BUSY_SHARE = 0.05
"""Of one core: less than this is a program that waits and polls."""
_NOT_WORK = frozenset((".git", "__pycache__", "node_modules", ".venv"))

Seen = tuple[tuple[str, ...], tuple[str, ...], float]
"""What processes do: their states, their sockets, the CPU seconds they used."""
NOTHING: Seen = ((), (), 0.0)


@dataclass(frozen=True, slots=True)
class Signs:
    """What one look found: CPU seconds used so far, the newest change until then, and how many files are newer than asked."""

    cpu_s: float
    newest: float
    changed: int


def look(cpu_s: float, worktree: str | None, since: float) -> Signs:
    """Look once.

    Args:
        cpu_s: What the processes used so far.
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
    return Signs(cpu_s, newest, changed)
