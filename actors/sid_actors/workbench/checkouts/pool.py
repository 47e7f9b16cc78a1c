"""Kept checkouts under `<root>/pool/`: folders that are filled with exactly one tree.

`LocalBench` keeps some for benchmarks and one for guards, `LocalWorkbench` one as the view for agents that only
read, `kept` those that become candidates' worktrees. A filled checkout holds the tree and nothing else: whatever is not
exactly as the last filling wrote it is deleted first, be it ignored, hidden, a repository or only another
permission. The first filling is git's, as is each of a tree whose files git converts on checkout; else only the paths
that differ are written.
"""

from __future__ import annotations

from pathlib import Path

import pygit2
import trio
from pygit2.enums import FileMode

from sid_actors.git.cli import git
from sid_actors.git.trees import GITLINK, Change, Entry, changes, files, lookup, open_repository, tree_of
from sid_actors.workbench.checkouts import deleting, disk
from sid_actors.workbench.checkouts.conversions import ATTRIBUTES, Conversion, Conversions
from sid_actors.workbench.checkouts.submodules import fill_submodules
from sid_protocol.errors import GitError

_MOST_PATHS = 2000
_MOST_BYTES = 64 << 20
"""What differs by more is written by git, which needs neither this process's lock nor its memory."""


class PlainCheckout:
    """One folder of the pool; its user holds a lock around filling and using it.

    Args:
        common_dir: The repository's git directory.
        folder: Absolute path; what is there at the first filling is deleted.
        indexed: Whether `index` is kept right and `manifest` knows contents, as a candidate's worktree needs.
        conversions: What is known of conversions, where it is shared with other checkouts of the repository.

    Attributes:
        folder: Where it is; whoever moves it says so here.
        index: Its private index.
        tree: What it holds, or None where that is not known.
        manifest: What lies there.
        conversion: What git may do to its files.
    """

    def __init__(
        self, common_dir: str, folder: str, *, indexed: bool = False, conversions: Conversions | None = None
    ) -> None:
        self.folder = folder
        self.index = f"{folder}.index"
        self.tree: str | None = None
        self.manifest: disk.Manifest | None = None
        self._common_dir = common_dir
        self._indexed = indexed
        self._conversions = conversions or Conversions(common_dir)
        self.conversion = Conversion(on_checkout=True, on_commit=True)

    async def fill(self, revision: str, *, untouched: bool = False) -> str:
        """Make the folder hold exactly a commit's or a tree's files, and return the tree's id.

        Args:
            revision: The commit or tree.
            untouched: Whether nobody can have written there since the last filling, so that it need not be looked at.

        Raises:
            GitError: git or the disk failed; the next filling begins from nothing.
        """
        try:
            return await self._fill(revision, untouched=untouched)
        except GitError as error:
            failed = error
        if await trio.Path(self.folder).is_dir():
            raise failed
        return await self._fill(revision, untouched=False)  # it was taken away underneath: `git clean -fdx`

    async def _fill(self, revision: str, *, untouched: bool) -> str:
        (manifest, self.manifest), (before, self.tree) = (self.manifest, None), (self.tree, None)
        try:
            if manifest is not None and before is not None and not self.conversion.on_checkout:
                tree = await trio.to_thread.run_sync(self._advance, manifest, before, revision, untouched)
                if tree is not None:
                    self.manifest, self.tree = manifest, tree
                    return tree
                manifest = None
            if before is not None and await trio.to_thread.run_sync(self._converts_anew, before, revision):
                manifest = None
            return await self._fill_by_git(revision, manifest)
        except (pygit2.GitError, KeyError, OSError) as error:  # libgit2's where the repository has gone
            why = getattr(error, "strerror", None) or error
            hint = "the repository's folder must be writable, and have room"
            raise GitError(f"cannot fill the checkout {self.folder}: {why}", hint=hint) from error

    async def _fill_by_git(self, revision: str, manifest: disk.Manifest | None) -> str:
        await trio.to_thread.run_sync(self._prepare, manifest)
        tree = await trio.to_thread.run_sync(self._tree_of, revision)
        await git(
            f"--git-dir={self._common_dir}",
            f"--work-tree={self.folder}",
            "read-tree",
            "--reset",
            "-u",
            tree,
            cwd=self.folder,
            env={"GIT_INDEX_FILE": self.index},
        )
        await fill_submodules(self._common_dir, self.folder, tree)
        self.conversion = await self._conversions.of(tree)
        self.manifest = await trio.to_thread.run_sync(self._record, tree)
        self.tree = tree
        return tree

    def _prepare(self, manifest: disk.Manifest | None) -> None:
        if manifest is not None and _is_folder(self.folder):
            disk.purge(self.folder, manifest)
            return
        for path in (self.folder, self.index, f"{self.index}.lock"):
            deleting.remove(path)
        if not Path(self._common_dir).is_dir():  # one that went away is not made again
            raise GitError(
                f"{self._common_dir} is gone", hint="bring the repository back, then start the run"
            )
        Path(self.folder).mkdir(parents=True)

    def _converts_anew(self, before: str, revision: str) -> bool:
        """Whether attributes differ: git would leave a file alone that is to be converted otherwise now."""
        repo = open_repository(self._common_dir)
        differing = changes(repo, before, tree_of(repo, revision))
        return any(change.path.rpartition("/")[2] == ATTRIBUTES for change in differing)

    def _tree_of(self, revision: str) -> str:
        return tree_of(open_repository(self._common_dir), revision)

    def _record(self, tree: str) -> disk.Manifest:
        repo = open_repository(self._common_dir)
        must_read = self._indexed and self.conversion.on_checkout
        found = files(repo, tree)
        return disk.record(
            self.folder, [(path, None if must_read else e.id) for path, e in found if e.mode != GITLINK]
        )

    def _advance(self, manifest: disk.Manifest, before: str, revision: str, untouched: bool) -> str | None:  # noqa: FBT001 -- a fact, no switch
        """Write only what differs; None where git has to do it from the start."""
        repo = open_repository(self._common_dir)
        tree = tree_of(repo, revision)
        if untouched and tree == before and _is_folder(self.folder):
            return tree
        differing = changes(repo, before, tree)
        if not all(map(_is_simple, differing)) or not _is_folder(self.folder):
            return None
        missing: set[str] = set() if untouched else disk.purge(self.folder, manifest)
        wanted: dict[str, Entry | None] = {**lookup(repo, before, missing)}
        wanted |= {change.path: change.new for change in differing}
        present = [entry for entry in wanted.values() if entry]
        if len(wanted) > _MOST_PATHS or sum(_size(repo, entry) for entry in present) > _MOST_BYTES:
            return None
        disk.rewrite(
            self.folder,
            manifest,
            {path: (entry.mode, entry.id) if entry else None for path, entry in wanted.items()},
            lambda name: repo.read(pygit2.Oid(hex=name))[1],
        )
        if self._indexed and differing:
            self._update_index(differing)
        return tree

    def _update_index(self, differing: list[Change]) -> None:
        """Let the index name the new contents; git looks at those files again when it is asked for the status."""
        try:
            index = pygit2.Index(self.index)
            index.read()
            for change in differing:
                if change.old:
                    index.remove(change.path)
            for change in differing:
                if change.new:
                    index.add(
                        pygit2.IndexEntry(
                            change.path, pygit2.Oid(hex=change.new.id), FileMode(change.new.mode)
                        )
                    )
            index.write()
        except (pygit2.GitError, OSError) as error:
            raise GitError(f"cannot write {self.index}: {error}") from error


def _is_folder(path: str) -> bool:
    return Path(path).is_dir() and not Path(path).is_symlink()


def _is_simple(change: Change) -> bool:
    """Whether a change can be written without git: no submodule, no attributes, no path that git would refuse."""
    modes = [entry.mode for entry in (change.old, change.new) if entry]
    parts = change.path.split("/")
    is_refused = any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
    return GITLINK not in modes and parts[-1] != ATTRIBUTES and not is_refused


def _size(repo: pygit2.Repository, entry: Entry) -> int:
    return int(repo.odb.read_header(pygit2.Oid(hex=entry.id))[1])
