"""What `status` and the live block print: the daemon, a run, its actors.

Pure: rows of `run.list` and `run.status`, rounds of `run.history` and log records in, text out. Standard library
alone, because `status` prints it before click is imported. Shows nothing that the daemon does not tell.
"""

from __future__ import annotations

from sid_cli.cost_text import cost_parts, forecast_text, roles_table
from sid_cli.log_text import log_line
from sid_cli.runs import is_active
from sid_cli.text import (
    clean,
    clock,
    duration,
    gain_percent,
    number,
    percent,
    shorten_painted,
    sparkline,
    table,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sid_cli.color import Marks, Paint

    Row = Mapping[str, Any]
_STEPS = ("research", "planning", "critic_review", "execution", "tournament", "recording")
_STEP_WORDS = ("research", "plan", "review", "execute", "tournament", "record")
_GOOD = ("target_reached", "plateau", "max_iterations")
_BAD = ("failed", "blocked", "circuit_breaker", "budget")
_BAD_MOST = 5
_LAST_ROUNDS = 5
_ETA_ROUNDS_MIN = 3


class Look:
    """How text may look where it goes.

    Args:
        paint: Colour of the stream.
        marks: Signs of the stream.
        width: Its columns; None cuts nothing.
    """

    __slots__ = ("marks", "paint", "width")

    def __init__(self, *, paint: Paint, marks: Marks, width: int | None) -> None:
        self.paint = paint
        self.marks = marks
        self.width = width


def status_word(status: str, look: Look) -> str:
    """Return a run's status in words, coloured by what it means for the user."""
    word = clean(status).replace("_", " ")
    if status in _GOOD:
        return look.paint(word, "green")
    if status in _BAD:
        return look.paint(word, "red", "bold")
    return look.paint(word, "cyan" if status == "running" else "yellow")


def overview(info: Row, rows: Sequence[Row], look: Look) -> str:
    """Return the daemon in one line and its runs as a table; what needs the user comes first."""
    dot = f" {look.marks.dot} "
    active = sum(is_active(row) for row in rows)
    head = dot.join(
        (
            f"sid {clean(info['version'])}",
            f"pid {info['pid']}",
            f"up {duration(info['uptime_s'])}",
            f"{active} of {len(rows)} runs active" if rows else "no runs yet: 'sictl init' sets one up",
        )
    )
    bad = [row for row in rows if row.get("reason") and row["status"] in _BAD]
    lines = [_needs_user(row, look) for row in bad[-_BAD_MOST:]]
    if earlier := len(bad) - len(lines):
        told = f"! {earlier} earlier {'run' if earlier == 1 else 'runs'} too: 'sictl status RUN' says why"
        lines.insert(0, look.paint(told, "red", "bold"))
    lines.append(head)
    if rows:
        body = [
            (
                clean(row["run_id"]),
                clean(row["status"]).replace("_", " "),
                _round(row),
                number(row["best_score"]),
                percent(gain_percent(row)),
                clean(row["topic"]),
                clean(row["repo"]),
            )
            for row in rows
        ]
        headers = ("RUN", "STATUS", ">ROUND", ">BEST", ">GAIN", "TOPIC", "REPOSITORY")
        lines.append(table(headers, body, width=look.width, flexible=6))
    return "\n".join(lines)


def _needs_user(row: Row, look: Look) -> str:
    told = f"! {clean(row['run_id'])} {clean(row['status']).replace('_', ' ')}: {clean(row['reason'])}"
    return look.paint(told, "red", "bold")


def _round(row: Row) -> str:
    return f"{row['iteration']}/{row['max_iterations']}"


def detail(row: Row, rounds: Sequence[Row], records: Sequence[Row], look: Look) -> str:
    """Return one run: where it stands, its actors, its last events."""
    blocks = [headline(row, rounds, look), actors(row, look)]
    if cost := roles_table(row["budget"].get("roles", ()), width=look.width):
        blocks.append("\n".join(f" {line}" for line in cost.split("\n")))
    if records:
        blocks.append("\n".join(" " + log_line(record, look.paint) for record in records))
    rule = look.marks.rule * min(look.width or 100, 100)
    return f"\n{look.paint(rule, 'dim')}\n".join(block for block in blocks if block)


def headline(row: Row, rounds: Sequence[Row], look: Look) -> str:
    """Return the first block: what, how long, how far, how good, at what cost."""
    dot = f" {look.marks.dot} "
    spent_s = row["budget"]["wall_s"]["spent"]
    status = status_word(row["status"], look)
    first = [
        look.paint(f"sid  {_name(row)}{dot}improve/{clean(row.get('goal_slug') or '?')}", "bold"),
        f"{status} {duration(spent_s)}" if is_active(row) and spent_s is not None else status,
        f"round {_round(row)}",
    ]
    if (left := remaining(row, rounds)) is not None:
        first.append(f"ETA {left}")
    lines = [_spread(first), _spread(_score_parts(row, rounds, look)), _spread(_cost_parts(row, look))]
    if is_active(row) and (told := forecast_text(row["budget"])):
        lines.append(told)
    if row.get("reason"):
        lines.insert(0, _needs_user(row, look) if row["status"] in _BAD else f"! {clean(row['reason'])}")
    lines += [f"note: {clean(note)}" for note in row.get("notes", ())]
    return "\n".join(f" {line}" for line in lines)


def _name(row: Row) -> str:
    name = clean(row["repo"].rstrip("/").rpartition("/")[2])
    return name if row["topic"] == "default" else f"{name}/{clean(row['topic'])}"


def _spread(parts: Sequence[str]) -> str:
    return "   ".join(part for part in parts if part)


def _score_parts(row: Row, rounds: Sequence[Row], look: Look) -> list[str]:
    best, baseline, counters = row["best_score"], row["baseline"], row["counters"]
    parts = [
        f"best {look.paint(_with_interval(best, row['interval'], look), 'bold')} {clean(row.get('metric', ''))}"
    ]
    if baseline is not None:
        parts.append(f"(gain {percent(gain_percent(row))} since {number(baseline)})")
    if row.get("target") is not None:
        parts.append(f"target {number(row['target'])}")
    parts.append(sparkline(best_so_far(row, rounds)[-20:], utf8=look.marks.utf8))
    parts.append(f"plateau {counters['plateau']}/{counters['plateau_window']}")
    parts.append(f"breaker {counters['circuit_breaker']}/{counters['circuit_breaker_threshold']}")
    if counters["blocked"]:
        parts.append(f"blocked {counters['blocked']}/{counters['blocked_limit']}")
    return parts


def _with_interval(score: float | None, interval: Sequence[float | None] | None, look: Look) -> str:
    if score is None or interval is None:
        return number(score)
    low, high = interval
    if low is None or high is None:
        return f"{number(score)} [{number(low)}, {number(high)}]"
    return f"{number(score)} {look.marks.plus_minus} {number((high - low) / 2, 2)}"


def _cost_parts(row: Row, look: Look) -> list[str]:
    sandbox = f"sandbox {clean(row['sandbox'])}" if row.get("sandbox") else ""
    return [*cost_parts(row["budget"], look.marks.dot), sandbox]


def best_so_far(row: Row, rounds: Sequence[Row]) -> list[float]:
    """Return the best score after the baseline and each round, as far as they are known."""
    values = [row["baseline"]] if row["baseline"] is not None else []
    for entry in rounds:
        score = entry["score"] if entry["status"] == "merged" else entry["baseline_score"]
        if score is not None:
            values.append(score)
    return values


def remaining(row: Row, rounds: Sequence[Row]) -> str | None:
    """Return how long the rounds left may take, as a range of the last ones' quartiles; None before round 3.

    An open-ended run ends earlier as often as not: the figure is for the rounds it may still use.
    """
    lengths = sorted(
        entry["duration_s"] for entry in rounds[-_LAST_ROUNDS:] if entry["duration_s"] is not None
    )
    left = row["max_iterations"] - len(rounds)
    if not is_active(row) or len(rounds) < _ETA_ROUNDS_MIN or not lengths or left <= 0:
        return None
    last = len(lengths) - 1
    low, middle, high = (lengths[round(last * share)] * left for share in (0.25, 0.5, 0.75))
    return f"about {duration(middle)} ({duration(low)} to {duration(high)})"


def actors(row: Row, look: Look) -> str:
    """Return the steps of the round and a line an actor."""
    if not row["actors"] and row["current_step"] is None:
        return ""
    lines = [_steps(row, look)]
    if row["actors"]:
        body = [
            (
                clean(actor["id"]),
                clean(actor["doing"]) or clean(actor["state"]),
                clock(actor["idle_s"]),
                clock(actor["left_s"]),
                clean(actor["family"] or "-"),
                number(actor["score"]),
            )
            for actor in row["actors"]
        ]
        headers = ("ACTOR", "DOING", ">IDLE", ">LEFT", "FAMILY", ">SCORE")
        room = None if look.width is None else max(60, look.width - 1)
        lines.append(table(headers, body, width=room, flexible=1))
    return "\n".join(f" {line}" for line in "\n".join(lines).split("\n"))


def _steps(row: Row, look: Look) -> str:
    step = row["current_step"]
    at = _STEPS.index(step) if step in _STEPS else len(_STEPS) if step else -1
    parts = []
    for index, word in enumerate(_STEP_WORDS):
        if index < at:
            parts.append(f"{word} {look.marks.yes}")
        elif index == at:
            parts.append(look.paint(f"{look.marks.now} {word.upper()}", "cyan"))
        else:
            parts.append(f"{word} {look.marks.dot}")
    return "   ".join(parts)


def fitted(text: str, look: Look) -> str:
    """Cut lines that are longer than the terminal is wide; what is coloured above the first rule, and what is amiss, is not."""
    if look.width is None:
        return text
    shown, below = [], False
    for line in text.split("\n"):
        below = below or look.marks.rule * 20 in line
        kept = line.startswith(" ! ") or (not below and "\x1b" in line)
        shown.append(line if kept else shorten_painted(line, look.width))
    return "\n".join(shown)


def one_line(row: Row) -> str:
    """Return a run for a shell prompt, such as `sid r7/50 exec 2/3 +11.2%`; empty if it is not active."""
    if not is_active(row):
        return ""
    executors = [actor for actor in row["actors"] if actor["role"] == "executor"]
    working = sum(actor["state"] in ("working", "benchmark") for actor in executors)
    gained = gain_percent(row)
    parts = [
        "sid",
        f"r{_round(row)}",
        f"exec {working}/{len(executors)}" if executors else clean(row["current_step"] or ""),
    ]
    if gained is not None:
        parts.append(f"{gained:+.1f}%")
    return " ".join(part for part in parts if part)
