"""A run's one truth: its events, snapshots and documents in one SQLite file (`state/run.db`).

WAL, `synchronous=FULL`, one transaction a batch: what `append` returned from is durable. Documents are the
contract files as of the last event, kept in the same transaction, so that the files in the root can be
written again at any time. Blocking; `Journal` is used from one worker thread at a time (see `threads`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sid_daemon.store.databases import copy_database, fault
from sid_daemon.store.documents import LISTS, NEWEST
from sid_protocol.errors import StoreError

SCHEMA = (
    """
    CREATE TABLE events (seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL);
    CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, version INTEGER NOT NULL, body TEXT NOT NULL);
    CREATE TABLE documents (path TEXT PRIMARY KEY, body TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE entries (file TEXT NOT NULL, ord INTEGER NOT NULL, body TEXT NOT NULL,
                          PRIMARY KEY (file, ord)) WITHOUT ROWID;
    """,
    """
    CREATE INDEX documents_seq ON documents (seq);
    CREATE TABLE marks (name TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO marks SELECT 'shown', coalesce(max(seq), 1) - 1 FROM events;
    """,
)
"""Migrations: entry i brings `user_version` i to i + 1; entries are never changed once released."""
SNAPSHOTS_KEPT = 2
CACHE_KIB = 512
"""Of pages in memory, a database; what a run writes it seldom reads."""
_PAGE = 200


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


class Entries:
    """Entries of a list-like view, read a few at a time and anew whenever they are gone through.

    Args:
        journal: Where they are; used by whoever goes through them.
        file: The view.
        after: The number of the one before the first.
        until: The number of the last.
    """

    def __init__(self, journal: Journal, file: str, after: int, until: int) -> None:
        self._journal = journal
        self._file = file
        self._after = max(0, after)
        self._until = until

    def __len__(self) -> int:
        """Return how many there are."""
        return max(0, self._until - self._after)

    def __iter__(self) -> Iterator[str]:
        """Yield them in order."""
        for after in range(self._after, self._until, _PAGE):
            yield from self._journal.entries_between(self._file, after, min(after + _PAGE, self._until))


class Journal:
    """One open run database.

    Args:
        path: `state/run.db` of a root; made if missing.

    Attributes:
        seq: Its last event.
        shown: The last event whose views lie in the root for good; kept with the next batch.

    Raises:
        StoreError: the file is no database of ours, is damaged, or is of a newer schema.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")
                self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
                self._migrate()
                self.seq = int(self._db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])
                self.shown = int(self._db.execute("SELECT seq FROM marks WHERE name = 'shown'").fetchone()[0])
                self._inode = path.stat().st_ino
            except BaseException:
                self._db.close()
                raise
        except (
            sqlite3.Error,
            OSError,
            ValueError,
        ) as error:  # a message of SQLite's may hold the damaged bytes
            raise fault(path, error) from error

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
                db.execute("UPDATE marks SET seq = ? WHERE name = 'shown'", (self.shown,))
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
            raise fault(self.path, error) from error
        self.seq = seq
        return seq

    def mark_shown(self, seq: int) -> None:
        """Note at once up to which event the views are in the root, 0 while all of them are about to be written.

        Raises:
            StoreError: it could not be noted.
        """
        self._one("UPDATE marks SET seq = ? WHERE name = 'shown'", (seq,))
        self.shown = seq

    def newest_version(self) -> int:
        """Return the newest version of which there is a snapshot; 0 where there is none."""
        return int(str(next(self._all("SELECT coalesce(max(version), 0) FROM snapshots", ()))[0]))

    def newest_snapshot(self, version: int, back: int = 0) -> tuple[int, str] | None:
        """Return `(seq, JSON)` of the newest snapshot of this version, or of so many before it, or None."""
        sql = "SELECT seq, body FROM snapshots WHERE version = ? ORDER BY seq DESC"
        rows = list(self._all(sql, (version,)))[back:]
        return (int(str(rows[0][0])), str(rows[0][1])) if rows else None

    def events_after(self, seq: int) -> Iterator[tuple[int, str]]:
        """Yield `(seq, JSON)` of all events after one, in order, a few at a time, however many there are."""
        while page := list(
            self._all("SELECT seq, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (seq, _PAGE))
        ):
            yield from ((int(str(number)), str(body)) for number, body in page)
            seq = int(str(page[-1][0]))

    def each_event(self) -> Iterator[tuple[int, str]]:
        """Yield `(seq, JSON)` of every event in order; see `events_after`."""
        return self.events_after(0)

    def each_of_kind(self, kind: str) -> Iterator[str]:
        """Yield the JSON of a kind's events in order, and look no further than is asked for."""
        try:
            for row in self._db.execute("SELECT body FROM events WHERE kind = ? ORDER BY seq", (kind,)):
                yield str(row[0])
        except sqlite3.Error as error:
            raise fault(self.path, error) from error

    def numbers(self) -> Iterator[int]:
        """Yield the number of every event in order."""
        last = 0
        while page := list(
            self._all("SELECT seq FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (last, _PAGE))
        ):
            yield from (int(str(row[0])) for row in page)
            last = int(str(page[-1][0]))

    def as_it_is(self) -> Journal:
        """Return another journal of the same file that stays as this one is now, whatever is added; to be read and closed.

        Raises:
            StoreError: the file is gone, or cannot be read.
        """
        if not self.is_in_place:
            raise StoreError(f"{self.path} is gone", hint="start the run again: it is put back")
        made = Journal(self.path)
        try:
            made._db.execute("BEGIN")
            made._db.execute("SELECT max(seq) FROM events").fetchone()  # from here on it is one moment's
        except sqlite3.Error as error:
            made.close()
            raise fault(self.path, error) from error
        return made

    def times(self) -> set[tuple[str, str]]:
        """Return time and kind of every event."""
        return set(self._pairs("SELECT at, kind FROM events", ()))

    def damage(self) -> list[str]:
        """Return what the database finds wrong with itself, at most ten lines; nothing when it is sound."""
        found = [str(row[0]) for row in self._all("PRAGMA integrity_check(10)", ())]
        return [] if found == ["ok"] else found

    def events_of_kind(self, kind: str, after: int, until: int) -> list[str]:
        """Return the JSON of a kind's events that come after one and not after another, in order."""
        sql = "SELECT body FROM events WHERE seq > ? AND seq <= ? AND kind = ? ORDER BY seq"
        return [str(row[0]) for row in self._all(sql, (after, until, kind))]

    def written_at(self, path: str) -> int | None:
        """Return the event with which a document became what it is, or None."""
        row = self._one("SELECT seq FROM documents WHERE path = ?", (path,))
        return int(str(row[0])) if row else None

    def document(self, path: str) -> str | None:
        """Return one document's text, or None."""
        row = self._one("SELECT body FROM documents WHERE path = ?", (path,))
        return str(row[0]) if row else None

    def documents(self, prefix: str = "") -> list[tuple[str, str]]:
        """Return `(path, text)` of all documents whose path begins with `prefix`, by path."""
        sql = "SELECT path, body FROM documents WHERE path >= ? AND path < ? ORDER BY path"
        return self._pairs(sql, (prefix, prefix + "\U0010ffff"))

    def each_document(self) -> Iterator[tuple[str, str]]:
        """Yield `(path, text)` of every document by path, a few at a time, however many there are."""
        last = ""
        sql = "SELECT path, body FROM documents WHERE path > ? ORDER BY path LIMIT ?"
        while page := self._pairs(sql, (last, _PAGE)):
            yield from page
            last = page[-1][0]

    def unshown_documents(self) -> list[tuple[str, str]]:
        """Return `(path, text)` of the documents that a crash may have kept from being written."""
        return self._pairs("SELECT path, body FROM documents WHERE seq > ?", (self.shown,))

    def entries(self, file: str, first: int | None = None) -> Entries:
        """Return the entries that a list-like view tells in order, of all or of so many of the first."""
        last = self.count(file) if first is None else first
        return Entries(self, file, last - NEWEST.get(file, last), last)

    def entries_between(self, file: str, after: int, until: int) -> list[str]:
        """Return the entries of a list-like view that come after one and not after another, by their numbers."""
        return [
            str(row[0])
            for row in self._all(
                "SELECT body FROM entries WHERE file = ? AND ord > ? AND ord <= ? ORDER BY ord",
                (file, after, until),
            )
        ]

    def count(self, file: str) -> int:
        """Return how many entries a list-like view has."""
        row = self._one("SELECT coalesce(max(ord), 0) FROM entries WHERE file = ?", (file,))
        return int(str(row[0])) if row else 0

    @property
    def is_in_place(self) -> bool:
        """Whether the path still names the open file; `git clean -fdx` takes it away under our feet."""
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def put_back(self) -> None:
        """Write the whole database, which is open still, to its path again, and go on there.

        Raises:
            StoreError: it could not be written.
        """
        copy_database(self._db, self.path, unshown=True)
        self._db.close()
        for name in ("-wal", "-shm"):
            self.path.with_name(f"{self.path.name}{name}").unlink(missing_ok=True)
        self._open()

    def copy_to(self, path: Path, *, anew: bool = True) -> None:
        """Bring a copy of the database up to this one, or make it; while it is in use, and in time that the new alone takes.

        Unless it is to be made `anew`, one that is no earlier state of this one stays as it is.

        Raises:
            StoreError: the copy could not be written; it is as it was, or whole.
        """
        try:
            if not path.exists() or (not self._extend(path) and anew):
                copy_database(self._db, path)
        except (sqlite3.Error, OSError) as error:
            raise fault(path, error) from error

    def _extend(self, path: Path) -> bool:
        """Add to a copy what is new; says whether it was one of this database at all."""
        db = self._db
        try:
            db.execute("ATTACH ? AS kept", (str(path),))
        except sqlite3.DatabaseError:
            return False
        try:
            if not self._is_copy():
                return False
            since = int(db.execute("SELECT max(seq) FROM kept.events").fetchone()[0])
            db.execute("BEGIN IMMEDIATE")
            try:
                for table in ("events", "documents"):
                    db.execute(
                        f"INSERT OR REPLACE INTO kept.{table} SELECT * FROM main.{table} WHERE seq > ?",  # noqa: S608 - our own names
                        (since,),
                    )
                for file in LISTS:
                    db.execute(
                        "INSERT INTO kept.entries SELECT * FROM main.entries WHERE file = ? AND ord >"
                        " (SELECT coalesce(max(ord), 0) FROM kept.entries WHERE file = ?)",
                        (file, file),
                    )
                for table in ("snapshots", "marks"):
                    db.execute(f"DELETE FROM kept.{table}")  # noqa: S608 - our own names
                    db.execute(f"INSERT INTO kept.{table} SELECT * FROM main.{table}")  # noqa: S608 - our own names
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            return False  # damaged: made anew
        finally:
            db.execute("DETACH kept")
        return True

    def _is_copy(self) -> bool:
        """Say whether the attached database is an earlier state of this one."""
        version = "PRAGMA {}.user_version"
        versions = {self._db.execute(version.format(name)).fetchone()[0] for name in ("main", "kept")}
        if len(versions) != 1:
            return False
        last = "SELECT seq, at, body FROM kept.events ORDER BY seq DESC LIMIT 1"
        newest = self._db.execute(last).fetchone()
        if newest is None:
            return False
        ours = self._db.execute("SELECT seq, at, body FROM main.events WHERE seq = ?", newest[:1]).fetchone()
        return bool(ours == newest)

    def close(self) -> None:
        """Close the database; its write-ahead log is folded in."""
        self._db.close()

    def _pairs(self, sql: str, values: Iterable[object]) -> list[tuple[str, str]]:
        return [(str(row[0]), str(row[1])) for row in self._all(sql, values)]

    def _one(self, sql: str, values: Iterable[object]) -> tuple[object, ...] | None:
        return next(self._all(sql, values), None)

    def _all(self, sql: str, values: Iterable[object]) -> Iterator[tuple[object, ...]]:
        try:
            yield from self._db.execute(sql, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise fault(self.path, error) from error
