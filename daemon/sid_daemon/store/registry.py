"""What the daemon knows across runs: which runs there are, and what the user trusts (`sid.db`).

In the daemon's state directory. Trust is kept here, by the repository's real path and the digest of all
settings that decide what is executed; `trust_confirmed` in a root is a view that nobody believes. Blocking;
used from one worker thread at a time.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from sid_daemon.store.databases import fault
from sid_protocol.errors import StoreError
from sid_protocol.locations import track_command

SCHEMA = (
    """
    CREATE TABLE runs (run_id TEXT PRIMARY KEY, repo TEXT NOT NULL, common_dir TEXT NOT NULL,
                       topic TEXT NOT NULL, root TEXT NOT NULL UNIQUE, active INTEGER NOT NULL DEFAULT 0,
                       created_at TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE trust (repo TEXT NOT NULL, digest TEXT NOT NULL, at TEXT NOT NULL,
                        PRIMARY KEY (repo, digest)) WITHOUT ROWID;
    """,
)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """One run as the registry knows it.

    Attributes:
        run_id: Its id.
        repo: Real path of the repository's top folder.
        common_dir: Real path of its common git directory: one active run each.
        topic: Its topic's slug.
        root: Absolute path of its root.
        active: Whether it was running (or paused) when last heard of.
        created_at: ISO 8601 UTC.
    """

    run_id: str
    repo: str
    common_dir: str
    topic: str
    root: str
    active: bool
    created_at: str

    def command(self, verb: str, *more: str) -> str:
        """Return the command that does something with its track, as one types it; see `track_command`."""
        return track_command(verb, self.repo, self.root, *more)


class Registry:
    """The open registry.

    Args:
        path: `sid.db` in the state directory; made if missing.

    Attributes:
        known: What `runs` said last, as long as it holds, else empty; to be read by any thread and changed by none.

    Raises:
        StoreError: it cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: list[KnownRun] = []
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version > len(SCHEMA):
                raise StoreError(
                    f"{path} was written by a newer sid (schema {version}, this one knows {len(SCHEMA)})",
                    hint="use that sid, or set SID_STATE_DIR to another directory",
                )
            for number in range(version, len(SCHEMA)):
                self._db.executescript(
                    f"BEGIN IMMEDIATE;{SCHEMA[number]};PRAGMA user_version={number + 1};COMMIT;"
                )
        except (sqlite3.Error, OSError) as error:
            raise self._fault(error) from error

    def runs(self) -> list[KnownRun]:
        """Return all runs, oldest first."""
        rows = self._do(
            "SELECT run_id, repo, common_dir, topic, root, active, created_at FROM runs"
            " ORDER BY created_at, run_id"
        )
        self.known = [
            KnownRun(str(a), str(b), str(c), str(d), str(e), bool(f), str(g)) for a, b, c, d, e, f, g in rows
        ]
        return self.known

    def add_run(self, run: KnownRun) -> None:
        """Enter a run, in place of an earlier one with the same root."""
        self.known = []
        self._do("DELETE FROM runs WHERE root = ? AND run_id != ?", run.root, run.run_id)
        self._do(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)",
            run.run_id,
            run.repo,
            run.common_dir,
            run.topic,
            run.root,
            int(run.active),
            run.created_at,
        )

    def set_active(self, run_id: str, *, active: bool) -> None:
        """Note whether a run is to be resumed when a daemon starts."""
        self.known = []
        self._do("UPDATE runs SET active = ? WHERE run_id = ?", int(active), run_id)

    def trust(self, repo: str, digest: str, at: str) -> None:
        """Note the user's confirmation."""
        self._do("INSERT OR REPLACE INTO trust VALUES (?, ?, ?)", repo, digest, at)

    def is_trusted(self, repo: str, digest: str) -> bool:
        """Say whether the user confirmed exactly this."""
        return bool(self._do("SELECT 1 FROM trust WHERE repo = ? AND digest = ?", repo, digest))

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _do(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> StoreError:
        return fault(
            self.path, error, damaged="'sictl start REPO' then finds a run again, and asks for your trust"
        )
