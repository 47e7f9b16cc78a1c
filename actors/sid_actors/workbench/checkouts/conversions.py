"""Whether git writes files otherwise than they are committed, or the other way round: line ends, filters, keywords.

`pool` asks it of each tree that git filled; where nothing is converted, it writes what differs itself, and `edits` need not
ask git about each path. It is strict: a word in a file of attributes that could mean a conversion is taken for one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pygit2
import trio

from sid_actors.git.cli import git
from sid_actors.git.trees import GITLINK, files, open_repository

ATTRIBUTES = ".gitattributes"
_WORDS = (b"eol", b"crlf", b"ident", b"filter", b"encoding")
_NO = ("false", "no", "off", "0", "")


@dataclass(frozen=True, slots=True)
class Conversion:
    """What git may do to the files of a tree.

    Attributes:
        on_checkout: Whether files may lie otherwise than they are committed, or there are submodules.
        on_commit: Whether files may be committed otherwise than they lie.
    """

    on_checkout: bool
    on_commit: bool


_ANY = Conversion(on_checkout=True, on_commit=True)
_REMEMBERED = 8


class Conversions:
    """Says what git may do to the files of trees, by the user's configuration as it is when each is first asked for.

    Args:
        common_dir: The repository's git directory.
    """

    def __init__(self, common_dir: str) -> None:
        self._common_dir = common_dir
        self._known: dict[str, Conversion] = {}
        self._turn = trio.Lock()

    async def of(self, tree: str) -> Conversion:
        """Say what git may do to the files of a tree.

        Raises:
            GitError: git failed.
        """
        async with self._turn:
            if tree not in self._known:
                self._known[tree] = await _conversion(self._common_dir, tree)
                for old in list(self._known)[:-_REMEMBERED]:
                    del self._known[old]
            return self._known[tree]


async def _conversion(common_dir: str, tree: str) -> Conversion:
    wanted = r"^core\.(autocrlf|eol|attributesfile)$"
    shown = await git("config", "-z", "--get-regexp", wanted, cwd=common_dir, expect=(0, 1))
    config = dict(item.partition("\n")[::2] for item in shown.paths)
    if (
        config.get("core.autocrlf", "false").lower() not in _NO
        or config.get("core.eol", "").lower() == "crlf"
    ):
        return _ANY
    return await trio.to_thread.run_sync(_conversion_of, common_dir, tree, config)


def _conversion_of(common_dir: str, tree: str, config: Mapping[str, str]) -> Conversion:
    found = [path.read_bytes() for path in _outside(common_dir, config) if path.is_file()]
    repo = open_repository(common_dir)
    for path, entry in files(repo, tree):
        if entry.mode == GITLINK:
            return _ANY
        if path.rpartition("/")[2] == ATTRIBUTES:
            found.append(repo.read(pygit2.Oid(hex=entry.id))[1])
    return Conversion(
        on_checkout=any(word in attributes for attributes in found for word in _WORDS),
        on_commit=any(attributes.strip() for attributes in found),
    )


def _outside(common_dir: str, config: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of attributes that are not in the tree, as gitattributes(5) lists them."""
    yield Path(common_dir, "info/attributes")
    home = os.environ.get("HOME", "/")
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    own = config.get("core.attributesfile") or f"{settings}/git/attributes"
    yield Path(home, own.removeprefix("~/"))
    yield Path("/etc/gitattributes")
    if program := shutil.which("git"):
        yield Path(program).resolve().parent.parent / "etc/gitattributes"
