"""`goal.md`, `harness.md` and `idea.md` as text: made from flags, read back. Pure.

The headings are those that other self-improve tools read and write, so a track of theirs is understood here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FAMILY_NAME = r"[A-Za-z0-9_-]+"
"""What an approach family may be called."""
HARNESS_RULES = """# Harness

## H001 One hypothesis

Each plan holds exactly one testable hypothesis.

## H002 No family streak

No plan of an approach family that won both of the last two rounds.

## H003 Diversity within a round

No two plans of a round share an approach family.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is to be reached.

    Attributes:
        objective: One sentence.
        metric: Name of the target metric.
        target: Its target value, or None for "as far as it goes".
        direction: `higher_is_better` or `lower_is_better`.
        scope: What may be changed; empty is everything.
        out_of_scope: What may not.
    """

    objective: str
    metric: str = "primary"
    target: float | None = None
    direction: str = "higher_is_better"
    scope: tuple[str, ...] = ()
    out_of_scope: tuple[str, ...] = ()


def render_goal(goal: Goal) -> str:
    """Return the text of `goal.md`."""
    inside = "\n".join(f"- `{pattern}`" for pattern in goal.scope) or "- everything that is not sealed"
    outside = "\n".join(f"- `{pattern}`" for pattern in goal.out_of_scope) or "- sealed files"
    target = "as far as it goes" if goal.target is None else repr(goal.target)
    return (
        f"# Goal\n\n## Objective\n\n{goal.objective.strip()}\n\n"
        f"## Target Metric\n\n- Name: {goal.metric}\n- Value: {target}\n- Direction: {goal.direction}\n\n"
        f"## Scope\n\n### In\n\n{inside}\n\n### Out\n\n{outside}\n\n"
        "## Experiment Ideas\n\nAdd ideas with `sictl idea TEXT`.\n"
    )


def read_objective(text: str) -> str:
    """Return the objective that a `goal.md` states, or an empty text."""
    match = re.search(r"(?ims)^#{1,3}\s*objective\s*$\n(.*?)(?=^#{1,3}\s|\Z)", text)
    return " ".join(match.group(1).split()) if match else ""


def render_harness(rules: tuple[str, ...], families: tuple[tuple[str, str], ...]) -> str:
    """Return the text of `harness.md`.

    Args:
        rules: The user's rules.
        families: `(name, description)` of custom approach families.
    """
    text = HARNESS_RULES
    if rules:
        text += "\n## Custom Rules\n\n" + "\n".join(f"- {' '.join(rule.split())}" for rule in rules) + "\n"
    if families:
        lines = "\n".join(f"- `{name}`: {about}" for name, about in families)
        text += f"\n## Custom Approach Families\n\n{lines}\n"
    return text


def _section(text: str, title: str) -> str:
    match = re.search(rf"(?ims)^#{{1,4}}\s*{title}\s*$\n(.*?)(?=^#{{1,4}}\s|\Z)", text)
    return match.group(1) if match else ""


def read_rules(text: str) -> tuple[str, ...]:
    """Return the user's own rules of a `harness.md`."""
    return tuple(
        match.group(1).strip()
        for match in re.finditer(r"(?m)^\s*[-*]\s+(.+)$", _section(text, "custom rules"))
    )


def read_families(text: str) -> tuple[tuple[str, str], ...]:
    """Return `(name, description)` of the custom approach families of a `harness.md`."""
    found = re.finditer(
        rf"(?m)^\s*[-*]\s+`({FAMILY_NAME})`\s*:?\s*(.*)$", _section(text, "custom approach families")
    )
    return tuple((match.group(1), match.group(2).strip()) for match in found)


def read_ideas(text: str) -> tuple[str, ...]:
    """Return the ideas of an `idea.md`: paragraphs or list items, without headings and comments."""
    plain = re.sub(r"(?s)<!--.*?-->", "", text)
    lines = [line for line in plain.splitlines() if not re.match(r"^#{1,6}\s", line)]
    blocks = re.split(r"\n\s*\n|\n(?=\s*[-*]\s)", "\n".join(lines))
    ideas = (re.sub(r"^[-*]\s+", "", block.strip()) for block in blocks)
    return tuple(idea for idea in ideas if idea)


def render_ideas(ideas: tuple[str, ...]) -> str:
    """Return the text of an `idea.md` that holds these ideas."""
    return "".join(f"- {idea.strip()}\n" for idea in ideas)
