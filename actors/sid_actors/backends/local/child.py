"""The child process of the `local` back end: reads code that nobody vouches for, so that the daemon need not.

`python -m sid_actors.backends.local.child survey|apply`, one JSON document on stdin, one on stdout. `survey`
takes `{root, include, exclude, sealed, attempts, hot, limit_files, streak_family, lint}` and answers `{ideas, read,
skipped}`; `apply` takes `{root, recipe}`, edits the file in place and answers `{path}`. What goes wrong is
`{error}` and exit status 1. It reads and writes below `root` alone, follows no link, and runs none of the code.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from sid_actors.backends.local.globs import matches
from sid_actors.backends.local.hotspots import HotSpots, hot_spots
from sid_actors.backends.local.recipe import Attempt, Recipe, RecipeFailed, RecipeInvalid

MAX_INPUT = 64 * 2**20  # bytes of the document on stdin
MAX_FILE = 2**20  # bytes; a larger file is generated, or data
MAX_TOTAL = 4 * 2**20  # bytes read in all
LIMIT_FILES = 400
_SUFFIXES = (".py", ".json", ".toml")
_NOT_ENTERED = frozenset({
    "__pycache__", "node_modules", "venv", "env", "build", "dist", "site-packages", "tests", "test", "docs",
})  # fmt: skip
_NO_PROGRAM = ("test_*.py", "*_test.py", "conftest.py", "setup.py", "noxfile.py")


class Refused(Exception):
    """The request cannot be met; the message is the whole answer."""


def main(arguments: list[str]) -> int:
    """Answer one request; return the exit status."""
    sys.setrecursionlimit(20_000)  # for trees as deep as `source.MAX_DEPTH` lets through
    try:
        answer = _answer(arguments, sys.stdin.buffer.read(MAX_INPUT + 1))
        status = 0
    except (Refused, RecipeFailed, RecipeInvalid) as error:
        answer, status = {"error": str(error)}, 1
    except (RecursionError, MemoryError) as error:
        answer, status = {"error": f"the code is too large to be worked on: {type(error).__name__}"}, 1
    except OSError as error:
        answer, status = {"error": f"{error.filename or 'a file'}: {error.strerror or error}"}, 1
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return status


def _answer(arguments: list[str], document: bytes) -> dict[str, Any]:
    if len(document) > MAX_INPUT:
        raise Refused("the request is too large")
    try:
        request = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the request is no JSON: {type(error).__name__}") from error
    if not isinstance(request, dict) or not isinstance(request.get("root"), str):
        raise Refused("the request is an object with the text root")
    match arguments:
        case ["survey"]:
            return _survey(request)
        case ["apply"]:
            return _apply(request)
        case _:
            raise Refused("usage: child survey|apply")


def _survey(request: dict[str, Any]) -> dict[str, Any]:
    root = Path(request["root"])
    if not root.is_dir():
        raise Refused(f"{root} is not a folder")
    limit = request.get("limit_files", LIMIT_FILES)
    attempts, streak = request.get("attempts", []), request.get("streak_family")
    lint = request.get("lint", {})
    if (
        not isinstance(attempts, list)
        or not isinstance(limit, int)
        or not isinstance(streak, (str, type(None)))
        or not isinstance(lint, dict)
    ):
        raise Refused(
            "attempts is an array, limit_files a number, streak_family a text or null, lint an object"
        )
    hot = _hot(request.get("hot"))
    history = [Attempt.from_json(value) for value in attempts]
    include = _texts(request, "include") or ["**"]
    excluded = [*_texts(request, "exclude"), *_texts(request, "sealed")]
    paths = [p for p in _paths(root) if matches(p, include) and not matches(p, excluded)]
    warm = {f.path for f in hot.functions} if hot is not None else set()
    paths.sort(key=lambda path: (path not in warm, path))
    files: dict[str, str] = {}
    left = MAX_TOTAL
    for path in paths[:limit]:
        text = _read(root / path)
        if text is not None and len(text) <= left:
            files[path] = text
            left -= len(text)

    # late: a request that is refused need not wait for libcst
    from sid_actors.backends.local.ideas import survey

    ideas = survey(files, hot, history, frozenset(), streak, lint)
    return {
        "ideas": [idea.to_json() for idea in ideas],
        "read": len(files),
        "skipped": len(paths) - len(files),
    }


def _hot(value: object) -> HotSpots | None:
    if value is None:
        return None
    try:
        return hot_spots(value)
    except ValueError as error:
        raise Refused(f"hot: {error}") from error


def _texts(request: dict[str, Any], name: str) -> list[str]:
    value = request.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Refused(f"{name} is an array of texts")
    return value


def _paths(root: Path) -> Iterator[str]:
    """Yield the files worth reading, relative to `root`: no links, nothing hidden, no tests."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _NOT_ENTERED)
        base = Path(folder).relative_to(root)
        for name in sorted(names):
            if name.endswith(_SUFFIXES) and not name.startswith(".") and not matches(name, _NO_PROGRAM):
                yield (base / name).as_posix()


def _read(path: Path) -> str | None:
    """Return the text of a plain file of bearable size; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None  # a link, a socket, gone, or not ours to read: no place for ideas
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = stream.read(MAX_FILE + 1)
    if len(data) > MAX_FILE or b"\0" in data or data.startswith(b"\xef\xbb\xbf"):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _apply(request: dict[str, Any]) -> dict[str, Any]:
    recipe = Recipe.from_json(request.get("recipe"))
    root, path = Path(request["root"]).resolve(), PurePosixPath(recipe.path)
    if path.is_absolute() or ".." in path.parts or ".git" in path.parts:
        raise Refused(f"{recipe.path} is not a path inside the repository")
    target = root / path
    if target.resolve() != target:
        raise Refused(f"{recipe.path} leads through a link")
    text = _read(target)
    if text is None:
        raise RecipeFailed(f"{recipe.path} is not there, or is no text that can be edited")
    from sid_actors.backends.local.apply import apply_recipe  # late, as above

    target.write_bytes(apply_recipe(text, recipe).encode())
    return {"path": recipe.path}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
