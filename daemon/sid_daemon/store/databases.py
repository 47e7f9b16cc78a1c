"""Databases of runs as files: copied whole, or looked into from outside; and what SQLite's errors mean to a user.

Used by `journal`, which is what writes them, by whoever brings a copy back, and by the process that draws charts. Blocking.
"""

from __future__ import annotations

import json
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sid_protocol.errors import StoreError

_SURROUNDINGS = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""Errors of disk, memory and permissions; whatever else SQLite reports, the file is not what it was."""


def copy_database(source: Path | sqlite3.Connection, target: Path, *, unshown: bool = False) -> None:
    """Copy a database consistently, open or not; what lay at the target is replaced at once or not at all.

    Args:
        source: The database, or its file.
        target: Where the copy goes.
        unshown: It goes into a root that has lost its files: the copy knows of no view that is written.

    Raises:
        StoreError: the source cannot be read or the copy not be written.
    """
    beside = target.with_name(f".{target.name}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)
        opened = sqlite3.connect(source) if isinstance(source, Path) else source
        try:
            with closing(sqlite3.connect(beside)) as copy:
                opened.backup(copy)
                if unshown and copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'marks'").fetchone():
                    copy.execute("UPDATE marks SET seq = 0 WHERE name = 'shown'")
                    copy.commit()
                # A copy is one file: nothing of it waits in a second one that somebody might forget.
                copy.execute("PRAGMA journal_mode=DELETE")
        finally:
            if isinstance(source, Path):
                opened.close()
        beside.replace(target)
    except (sqlite3.Error, OSError) as error:
        beside.unlink(missing_ok=True)
        raise fault(target, error) from error


def fault(
    path: Path, error: Exception, *, damaged: str = "'sictl start' then offers the copy kept by the daemon"
) -> StoreError:
    """Return what a user is told of an error with a database.

    Args:
        path: Its file.
        error: Of SQLite or the system.
        damaged: What helps once a damaged one is moved away.
    """
    if isinstance(error, sqlite3.IntegrityError):  # events are numbered by the one daemon that writes them
        return StoreError(
            f"{path}: another daemon goes on with this run",
            hint="end that one ('sictl daemon shutdown' with its SID_SOCKET), then start again",
        )
    if not isinstance(error, OSError) and getattr(error, "sqlite_errorcode", 0) & 0xFF not in _SURROUNDINGS:
        return StoreError(
            f"{path} is damaged: {str(error)[:120]}",
            hint=f"move it away; {damaged}",
        )
    hint = "free some space or fix the permissions, then start again"
    if (
        resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    ):  # SQLite says no more than "I/O error"
        hint = "free some space, fix the permissions, or let the daemon write larger files (ulimit -f), then start again"
    return StoreError(f"{path}: {error}", hint=hint)


def read_entries(path: Path, file: str) -> Iterator[str]:
    """Yield every entry of a list-like view from a database that another process may be writing, in order.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            for row in db.execute("SELECT body FROM entries WHERE file = ? ORDER BY ord", (file,)):
                yield str(row[0])
    except sqlite3.Error as error:
        raise fault(path, error) from error


def first_commit(path: Path) -> str | None:
    """Return the commit that the run in a database began with, without changing the file; None if unreadable."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            row = db.execute(
                "SELECT body FROM events WHERE kind = 'run_created' ORDER BY seq LIMIT 1"
            ).fetchone()
        return str(json.loads(row[0])["baseline_commit"]) if row else None
    except (sqlite3.Error, ValueError, KeyError):
        return None
