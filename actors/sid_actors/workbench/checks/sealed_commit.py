"""The seal of a commit: `seal` applied to the files that the commit tracks, read from the object database.

`local` asks for each candidate and `benchmark` for each measured tree, set-up for the list that `init` prints.
"""

from __future__ import annotations

from functools import lru_cache

import trio

from sid_actors.git.trees import changes, files, open_repository, tree_of, with_changes
from sid_actors.workbench.checks.seal import Seal, SealRules, make_seal
from sid_protocol.settings import Settings


async def seal_of(common_dir: str, commit: str, settings: Settings) -> Seal:
    """Return the sealed set of a commit.

    Raises:
        GitError: there is no such commit.
    """
    return await trio.to_thread.run_sync(_known_seal, common_dir, commit, SealRules.of(settings))


@lru_cache(maxsize=32)
def _known_seal(common_dir: str, commit: str, rules: SealRules) -> Seal:
    """Do as `seal_of`, blocking; a commit's seal is made once."""
    repo = open_repository(common_dir)
    return make_seal([path for path, _ in files(repo, tree_of(repo, commit))], rules)


async def tracked_files(common_dir: str, commit: str) -> tuple[str, ...]:
    """Return the paths of a commit, sorted.

    Raises:
        GitError: there is no such commit.
    """

    def read() -> tuple[str, ...]:
        repo = open_repository(common_dir)
        return tuple(sorted(path for path, _ in files(repo, tree_of(repo, commit))))

    return await trio.to_thread.run_sync(read)


def resealed(common_dir: str, tree: str, trusted: str, rules: SealRules) -> str:
    """Return the tree with every sealed path as the trusted commit has it; a path that it lacks is gone; blocks."""
    seal = _known_seal(common_dir, trusted, rules)
    repo = open_repository(common_dir)
    own = tree_of(repo, tree)
    differing = changes(repo, tree_of(repo, trusted), own)
    wanted = {c.path: c.old for c in differing if seal.holds(c.path, exists=c.old is not None)}
    return with_changes(repo, own, wanted) if wanted else own
