"""`state/memory.md`: what a run has learnt so far, on at most 180 lines, the newest and most useful kept.

A view of the recorded rounds like the tables beside it: each round, and each end of the run, gives one entry, and the
page is written from the newest 100. Researcher and planners read it; nothing decides by it. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sid_daemon.core import stopping
from sid_daemon.core.ladder import rung_of
from sid_daemon.core.state import Execution, Round, RunState
from sid_daemon.core.wording import one_line
from sid_daemon.store import views_round as rounds

MEMORY_LINES = 180
"""Lines of the page, at most."""
_TEXT = 160
_FILES = 6
_SHARES = {"wins": 40, "near": 12, "lost": 40, "rejected": 12, "ends": 5}
"""Lines that each list may always have; what one leaves free the losers get."""

Entry = Mapping[str, Any]


def round_entry(state: RunState, now: Round) -> str:
    """Return what is remembered of a round, one line of JSON.

    Args:
        state: The run before the round was counted.
        now: The round.
    """
    verdict = rounds.won(now)
    winner = verdict.winner if verdict else None
    status, reason = rounds.status_of(state, now)
    before = verdict.score_before if verdict else now.baseline_score
    rung = rung_of(state.dry_rounds)
    told = {
        "round": now.iteration,
        "status": status,
        "reason": one_line(reason or "", _TEXT),
        "won": [_candidate(state, one, before) for one in rounds.ranked(now) if one.executor == winner],
        "score": verdict.score_after if verdict else None,
        "commit": (now.winner_commit or "")[:12],
        "lost": [_candidate(state, one, before) for one in rounds.ranked(now) if one.executor != winner],
        "rejected": [
            [one.approach_family, one_line(one.rejection_reason, _TEXT), one_line(one.hypothesis, _TEXT)]
            for one in now.rejected
        ],
        "kills": [kill.reason for kill in now.kills],
        "ladder": rung.name if rung else None,
    }
    return json.dumps(told, ensure_ascii=False, allow_nan=False)


def end_entry(state: RunState, at: str) -> str:
    """Return what is remembered of an end of the run."""
    told = {
        "end": state.status,
        "why": one_line(state.reason or "", _TEXT),
        "at": at,
        "round": state.completed,
    }
    return json.dumps(told, ensure_ascii=False, allow_nan=False)


def _candidate(state: RunState, one: Execution, before: float | None) -> dict[str, Any]:
    gained = (
        one.result == "success"
        and one.score is not None
        and before is not None
        and stopping.gain(before, one.score, state.settings) > 0
    )
    return {
        "family": one.plan.approach_family,
        "hypothesis": one_line(one.plan.hypothesis, _TEXT),
        "files": list(dict.fromkeys(one.plan.target_files))[:_FILES],
        "score": one.score,
        "before": before,
        "category": one.failure.category if one.failure else None,
        "what": one_line(one.failure.what, _TEXT) if one.failure else "",
        "gained": gained,
    }


def render_memory(entries: Iterable[str]) -> str:
    """Return the page.

    Args:
        entries: In order, as `round_entry` and `end_entry` gave them.
    """
    known: list[Entry] = [json.loads(one) for one in entries]
    past = [one for one in known if "status" in one]
    ends = [one for one in known if "end" in one]
    newest = past[::-1]
    head = [*_head(past), *_families(past), *_files(past), *_failures(past)]
    lists = {
        "wins": ("## What won, newest first", [_win(one) for one in newest if one["won"]]),
        "near": (
            "## What gained and was not merged: it may stand again",
            [_loser(one, lost) for one in newest for lost in one["lost"] if lost["gained"]],
        ),
        "lost": (
            "## What lost, newest first: do not repeat it",
            [_loser(one, lost) for one in newest for lost in one["lost"] if not lost["gained"]],
        ),
        "rejected": (
            "## Plans that were rejected, newest first",
            [
                f"- round {one['round']}, {family}: {why}: {plan}"
                for one in newest
                for family, why, plan in one["rejected"]
            ],
        ),
        "ends": ("## How it stopped, newest first", [_end(one) for one in ends[::-1]]),
    }
    taken = sum(3 + min(len(items), _SHARES[name]) for name, (_, items) in lists.items())  # 3: see _section
    room = {**_SHARES, "lost": _SHARES["lost"] + MEMORY_LINES - len(head) - taken}
    for name, (heading, items) in lists.items():
        head += _section(heading, items, room[name])
    return "\n".join(head) + "\n"


def _section(heading: str, items: list[str], room: int) -> list[str]:
    if not items:
        return []
    left_out = [f"({len(items) - room} older ones left out)"] if len(items) > room else []
    return ["", heading, *items[:room], *left_out]


def _head(past: list[Entry]) -> list[str]:
    wins = [one for one in past if one["won"]]
    which = f"The last {len(past)}" if past and past[0]["round"] > 1 else str(len(past))
    told = f"{which} rounds, {len(wins)} won, {sum(len(one['won']) + len(one['lost']) for one in past)} candidates"
    since = next((number for number, one in enumerate(past[::-1]) if one["won"]), len(past))
    lines = ["# What this run has learnt", "", f"{told}; {since} rounds since the last win."]
    first = next((one["before"] for entry in past for one in (*entry["won"], *entry["lost"])), None)
    if wins and first is not None:
        lines.append(
            f"Best score: {first!r} at first, {wins[-1]['score']!r} after round {wins[-1]['round']}."
        )
    return lines


def _table(heading: str, counts: list[tuple[str, str]], most: int) -> list[str]:
    return ["", heading, *(f"- {name}: {told}" for name, told in counts[:most])] if counts else []


def _families(past: list[Entry]) -> list[str]:
    tried: Counter[str] = Counter()
    won: Counter[str] = Counter()
    scored: Counter[str] = Counter()
    for entry in past:
        for one in (*entry["won"], *entry["lost"]):
            tried[one["family"]] += 1
            scored[one["family"]] += one["score"] is not None
        won.update(one["family"] for one in entry["won"])
    counts = [
        (name, f"{count} tried, {scored[name]} scored, {won[name]} won")
        for name, count in sorted(tried.items(), key=lambda item: (-won[item[0]], -item[1], item[0]))
    ]
    return _table("## By family", counts, 12)


def _files(past: list[Entry]) -> list[str]:
    won: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for entry in past:
        won.update(path for one in entry["won"] for path in one["files"])
        tried.update(path for one in (*entry["won"], *entry["lost"]) for path in one["files"])
    order = sorted(tried, key=lambda path: (-won[path], -tried[path], path))
    counts = [(one_line(path, 80), f"{tried[path]} tried, {won[path]} won") for path in order]
    return _table("## By file", counts, 10)


def _failures(past: list[Entry]) -> list[str]:
    counts: Counter[str] = Counter()
    for entry in past:
        counts.update(one["category"] for one in entry["lost"] if one["category"])
        counts.update(f"force-kill, {reason}" for reason in entry["kills"])
        counts["plan rejected"] += len(entry["rejected"])
    told = [
        (name, f"{count} times" if count > 1 else "once") for name, count in counts.most_common() if count
    ]
    return _table("## Why things failed", told, 10)


def _win(entry: Entry) -> str:
    one = entry["won"][0]
    files = ", ".join(one["files"])
    return one_line(
        f"- round {entry['round']}, {one['family']}: {one['hypothesis']} ({one['before']!r} to {entry['score']!r}; "
        f"{files}; {entry['commit']})",
        300,
    )


def _loser(entry: Entry, one: Entry) -> str:
    score = "no score" if one["score"] is None else f"{one['score']!r} against {one['before']!r}"
    why = f"; {one['category']}: {one['what']}" if one["what"] else ""
    return one_line(f"- round {entry['round']}, {one['family']}: {one['hypothesis']} ({score}{why})", 300)


def _end(entry: Entry) -> str:
    return f"- {entry['at'][:16]} after round {entry['round']}: {entry['end']}: {entry['why']}"
