"""What runs have learned, across runs: one file a run in the daemon's state directory, and a page of all of them.

Written by a run's store when its own view changes, read when a round is prepared. Blocking; called in worker
threads, of which several may be at it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sid_daemon.core.longterm.lessons import worth_telling
from sid_daemon.store.files import write_whole
from sid_daemon.store.views_lessons import across
from sid_protocol.errors import StoreError
from sid_protocol.events import RunLessons
from sid_protocol.lessons import TrackLessons

RUNS_KEPT = 200
"""Runs whose lessons are kept; of older ones only those that still stand for others."""
_WRITING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Kept:
    """What all runs have learned.

    Attributes:
        tracks: One a run, the newest first.
        unreadable: Files that tell nothing, with the reason.
    """

    tracks: tuple[TrackLessons, ...]
    unreadable: tuple[str, ...] = ()


class LessonFiles:
    """The lessons of all runs of this daemon.

    Args:
        state_dir: The daemon's state directory.
    """

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "lessons"
        self.page = state_dir / "LESSONS.md"

    def keep(self, run_id: str, text: str) -> None:
        """Keep what a run has learned by now, in place of what it had before.

        Raises:
            StoreError: it cannot be written.
        """
        with _WRITING:
            write_whole(self.folder / f"{run_id}.json", text.encode(), mode=0o600)
            kept = self.read()
            for old in kept.tracks[RUNS_KEPT:]:
                if not old.standing:
                    (self.folder / f"{old.run_id}.json").unlink(missing_ok=True)
            write_whole(self.page, across(kept.tracks).encode(), mode=0o600)

    def read(self) -> Kept:
        """Return what all runs have learned.

        Raises:
            StoreError: the folder cannot be read.
        """
        tracks, unreadable = [], []
        try:
            paths = sorted(self.folder.glob("*.json"))
        except OSError as error:
            raise StoreError(
                f"{self.folder}: {error.strerror}", hint="look at the permissions of the state directory"
            ) from error
        for path in paths:
            try:
                tracks.append(TrackLessons.model_validate_json(path.read_bytes()))
            except FileNotFoundError:
                continue  # dropped meanwhile
            except (OSError, ValidationError) as error:
                unreadable.append(f"{path}: {str(error).splitlines()[0]}")
        tracks.sort(key=lambda one: (one.at, one.run_id), reverse=True)
        return Kept(tuple(tracks), tuple(unreadable))

    def others(self, run_id: str, repo: str, window: int) -> tuple[tuple[RunLessons, ...], tuple[str, ...]]:
        """Return what the other runs have seen, as far as it may change this one's lessons, and what is unreadable.

        Args:
            run_id: The run that asks.
            repo: Its repository.
            window: Runs looked back upon, it included.

        Raises:
            StoreError: the folder cannot be read.
        """
        kept = self.read()
        tracks = [one for one in kept.tracks if one.run_id != run_id and one.replays is None]
        runs = [
            RunLessons(run_id=one.run_id, seen=tuple(one.seen), standing=tuple(one.standing))
            for one in tracks
        ]
        alien = frozenset(one.run_id for one in tracks if one.repo != repo)
        return worth_telling(runs, window, alien=alien), kept.unreadable
