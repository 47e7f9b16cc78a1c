"""Which files a command line names, and so decide what it does. Pure.

The seal is made from it, and the digest of a set-up. It follows `cd`, `PYTHONPATH=` and `python -m`, splits nested shell
lines, and takes what `make`, `npm` and their like read; it follows no import and runs nothing. Naming a file too many seals it, which the
user sees in the list that `init` prints; naming one too few would leave the evaluator to the candidate.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

_DEPTH = 4  # shell lines within shell lines
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[0-9.]*\Z")
_ASSIGNMENT = re.compile(r"(?:--?[\w-]+|\w+)=(.*)\Z", re.DOTALL)
# What these read without being told: changing it changes what the command does.
_IMPLIED = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    **dict.fromkeys(
        ("npm", "npx", "pnpm", "yarn", "bun"), ("package.json", ".npmrc", ".yarnrc.yml", "bunfig.toml")
    ),
    "deno": ("deno.json", "deno.jsonc"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile", "rakefile", "Rakefile.rb"),
    "nox": ("noxfile.py",),
    **dict.fromkeys(("invoke", "inv"), ("tasks.py",)),
    "coverage": (".coveragerc",),
}


def named_paths(command: str) -> frozenset[str]:
    """Return every relative path that a word of the command may name, whether or not there is such a file."""
    found: set[str] = set()
    _collect(command, found, _DEPTH)
    return frozenset(found)


def _collect(command: str, found: set[str], depth: int) -> None:
    words = list(_split(command))
    bases = [""]
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        assigned = _ASSIGNMENT.match(word)
        value = assigned.group(1) if assigned else word
        if assigned and word.startswith("PYTHONPATH="):
            bases += [posixpath.join(base, part) for part in value.split(":") if part for base in bases[:1]]
        if before == "cd":
            bases = [posixpath.join(base, word) for base in bases]
        if before == "-m":
            # `python -m pkg.mod`: the module's file, or the package's main
            _add(found, bases, f"{word.replace('.', '/')}.py")
            _add(found, bases, f"{word.replace('.', '/')}/__main__.py")
        if _PYTHON.match(before):
            _add(found, bases, posixpath.join(word, "__main__.py"))
        for implied in _IMPLIED.get(posixpath.basename(word), ()):
            _add(found, bases, implied)
        _add(found, bases, value.split("::", 1)[0])  # pytest's file::test
        if depth and value != command and re.search(r"\s", value):
            _collect(value, found, depth - 1)


def _split(command: str) -> Iterator[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        yield from list(lexer)
    except ValueError:  # an open quote: the shell will refuse it, but its words still name files
        yield from re.split(r"[\s;&|<>()'\"`]+", command)


def _add(found: set[str], bases: list[str], word: str) -> None:
    if not word or word.startswith("/") or "\0" in word:
        return
    for base in {"", *bases}:
        path = posixpath.normpath(posixpath.join(base, word))
        if path != "." and not path.startswith(("../", "/")) and path != "..":
            found.add(path)
