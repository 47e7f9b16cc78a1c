"""The views of a run on disk: written whole from what is in the journal, the growing ones by what was added.

Held by `RunStore`, used by one worker thread at a time. `raw_data.json` and its like hold a row for every
candidate that there ever was, so a round adds to what lies there, if that is still what was written last.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sid_daemon.store.documents import TELLING, render_more, render_pieces, telling
from sid_daemon.store.files import extend, remove_unfinished, replace, replace_by_pieces, sync_folder
from sid_daemon.store.journal import Entries
from sid_protocol.errors import StoreError


@dataclass(slots=True)
class PendingViews:
    """What is durable and not yet in the root's files; of one file the latest counts.

    Attributes:
        documents: Path in the root → whole new text.
        entries: List-like view → what was added to it.
        counts: List-like view that is to be written → how many entries it then has.
        seq: The last event of it.
        everything: The root was lost: all is to be written again.
        recorded: A round was recorded.
        last: The run is over, or rests.
        replayable: The recording is to have it, too.
    """

    documents: dict[str, str] = field(default_factory=dict)
    entries: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    everything: bool = False
    recorded: bool = False
    last: bool = False
    replayable: bool = False

    def add(self, later: PendingViews) -> None:
        """Take what came later in."""
        self.documents |= later.documents
        for file, entries in later.entries.items():
            self.entries.setdefault(file, []).extend(entries)
        self.counts |= later.counts
        self.seq = max(self.seq, later.seq)
        self.everything |= later.everything
        self.recorded |= later.recorded
        self.last |= later.last
        self.replayable |= later.replayable


@dataclass(frozen=True, slots=True)
class _List:
    """A list-like view as it was written last, and how many entries it has."""

    written: os.stat_result
    count: int


class ViewFiles:
    """The files of one root.

    Args:
        root: The track's root.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lists: dict[str, _List] = {}
        self._folders: set[Path] = set()

    def put(self, path: str, text: str) -> None:
        """Write a view.

        Raises:
            StoreError: it could not be written.
        """
        replace(self._place(path), text.encode())

    def _place(self, path: str) -> Path:
        """Return where a view is about to be written, and have its folder settled."""
        self._lists.pop(path, None)
        self._make_folder(path)
        self._folders.add((self._root / path).parent)
        return self._root / path

    def _make_folder(self, path: str) -> None:
        """Make a view's folder, but never the root: a repository that went away is not made again."""
        folder = self._root
        for part in Path(path).parent.parts:
            folder /= part
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"cannot make {folder}: {error.strerror}",
                    hint="free some space or fix the permissions, then start the run again",
                ) from error

    def grow(self, file: str, entries: Sequence[str], count: int) -> bool:
        """Add to a list-like view; says no where that cannot be done and it is to be written whole.

        Args:
            file: The view.
            entries: What is added.
            count: How many entries it has with them.

        Raises:
            StoreError: it could not be written.
        """
        known = self._lists.pop(file, None)
        more = render_more(file, entries)
        if known is None or more is None or not known.count or known.count + len(entries) != count:
            return False
        keep = known.written.st_size - more[0]
        written = extend(self._root / file, known.written, keep, more[1].encode())
        if written is None:
            return False
        self._lists[file] = _List(written, count)
        self._folders.add((self._root / file).parent)
        return True

    def put_list(self, file: str, entries: Entries) -> None:
        """Write a list-like view whole.

        Raises:
            StoreError: it could not be written.
        """
        written = replace_by_pieces(self._place(file), render_pieces(file, entries))
        self._lists[file] = _List(written, len(entries))

    def settle(self) -> None:
        """Make everything that was put last.

        Raises:
            StoreError: the disk is broken.
        """
        folders, self._folders = self._folders, set()
        for folder in sorted(folders):
            sync_folder(folder)

    def clear(self, paths: Collection[str]) -> None:
        """Remove what a crash left beside views."""
        for folder in {(self._root / path).parent for path in paths}:
            with suppress(OSError):
                remove_unfinished(folder)

    def show(self, pending: PendingViews) -> list[str]:
        """Write what is not shown yet, and take out of it what is now; what tells of other views is left for `tell`.

        Returns:
            One line for each view that could not be written. List-like views that are left are to be written whole.
        """
        troubles: list[str] = []
        for path, text in list(pending.documents.items()):
            if path not in TELLING:
                troubles += self._put_one(pending, path, text)
        for file, count in list(pending.counts.items()):
            try:
                if self.grow(file, pending.entries.get(file, ()), count):
                    del pending.counts[file]
            except StoreError as error:
                troubles.append(str(error))
        return troubles

    def tell(self, pending: PendingViews) -> list[str]:
        """Write the views that tell of others, which are there by now, and take them out of what is not shown.

        Returns:
            One line for each that could not be written.
        """
        return [
            trouble
            for path, text in telling(pending.documents)
            for trouble in self._put_one(pending, path, text)
        ]

    def _put_one(self, pending: PendingViews, path: str, text: str) -> list[str]:
        try:
            if path not in pending.counts:
                self.put(path, text)
            del pending.documents[path]
        except StoreError as error:
            return [str(error)]
        return []
