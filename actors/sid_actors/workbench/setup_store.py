"""Where results of the set-up are kept: `<root>/setup/<digest>/`, and a list beside it that makes one a finished one.

`shared` alone calls it. Everything here blocks and belongs in a worker thread; it runs nothing.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from sid_actors.git.trees import files, open_repository, tree_of
from sid_actors.workbench.checkouts import deleting
from sid_actors.workbench.checkouts.looking import all_folders
from sid_actors.workbench.checks.named_paths import named_paths
from sid_protocol.errors import REFUSED, BenchmarkError

LOCK_FILES = (
    *(
        "uv.lock",
        "poetry.lock",
        "pdm.lock",
        "Pipfile.lock",
        "pylock.toml",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
    ),
    *("requirements*.txt", "constraints*.txt", "environment.yml", "package.json", "package-lock.json"),
    *(
        "npm-shrinkwrap.json",
        "pnpm-lock.yaml",
        "yarn.lock",
        "bun.lock",
        "Cargo.toml",
        "Cargo.lock",
        "go.mod",
        "go.sum",
    ),
    *("Gemfile", "Gemfile.lock", "composer.lock", "mix.lock", "flake.lock"),
)
"""File names, in any folder, whose content decides whether the set-up must run again."""

KEPT = 8
"""Results of the set-up that are kept, the last used ones."""


class SetupFailed(BenchmarkError):
    """`setup_command` failed; the message holds its own last words."""

    rpc_code = REFUSED


def digest_of(common_dir: str, tree: str, command: str, words: Iterable[str] = ()) -> str:
    """Return a digest of the set-up's command and more words, and of a tree's lock files and the files that it names."""
    repo = open_repository(common_dir)
    named = named_paths(command)
    found = [
        (path, entry.id)
        for path, entry in files(repo, tree_of(repo, tree))
        if path in named
        or any(fnmatch.fnmatchcase(path.rpartition("/")[2], pattern) for pattern in LOCK_FILES)
    ]
    text = json.dumps([command, *words, sorted(found)])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def results_of(store: str) -> list[str] | None:
    """Return what a finished set-up created; None where there is none, whose remains are removed."""
    listed = Path(f"{store}.json")
    if listed.is_file():
        results: list[str] = json.loads(listed.read_text())
        if all(os.path.lexists(f"{store}/{path}") for path in results):
            os.utime(listed)
            return results
    listed.unlink(missing_ok=True)
    deleting.remove(store)
    return None


def keep_results(common_dir: str, store: str, tree: str) -> list[str]:
    """Remove the tracked files, and write down what else there is: that makes the set-up a finished one.

    Raises:
        SetupFailed: something there is a link to what is not; it would be shown to every sandbox.
    """
    repo = open_repository(common_dir)
    tracked = {path for path, _ in files(repo, tree_of(repo, tree))}
    folders = {str(parent) for path in tracked for parent in Path(path).parents}
    results = sorted(_created(store, "", tracked, folders))
    inside = f"{os.path.realpath(store)}/"
    for path in results:
        if Path(store, path).is_symlink() and not os.path.realpath(f"{store}/{path}").startswith(inside):
            raise SetupFailed(
                f"setup_command made {path!r}, a link out of the checkout",
                hint="let it copy what it needs, or name that in share_paths",
            )
    for path in tracked:
        if "/" not in path or all_folders(store, path.rpartition("/")[0]):
            deleting.remove(f"{store}/{path}")
    for folder in sorted(folders - {"."}, key=len, reverse=True):
        full = Path(store, folder)
        if all_folders(store, folder) and not any(full.iterdir()):
            full.rmdir()
    deleting.remove(f"{store}.index")
    beside = Path(f"{store}.json.new")
    beside.write_text(json.dumps(results))
    beside.replace(f"{store}.json")
    return results


def drop(store: str) -> None:
    """Remove what a failed set-up left, and the folder of all of them if it was the first."""
    deleting.remove(store)
    deleting.remove(f"{store}.index")
    with contextlib.suppress(OSError):  # not empty: others succeeded
        Path(store).parent.rmdir()


def _created(store: str, folder: str, tracked: set[str], folders: set[str]) -> Iterable[str]:
    with os.scandir(f"{store}/{folder}") as entries:
        found = list(entries)
    for entry in found:
        path = f"{folder}/{entry.name}" if folder else entry.name
        if path in folders and entry.is_dir(follow_symlinks=False):
            yield from _created(store, path, tracked, folders)
        elif path not in tracked and path not in folders:
            yield path


def take_oldest(folder: str) -> list[str]:
    """Return what is to be deleted of the results, its list first gone."""
    listed = sorted(Path(folder).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in listed[KEPT:]:
        path.unlink()
    return [str(path.with_suffix("")) for path in listed[KEPT:]]
