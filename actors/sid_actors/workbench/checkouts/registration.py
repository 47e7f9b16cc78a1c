"""A folder as one of git's worktrees: what git would write for it on `git worktree add`, and nothing more.

`worktrees` registers a kept folder when a candidate gets it and takes the registration away when that one is done.
The folder in the git directory is made anew each time: an index with flags, settings of the worktree alone, a merge
under way, or a ref of its own that somebody left there is gone with it. The names are those of
gitrepository-layout(5). All functions block shortly; they are called under the repository's lock.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from sid_actors.naming import naming


def register(common_dir: str, path: str, branch: str, index: str, mark: str) -> tuple[str, bytes]:
    """Tell git of a worktree, locked, before anything lies at its path.

    Args:
        common_dir: The repository's git directory.
        path: Where the worktree will be.
        branch: What it has checked out.
        index: A file that is copied as its index.
        mark: The lock's reason, by which it is known to be ours.

    Returns:
        Its folder in the git directory, and what its `.git` file has to hold.

    Raises:
        OSError: the disk.
    """
    worktrees = Path(common_dir, "worktrees")
    worktrees.mkdir(exist_ok=True)
    admin_dir = _fresh(worktrees, Path(path).name)
    with naming(admin_dir):
        # First, since git prunes what is not locked and has no folder.
        (admin_dir / "locked").write_text(f"{mark}\n")
        (admin_dir / "commondir").write_text("../..\n")
        (admin_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        shutil.copyfile(index, admin_dir / "index")
        (admin_dir / "gitdir").write_bytes(os.fsencode(f"{path}/.git\n"))
    return str(admin_dir), os.fsencode(f"gitdir: {admin_dir}\n")


def _fresh(worktrees: Path, name: str) -> Path:
    for number in itertools.count():
        path = worktrees / (f"{name}{number}" if number else name)
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError


def admin_dir_of(common_dir: str, path: str) -> str | None:
    """Return the folder in which git keeps a worktree, found by what git wrote there."""
    for link in Path(common_dir, "worktrees").glob("*/gitdir"):
        if _folder_of(link.parent) == path:
            return str(link.parent)
    return None


def is_of(admin_dir: str, path: str, mark: str) -> bool:
    """Say whether a registration is of a worktree at that path, and locked with our mark."""
    return _is_marked(Path(admin_dir), mark) and _folder_of(Path(admin_dir)) == path


def folderless(common_dir: str, mark: str, names: Collection[str]) -> Iterator[str]:
    """Yield our registrations without a folder: what is left where a daemon was killed in between.

    Args:
        common_dir: The repository's git directory.
        mark: The lock's reason.
        names: What our worktrees may be called; by that one is known that was killed before its mark was there.
    """
    for admin in Path(common_dir, "worktrees").glob("*/"):
        if _is_marked(admin, mark):
            folder = _folder_of(admin)
            if folder is None or not os.path.lexists(folder):
                yield str(admin)
        elif _is_begun(admin, mark) and any(admin.name.startswith(name) for name in names):
            yield str(admin)


def _is_begun(admin: Path, mark: str) -> bool:
    """Say whether nothing is in there yet but, at most, the beginning of our mark."""
    if any(entry.name != "locked" for entry in admin.iterdir()):
        return False
    lock = admin / "locked"
    return not lock.exists() or f"{mark}\n".startswith(lock.read_text(errors="replace"))


def _is_marked(admin: Path, mark: str) -> bool:
    lock = admin / "locked"
    return lock.is_file() and lock.read_text(errors="replace").strip() == mark


def _folder_of(admin: Path) -> str | None:
    link = admin / "gitdir"
    if not link.is_file():
        return None
    return os.fsdecode(link.read_bytes().removesuffix(b"\n").removesuffix(b"/.git"))
