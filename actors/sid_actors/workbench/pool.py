"""Kept checkouts under `<root>/pool/`, and the trash: folders that are filled with exactly one tree.

`LocalBench` keeps one for benchmarks and one for guards, `LocalWorkbench` one as the view for agents that only
read. They are plain folders with a private index, never git worktrees: git knows nothing of them, and nothing in
them is ever committed. A filled checkout holds the tree and nothing else: whatever is not exactly as the
last checkout wrote it is deleted first, be it ignored, hidden, a repository or only another permission.
"""

from __future__ import annotations

from pathlib import Path

import trio

from sid_actors.gitcli import git
from sid_actors.process import JobLimits, JobSpec, run_job
from sid_actors.trees import GITLINK, files, open_repository, tree_of
from sid_actors.workbench import disk
from sid_actors.workbench.submodules import fill_submodules
from sid_protocol.errors import GitError

_DELETE_LIMIT_S = 600.0


class PlainCheckout:
    """One folder of the pool; its user holds a lock around filling and using it.

    Args:
        common_dir: The repository's git directory.
        folder: Absolute path; what is there at the first filling is deleted.
    """

    def __init__(self, common_dir: str, folder: str) -> None:
        self.folder = folder
        self.tree: str | None = None
        self._common_dir = common_dir
        self._index = f"{folder}.index"
        self._manifest: disk.Manifest | None = None

    async def fill(self, revision: str) -> str:
        """Make the folder hold exactly a commit's or a tree's files, and return the tree's id.

        Raises:
            GitError: git failed; the next filling begins from nothing.
        """
        try:
            return await self._fill(revision)
        except GitError as error:
            failed = error
        if await trio.Path(self.folder).is_dir():
            raise failed
        return await self._fill(revision)  # it was taken away under git's feet: `git clean -fdx`

    async def _fill(self, revision: str) -> str:
        manifest, self._manifest, self.tree = self._manifest, None, None
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
            env={"GIT_INDEX_FILE": self._index},
        )
        await fill_submodules(self._common_dir, self.folder, tree)
        self._manifest = await trio.to_thread.run_sync(self._record, tree)
        self.tree = tree
        return tree

    def _prepare(self, manifest: disk.Manifest | None) -> None:
        if manifest is None or not Path(self.folder).is_dir() or Path(self.folder).is_symlink():
            for path in (self.folder, self._index, f"{self._index}.lock"):
                disk.remove(path)
            if not Path(self._common_dir).is_dir():  # one that went away is not made again
                raise GitError(
                    f"{self._common_dir} is gone", hint="bring the repository back, then start the run"
                )
            Path(self.folder).mkdir(parents=True)
        else:
            disk.purge(self.folder, manifest)

    def _tree_of(self, revision: str) -> str:
        return tree_of(open_repository(self._common_dir), revision)

    def _record(self, tree: str) -> disk.Manifest:
        repo = open_repository(self._common_dir)
        paths = [path for path, entry in files(repo, tree) if entry.mode != GITLINK]
        return disk.record(self.folder, paths, digests=False)


async def delete(path: str) -> None:
    """Delete a folder of any size in a process of its own, whatever permissions it was left with.

    Raises:
        OSError: something in it cannot be deleted.
    """
    spec = JobSpec(
        argv=("rm", "-rf", "--", path),
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        deadline_s=_DELETE_LIMIT_S,
        limits=JobLimits(processes=None),
        sandbox=None,
    )
    await run_job(spec)
    await trio.to_thread.run_sync(disk.remove, path)  # what rm could not: folders without permissions
