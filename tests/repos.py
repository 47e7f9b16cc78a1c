"""Real git repositories for tests: the `repo` fixture makes them, tests read and change them through `Repo`.

Never touches a repository that it did not make. Identity comes from the environment alone, see `conftest`.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repo:
    """One git repository; `path` is its checkout, or the repository itself when it is bare."""

    path: Path

    def git(self, *args: str, data: str | None = None) -> str:
        """Run git there and return its stdout without the last newline; `data` is its stdin.

        Raises:
            AssertionError: git failed; the message holds its stderr.
        """
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", self.path, *args],
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr.strip()}"
        return done.stdout.removesuffix("\n")

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write files of the checkout, with the folders they need; nothing is staged."""
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def commit(self, files: Mapping[str, str | bytes] | None = None, message: str = "Change") -> str:
        """Write `files`, commit everything in the checkout and return the commit's id."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.head

    @property
    def head(self) -> str:
        """The commit that HEAD names."""
        return self.git("rev-parse", "HEAD")

    def branches(self) -> list[str]:
        """The short names of all branches, sorted."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()

    def tags(self) -> list[str]:
        """The names of all tags, sorted."""
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/tags").splitlines()

    def worktrees(self) -> list[Path]:
        """The extra worktrees that git knows of, without the checkout itself."""
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree ")][1:]

    def fingerprint(self) -> dict[str, str]:
        """Everything of the user's that a run must leave alone, byte for byte, as comparable strings."""
        inside = Path(self.git("rev-parse", "--absolute-git-dir"))
        seen = {
            "status": self.git("status", "--porcelain=v2", "--branch", "--untracked-files=all"),
            "head": (inside / "HEAD").read_text(),
            "stash": self.git("stash", "list"),
            "index": _digest(inside / "index"),
            "config": _digest(inside / "config"),
        }
        for hook in sorted((inside / "hooks").glob("*")):
            seen[f"hooks/{hook.name}"] = _digest(hook)
        for name in self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if name:
                seen[f"file/{name}"] = _digest(self.path / name)
        return seen


def _digest(path: Path) -> str:
    if path.is_symlink():
        return f"link {path.readlink()}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "absent"
