"""The prompts of the set-up agents: the goal clarifier and the benchmark builder.

`compose` writes those of a run. What the user says is the user's own; what a repository holds is read
by the agent through its tools and is data to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

from sid_actors.prompts.fences import TEXT_LIMIT, answer_part, clipped

SetupRole = Literal["goal_clarifier", "benchmark_builder"]
_PAGES = Path(__file__).parent


def setup_prompt(
    role: SetupRole,
    known: Mapping[str, str],
    answers: Sequence[tuple[str, str]],
    schema: Mapping[str, Any],
) -> str:
    """Return the whole prompt of one turn of set-up.

    Args:
        role: Whose.
        known: What the user has said by flags, name → words.
        answers: Questions that were asked, and the user's answers, oldest first.
        schema: JSON Schema of the answer.
    """
    parts = ["## What the user has said"]
    parts += [f"{name}: {clipped(words, 2000)}" for name, words in known.items() if words] or ["Nothing yet."]
    if answers:
        told = "\n\n".join(f"Asked: {question}\nThe user: {answer}" for question, answer in answers)
        parts.append(clipped(told, TEXT_LIMIT))
    page = Template((_PAGES / f"{role}.md").read_text(encoding="utf-8"))
    return page.substitute(known="\n\n".join(parts), answer=answer_part(schema))
