"""`state/memory.md`: what a run has learnt so far, on at most 180 lines, the newest and most useful kept.

A view of the recorded rounds like the tables beside it: each round, and each end of the run, gives one entry, and the
page is written from the newest 100. Researcher and planners read it; nothing decides by it. Pure.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sid_daemon.core import stopping
from sid_daemon.core.longterm.ladder import rung_of
from sid_daemon.core.state import Execution, Round, RunState
from sid_daemon.core.wording import bounds, one_line, percent
from sid_daemon.store import views_round as rounds

MEMORY_LINES = 180
"""Lines of the page, at most."""
_TEXT = 160
_FILES = 6
_SHARES = {"wins": 40, "near": 12, "lost": 40, "rejected": 12, "ends": 5}
"""Lines that each list may always have; what one leaves free the losers get."""

Entry = Mapping[str, Any]
Measured = Mapping[str, Any] | None
"""A candidate's `measurement`; None where scores are exact."""


def round_entry(state: RunState, now: Round) -> str:
    """Return what is remembered of a round, one line of JSON.

    Args:
        state: The run before the round was counted.
        now: The round.
    """
    verdict = rounds.won(now)
    winner = verdict.winner if verdict else None
    status, reason = rounds.status_of(state, now)
    before = now.incumbent_score
    rung = rung_of(state.dry_rounds)
    told = {
        "round": now.iteration,
        "status": status,
        "reason": one_line(reason or "", _TEXT),
        "won": [
            _candidate(state, now, one, before, won=True)
            for one in rounds.ranked(now)
            if one.executor == winner
        ],
        "score": verdict.score_after if verdict else None,
        "commit": (now.winner_commit or "")[:12],
        "lost": [
            _candidate(state, now, one, before, won=False)
            for one in rounds.ranked(now)
            if one.executor != winner
        ],
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


def _candidate(
    state: RunState, now: Round, one: Execution, before: float | None, *, won: bool
) -> dict[str, Any]:
    outcome = rounds.outcome_of(now, one)
    measured = outcome.measurement if outcome else None
    return {
        "family": one.plan.approach_family,
        "hypothesis": one_line(one.plan.hypothesis, _TEXT),
        "files": list(dict.fromkeys(one.plan.target_files))[:_FILES],
        "score": one.score,
        "before": before,
        "category": one.failure.category if one.failure else None,
        "what": one_line(one.failure.what, _TEXT) if one.failure else "",
        "gained": one.result == "success" and _leads(state, one, measured, before),
        "evidence": _evidence(measured, won=won),
    }


def _leads(state: RunState, one: Execution, measured: Measured, before: float | None) -> bool:
    """Say whether a candidate was ahead: by its pairs where scores are noisy, else by its score."""
    if measured is not None:
        return float(measured["gain"]) > 0
    return (
        one.score is not None and before is not None and stopping.gain(before, one.score, state.settings) > 0
    )


def _evidence(measured: Measured, *, won: bool) -> str:
    """Return the gain with interval and n where scores are noisy, `~` before what was not proven."""
    if measured is None:
        return ""
    low, high = measured["interval"]
    told = f"{percent(float(measured['gain']))} {bounds((low, high))} n={measured['n']}"
    return told if won else f"~ {told}"


def render_memory(entries: Iterable[str]) -> str:
    """Return the page.

    Args:
        entries: In order, as `round_entry` and `end_entry` gave them; one at a time is held.
    """
    page = _Page()
    for one in entries:
        page.add(json.loads(one))
    return page.text()


class _Lines:
    """The lines of one list, the newest first, as many as the page may have, and how many there were."""

    def __init__(self, heading: str) -> None:
        self.heading = heading
        self.count = 0
        self._newest: deque[str] = deque(maxlen=MEMORY_LINES)

    def add(self, lines: Sequence[str]) -> None:
        """Add what one entry tells, in its order."""
        self.count += len(lines)
        self._newest.extendleft(reversed(lines))

    def section(self, room: int) -> list[str]:
        """Return at most so many of them under their heading, and how many were left out: three lines more at most."""
        if not self.count:
            return []
        left_out = [f"({self.count - room} older ones left out)"] if self.count > room else []
        return ["", self.heading, *islice(self._newest, room), *left_out]


class _Page:
    """What the page tells of the rounds so far."""

    def __init__(self) -> None:
        self._lists = {
            "wins": _Lines("## What won, newest first"),
            "near": _Lines("## What was ahead and was not merged: it may stand again"),
            "lost": _Lines("## What lost, newest first: do not repeat it"),
            "rejected": _Lines("## Plans that were rejected, newest first"),
            "ends": _Lines("## How it stopped, newest first"),
        }
        self._rounds = self._candidates = self._dry = 0
        self._first_round = self._last_win = 0
        self._first: float | None = None
        self._best: float | None = None
        self._apart = ""
        self._tried: Counter[str] = Counter()
        self._scored: Counter[str] = Counter()
        self._won: Counter[str] = Counter()
        self._files_tried: Counter[str] = Counter()
        self._files_won: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()

    def add(self, entry: Entry) -> None:
        """Take an entry in."""
        if "end" in entry:
            self._lists["ends"].add([_end(entry)])
        if "status" not in entry:
            return
        candidates = [*entry["won"], *entry["lost"]]
        self._first_round = self._first_round or entry["round"]
        self._rounds += 1
        if not self._candidates and candidates:
            self._first = candidates[0]["before"]
        self._candidates += len(candidates)
        self._dry += 1
        if entry["won"]:
            self._dry, self._last_win, self._best = 0, entry["round"], entry["score"]
            if entry["won"][0].get("evidence"):  # noisy: the machine may have changed meanwhile
                self._apart = " (measured at different times; the gains below side by side)"
            self._lists["wins"].add([_win(entry)])
        self._lists["near"].add([_loser(entry, lost) for lost in entry["lost"] if lost["gained"]])
        self._lists["lost"].add([_loser(entry, lost) for lost in entry["lost"] if not lost["gained"]])
        self._lists["rejected"].add(
            [f"- round {entry['round']}, {family}: {why}: {plan}" for family, why, plan in entry["rejected"]]
        )
        self._count(entry, candidates)

    def _count(self, entry: Entry, candidates: list[Entry]) -> None:
        for one in candidates:
            self._tried[one["family"]] += 1
            self._scored[one["family"]] += one["score"] is not None
            self._files_tried.update(one["files"])
        for one in entry["won"]:
            self._won[one["family"]] += 1
            self._files_won.update(one["files"])
        self._failures.update(one["category"] for one in entry["lost"] if one["category"])
        self._failures.update(f"force-kill, {reason}" for reason in entry["kills"])
        self._failures["plan rejected"] += len(entry["rejected"])

    def text(self) -> str:
        """Return it."""
        page = [*self._head(), *self._families(), *self._files(), *self._why()]
        taken = sum(3 + min(one.count, _SHARES[name]) for name, one in self._lists.items())
        room = {**_SHARES, "lost": _SHARES["lost"] + MEMORY_LINES - len(page) - taken}
        for name, one in self._lists.items():
            page += one.section(room[name])
        return "\n".join(page) + "\n"

    def _head(self) -> list[str]:
        which = f"The last {self._rounds}" if self._first_round > 1 else str(self._rounds)
        told = f"{which} rounds, {self._lists['wins'].count} won, {self._candidates} candidates"
        lines = ["# What this run has learnt", "", f"{told}; {self._dry} rounds since the last win."]
        if self._last_win and self._first is not None:
            lines.append(
                f"Best score: {self._first!r} at first, {self._best!r} after round {self._last_win}{self._apart}."
            )
        return lines

    def _families(self) -> list[str]:
        order = sorted(self._tried, key=lambda name: (-self._won[name], -self._tried[name], name))
        counts = [
            (name, f"{self._tried[name]} tried, {self._scored[name]} scored, {self._won[name]} won")
            for name in order
        ]
        return _table("## By family", counts, 12)

    def _files(self) -> list[str]:
        order = sorted(
            self._files_tried, key=lambda path: (-self._files_won[path], -self._files_tried[path], path)
        )
        counts = [
            (one_line(path, 80), f"{self._files_tried[path]} tried, {self._files_won[path]} won")
            for path in order
        ]
        return _table("## By file", counts, 10)

    def _why(self) -> list[str]:
        told = [
            (name, f"{count} times" if count > 1 else "once")
            for name, count in self._failures.most_common()
            if count
        ]
        return _table("## Why things failed", told, 10)


def _table(heading: str, counts: list[tuple[str, str]], most: int) -> list[str]:
    return ["", heading, *(f"- {name}: {told}" for name, told in counts[:most])] if counts else []


def _win(entry: Entry) -> str:
    one = entry["won"][0]
    files = ", ".join(one["files"])
    scores = f"{one['before']!r} to {entry['score']!r}{_measured(one)}"
    return one_line(
        f"- round {entry['round']}, {one['family']}: {one['hypothesis']} ({scores}; {files}; {entry['commit']})",
        300,
    )


def _loser(entry: Entry, one: Entry) -> str:
    score = (
        "no score" if one["score"] is None else f"{one['score']!r} against {one['before']!r}{_measured(one)}"
    )
    why = f"; {one['category']}: {one['what']}" if one["what"] else ""
    return one_line(f"- round {entry['round']}, {one['family']}: {one['hypothesis']} ({score}{why})", 300)


def _measured(one: Entry) -> str:
    told = one.get("evidence")  # not in what an earlier version recorded
    return f", {told}" if told else ""


def _end(entry: Entry) -> str:
    return f"- {entry['at'][:16]} after round {entry['round']}: {entry['end']}: {entry['why']}"
