"""Which run a command means: a path, an id, a prefix of one, or nothing said at all.

Pure: the daemon's list of runs and the folder the command stands in are arguments. The rule is the interface's:
an existing path first, then an id, then a prefix of at least 4 characters; left out, the only active run, else
the repository that the command stands in.
"""

from __future__ import annotations

from sid_protocol.errors import NoSuchRun, UsageError
from sid_protocol.ids import topic_slug
from sid_protocol.locations import shell_word

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    Row = Mapping[str, Any]
PREFIX_MIN = 4
ACTIVE = ("running", "paused")


def is_active(row: Row) -> bool:
    """Say whether a run is at work or held."""
    return row["status"] in ACTIVE


def choose(rows: Sequence[Row], *, text: str | None, path: str | None, cwd: str, topic: str | None) -> Row:
    """Return the run that was meant.

    Args:
        rows: All runs that the daemon knows.
        text: RUN as typed, or None.
        path: RUN as an absolute, resolved path if it exists as one, else None.
        cwd: The folder that the command stands in, resolved.
        topic: `--topic`, or None.

    Raises:
        NoSuchRun: no run fits.
        UsageError: several do; the hint lists them.
    """
    wanted = [row for row in rows if topic is None or row["topic"] == topic_slug(topic)]
    place = cwd if text is None else path
    if topic is not None and (others := _of_other_topics(rows, wanted, text, place)):
        there = ", ".join(f"{row['topic']} ({row['run_id']})" for row in others[:5])
        raise NoSuchRun(
            f"no run of the topic {topic_slug(topic)} there", hint=f"topics that there are: {there}"
        )
    if text is None:
        return _unsaid(wanted, cwd)
    if path is not None and (found := of_path(wanted, path)):
        return _only(found, f"{text} has several runs", "--topic T")
    exact = [row for row in wanted if row["run_id"] == text]
    if exact:
        return exact[0]
    if path is None and len(text) < PREFIX_MIN:
        raise NoSuchRun(
            f"no run {text!r}",
            hint=f"a prefix of a run id has at least {PREFIX_MIN} characters{_known(rows)}",
        )
    found = [row for row in wanted if row["run_id"].startswith(text)] if len(text) >= PREFIX_MIN else []
    if found:
        return _only(found, f"{text!r} fits several runs", "more of the id")
    if path is not None:
        raise NoSuchRun(f"no run in {path}", hint=f"set one up: sictl init {shell_word(text)}")
    raise NoSuchRun(f"no run {text!r}", hint=f"'sictl status' lists the runs{_known(rows)}")


def _of_other_topics(
    rows: Sequence[Row], wanted: Sequence[Row], text: str | None, path: str | None
) -> list[Row]:
    """Return the runs that fit but for their topic, if there are only such."""
    if text is None and any(is_active(row) for row in wanted):
        return []

    def fit(among: Sequence[Row]) -> list[Row]:
        named = [row for row in among if text and len(text) >= PREFIX_MIN and row["run_id"].startswith(text)]
        return named or ([] if path is None else of_path(among, path))

    return [] if fit(wanted) else fit(rows)


def _unsaid(rows: Sequence[Row], cwd: str) -> Row:
    active = [row for row in rows if is_active(row)]
    if len(active) == 1:
        return active[0]
    if found := of_path(rows, cwd):
        return _only(found, f"{cwd} has several runs", "--topic T")
    if active:
        return _only(active, "several runs are active", "one of them")
    raise NoSuchRun(
        f"no run is active, and none belongs to {cwd}", hint="name one, or set one up with 'sictl init'"
    )


def of_path(rows: Sequence[Row], path: str, topic: str | None = None) -> list[Row]:
    """Return the runs of the innermost repository that a path lies in, or the run whose root it is.

    Args:
        rows: All runs that the daemon knows.
        path: An absolute path without symbolic links.
        topic: Only runs of this topic; None for any.
    """
    rows = [row for row in rows if topic is None or row["topic"] == topic_slug(topic)]
    inside = [row for row in rows if _within(path, row["repo"]) or path == row["root"]]
    if exact := [row for row in inside if path == row["root"]]:
        return exact
    longest = max((len(row["repo"]) for row in inside), default=0)
    return [row for row in inside if len(row["repo"]) == longest]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _only(rows: Sequence[Row], problem: str, remedy: str) -> Row:
    if len(rows) == 1:
        return rows[0]
    active = [row for row in rows if is_active(row)]
    if len(active) == 1:
        return active[0]
    raise several(rows, problem, remedy)


def several(rows: Sequence[Row], problem: str, remedy: str) -> UsageError:
    """Return the error that lists runs of which one is to be named."""
    listed = ", ".join(f"{row['run_id']} ({row['topic']}, {row['status']})" for row in rows[:5])
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return UsageError(problem, hint=f"say which with {remedy}: {listed}{more}")


def _known(rows: Sequence[Row]) -> str:
    return f": {', '.join(row['run_id'] for row in rows[:5])}" if rows else "; there are none yet"
