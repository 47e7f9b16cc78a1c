"""A run's one truth: its events, snapshots and documents in one SQLite file (`state/run.db`).

WAL, `synchronous=FULL`, one transaction a batch: what `append` returned from is durable. Documents are the
contract files as of the last event, kept in the same transaction, so that the files in the root can be
written again at any time. Blocking; `Journal` is used from one worker thread at a time (see `threads`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sid_protocol.errors import StoreError

SCHEMA = (
    """
    CREATE TABLE events (seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
    CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE TABLE documents (path TEXT PRIMARY KEY, body TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE entries (file TEXT NOT NULL, ord INTEGER NOT NULL, body TEXT NOT NULL,
                          PRIMARY KEY (file, ord)) WITHOUT ROWID;
    """,
)
"""Migrations: entry i brings `user_version` i to i + 1; entries are never changed once released."""
SNAPSHOTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction adds.

    Attributes:
        events: `(at, kind, JSON)` in order.
        documents: Path in the root → whole new text.
        entries: `(file, JSON or line)` appended to a list-like view.
        snapshot: `(version, JSON)` of the state after the last event, or None.
    """

    events: tuple[tuple[str, str, str], ...]
    documents: dict[str, str]
    entries: tuple[tuple[str, str], ...] = ()
    snapshot: tuple[int, str] | None = None


class Journal:
    """One open run database.

    Args:
        path: `state/run.db` of a root; made if missing.

    Raises:
        StoreError: the file is no database of ours, is damaged, or is of a newer schema.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._migrate()
            self.seq = int(self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])
        except (sqlite3.Error, OSError) as error:
            raise _fault(path, error) from error

    def _migrate(self) -> None:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(SCHEMA):
            raise StoreError(
                f"{self.path} was written by a newer sid (schema {version}, this one knows {len(SCHEMA)})",
                hint="use that sid, or move the file away",
            )
        for number in range(version, len(SCHEMA)):
            self._db.executescript(
                f"BEGIN IMMEDIATE;{SCHEMA[number]};PRAGMA user_version={number + 1};COMMIT;"
            )

    def append(self, batch: Batch) -> int:
        """Add a batch durably; returns the number of its last event.

        Raises:
            StoreError: nothing of the batch was added.
        """
        db, seq = self._db, self.seq
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                for at, kind, body in batch.events:
                    seq += 1
                    db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (seq, at, kind, body))
                for path, body in batch.documents.items():
                    db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (path, body, seq))
                for file, body in batch.entries:
                    db.execute(
                        "INSERT INTO entries SELECT ?, coalesce(max(ord), 0) + 1, ? FROM entries WHERE file = ?",
                        (file, body, file),
                    )
                if batch.snapshot is not None:
                    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (seq, *batch.snapshot))
                    db.execute(
                        "DELETE FROM snapshots WHERE seq NOT IN"
                        " (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                        (SNAPSHOTS_KEPT,),
                    )
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _fault(self.path, error) from error
        self.seq = seq
        return seq

    def newest_snapshot(self, version: int) -> tuple[int, str] | None:
        """Return `(seq, JSON)` of the newest snapshot of this version, or None."""
        row = self._one("SELECT seq, body FROM snapshots WHERE version = ? ORDER BY seq DESC", (version,))
        return (int(str(row[0])), str(row[1])) if row else None

    def events_after(self, seq: int) -> list[tuple[int, str]]:
        """Return `(seq, JSON)` of all events after one, in order."""
        return [
            (int(str(row[0])), str(row[1]))
            for row in self._all("SELECT seq, body FROM events WHERE seq > ? ORDER BY seq", (seq,))
        ]

    def events_of_kind(self, kind: str, like: str = "%") -> list[str]:
        """Return the JSON of all events of a kind whose text matches an SQL pattern, in order."""
        return [
            str(row[0])
            for row in self._all(
                "SELECT body FROM events WHERE kind = ? AND body LIKE ? ORDER BY seq", (kind, like)
            )
        ]

    def document(self, path: str) -> str | None:
        """Return one document's text, or None."""
        row = self._one("SELECT body FROM documents WHERE path = ?", (path,))
        return str(row[0]) if row else None

    def documents(self, prefix: str = "") -> list[tuple[str, str]]:
        """Return `(path, text)` of all documents whose path begins with `prefix`, by path."""
        return [
            (str(row[0]), str(row[1]))
            for row in self._all(
                "SELECT path, body FROM documents WHERE path >= ? AND path < ? ORDER BY path",
                (prefix, prefix + "\U0010ffff"),
            )
        ]

    def entries(self, file: str) -> list[str]:
        """Return the entries of a list-like view, in order."""
        return [
            str(row[0]) for row in self._all("SELECT body FROM entries WHERE file = ? ORDER BY ord", (file,))
        ]

    def entry_files(self) -> list[str]:
        """Return the list-like views that have entries."""
        return [str(row[0]) for row in self._all("SELECT DISTINCT file FROM entries ORDER BY file", ())]

    def copy_to(self, path: Path) -> None:
        """Copy the whole database, consistently, while it is in use.

        Raises:
            StoreError: the copy could not be written; an older copy is left as it was.
        """
        beside = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.unlink(missing_ok=True)
            with closing(sqlite3.connect(beside)) as target:
                self._db.backup(target)
            beside.replace(path)
        except (sqlite3.Error, OSError) as error:
            beside.unlink(missing_ok=True)
            raise _fault(path, error) from error

    def close(self) -> None:
        """Close the database; its write-ahead log is folded in."""
        self._db.close()

    def _one(self, sql: str, values: Iterable[object]) -> tuple[object, ...] | None:
        return next(self._all(sql, values), None)

    def _all(self, sql: str, values: Iterable[object]) -> Iterator[tuple[object, ...]]:
        try:
            yield from self._db.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise _fault(self.path, error) from error


def _fault(path: Path, error: Exception) -> StoreError:
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
        return StoreError(
            f"{path} is damaged: {error}",
            hint="move it away; 'sictl start' then offers the copy kept by the daemon",
        )
    return StoreError(f"{path}: {error}", hint="free some space or mend the permissions, then start again")
