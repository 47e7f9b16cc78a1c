"""The force-kills of all runs: `IMPROVEMENTS.md` in the daemon's state directory, at whose end each run adds its own.

Written by a run's store, after the run's own `state/improvements.md`. Blocking; called in worker threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sid_daemon.layout import IMPROVEMENTS
from sid_daemon.store.documents import render_list
from sid_daemon.store.journal import Journal
from sid_protocol.errors import StoreError


class KillFile:
    """The file of one daemon.

    Args:
        path: Where it is, or is to be.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, kills: Sequence[str]) -> None:
        """Add force-kills, as the entries of a run's own file are.

        Raises:
            StoreError: it cannot be written.
        """
        if not kills:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(render_list(IMPROVEMENTS, kills))
        except OSError as error:
            raise self._fault(error) from error

    def catch_up(self, journal: Journal) -> None:
        """Add those of a run that a crash has kept from being added.

        Raises:
            StoreError: it cannot be read or written.
        """
        late = len(journal.events_of_kind("agent_killed", journal.shown, journal.seq))
        if not late:
            return
        try:
            told = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        except OSError as error:
            raise self._fault(error) from error
        last = journal.count(IMPROVEMENTS)
        self.add([one for one in journal.entries_between(IMPROVEMENTS, last - late, last) if one not in told])

    def _fault(self, error: OSError) -> StoreError:
        return StoreError(
            f"cannot write {self._path}: {error.strerror}",
            hint="free some space or fix the permissions, then start the run again",
        )
