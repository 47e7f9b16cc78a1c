"""Writes the demonstration repository: a small, real, slow program with a sealed benchmark.

Called by `sid --demo-repo DIR` (which `sictl demo` runs). A process of its own, so it may block. The files are
data of this package; nothing in them is imported here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from sid_protocol.errors import GitError, Refused

SOURCE = Path(__file__).parent / "demo_repo"
ROUNDS = 3
PARAMS = {
    "objective": "Fewer steps at the sorting office",
    "metric": "primary",
    "direction": "lower",
    "benchmark": "python3 bench.py",
    "format": "json",
    "scope": ["parcels/**"],
    "agents": 3,
    "rounds": ROUNDS,
}
"""What `run.init` is given for the repository, beside its path, the back end and trust."""


def write_demo_repo(target: Path) -> None:
    """Make a git repository with one commit.

    Raises:
        Refused: the folder exists and is not empty.
        GitError: git is missing or failed.
    """
    if target.exists() and any(target.iterdir()):
        raise Refused(f"{target} is not empty", hint="name another folder")
    shutil.copytree(SOURCE, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    _git(target, "init", "--quiet", "--initial-branch=main")
    _git(target, "add", "--all")
    _git(target, "commit", "--quiet", "--no-gpg-sign", "--message=Count the parcels of a day")


def _git(folder: Path, *arguments: str) -> None:
    author = {"NAME": "sid demo", "EMAIL": "demo@localhost", "DATE": "2026-01-01T00:00:00+00:00"}
    env = {
        **os.environ,
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in author.items()},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    try:
        subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True)
    except FileNotFoundError:
        raise GitError("git is not installed", hint="apt-get install git") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(f"git {arguments[0]} failed: {said[-1] if said else error.returncode}") from error
