"""How lessons and force-kills read: a block a lesson, a line a kill. Used by `lessons`; prints nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sid_cli.status_text import Look
from sid_cli.text import clean, duration

Row = dict[str, Any]


def lessons_page(run_id: str, lessons: Sequence[Row], kills: Sequence[Row], look: Look) -> str:
    """Return what a run has learned: in force, ended, and the force-kills of its newest rounds."""
    in_force = [one for one in lessons if one["status"] == "in_force"]
    ended = [one for one in lessons if one["status"] != "in_force"]
    head = look.paint(f"{clean(run_id)}: {_count(len(in_force), 'lesson')} in force", "bold")
    blocks = [head, *(lesson_block(one, look) for one in in_force)]
    if ended:
        told = [
            f"  {clean(one['key'])} {clean(one['status'])} after round {one['ended']}: {clean(one['why'])}"
            for one in ended
        ]
        blocks.append("\n".join([look.paint("no longer in force", "bold"), *told]))
    if kills:
        blocks.append(
            "\n".join([look.paint(_count(len(kills), "force-kill"), "bold"), *map(kill_line, kills)])
        )
    return "\n\n".join(blocks)


def lesson_block(one: Row, look: Look) -> str:
    """Return one lesson: its key, the rule, what it rests on, whether it helps."""
    rests = [f"rounds {', '.join(map(str, one['rounds']))}"] if one["rounds"] else []
    rests += [f"runs {', '.join(map(clean, one['runs']))}"] if one["runs"] else []
    lines = [
        f"{look.paint(clean(one['key']), 'bold')}  since round {one['since']}, told to {', '.join(one['roles'])}",
        f"  {clean(one['rule'])}",
        f"  seen in {' and '.join(rests) or 'no round here'}",
    ]
    if one["told"] or one["held"]:
        lines.append(
            f"  came back in {one['told_again']} of {one['told']} rounds with it, "
            f"in {one['held_again']} of {one['held']} without"
        )
    return "\n".join(lines + [f"    {clean(snippet)}" for snippet in one["snippets"]])


def kill_line(kill: Row) -> str:
    """Return one force-kill in a line."""
    parts = [
        f"  round {kill['iteration']} {clean(kill['agent_id'])} {clean(kill['reason'])}",
        f"{duration(kill['elapsed_s'])} of {duration(kill['deadline_s'])}",
    ]
    if kill.get("last_tool"):
        parts.append(f"last tool {clean(kill['last_tool'])} x{kill['repeats']}")
    if kill.get("snippet"):
        parts.append(clean(kill["snippet"]))
    return "  ".join(parts)


def across_page(tracks: Sequence[Row], look: Look) -> str:
    """Return the lessons in force of all runs, by lesson."""
    runs: dict[str, list[str]] = {}
    rules: dict[str, str] = {}
    for track in tracks:
        for one in track["lessons"]:
            if one["status"] == "in_force":
                runs.setdefault(one["key"], []).append(track["run_id"])
                rules[one["key"]] = one["rule"]
    blocks = [
        f"{look.paint(clean(key), 'bold')}  in {', '.join(map(clean, runs[key]))}\n  {clean(rules[key])}"
        for key in sorted(runs)
    ]
    return "\n".join(blocks) or f"nothing learned yet in {_count(len(tracks), 'run')}"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
