"""What researcher and planners are told of the whole run: its memory, and the step of the ladder when it is stuck.

Part of the prompts, called by `prompting`. The memory tells of text that agents and benchmarks wrote, so it is fenced as
data like all of that; the ladder's words are ours.
"""

from __future__ import annotations

from sid_actors.fences import fenced, within
from sid_actors.track import Track

MEMORY_LIMIT = 6000
"""Characters of the memory in a prompt; its page begins with what is of most use."""
READERS = frozenset({"researcher", "planner"})
"""The roles that read it: the others judge or carry out what is before them."""


async def remembrance(role: str, track: Track) -> str:
    """Return the sections for a role's prompt, each ended by a blank line; empty where there is nothing to tell.

    Raises:
        StoreError: the track's memory could not be read.
    """
    if role not in READERS:
        return ""
    told = ""
    if page := await track.memory():
        lines = within(page.strip().splitlines(), MEMORY_LIMIT, "(the rest left out)")
        told += "## What this run has learnt\n\n" + fenced(lines) + "\n\n"
    if track.ladder is not None:
        told += f"## The run is stuck\n\nMany rounds in a row had no winner. This round, look otherwise: {track.ladder}\n\n"
    return told
