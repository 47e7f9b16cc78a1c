"""What an agent left in its worktree, as git objects: found on the disk, converted as git would on commit.

`LocalWorkbench.collect` calls `find_edits` once the agent's processes are dead. The worktree's index and whatever
the agent did with git are ignored; its `.git` is only looked at to refuse a worktree in the middle of a merge
or with a `.git` that is not the one that was made. Line ends and encodings are converted by git itself;
a content filter (LFS) runs only on a file that the user put in scope by name.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pygit2
import trio

from sid_actors.git.cli import DEADLINE_S, OUTPUT_MB, GitOutput, GitPrintedTooMuch, GitTimedOut, git
from sid_actors.git.trees import GITLINK, LINK, Entry, files, lookup, open_repository, tree_of
from sid_actors.workbench.checkouts import disk
from sid_actors.workbench.checkouts.conversions import ATTRIBUTES
from sid_actors.workbench.checkouts.looking import git_mode, open_file, walk_all
from sid_actors.workbench.checkouts.worktrees import Worktree
from sid_actors.workbench.checks.patterns import literal
from sid_actors.workbench.checks.seal import Refusal, Seal
from sid_protocol.settings import Settings

IGNORED = (
    "__pycache__/",
    "*.pyc",
    ".pytest_cache/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".venv/",
    "node_modules/",
)
"""Ignored in every repository, unless tracked."""
IGNORED_FOLDERS = frozenset(name.rstrip("/") for name in IGNORED if name.endswith("/"))
"""The folders among them."""
_UNDER_WAY = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
_CONVERTING = ("text", "eol", "crlf", "ident", "working-tree-encoding")
_MB = 1 << 20
LOOK_LIMIT_S = 300.0
"""Longest look of git's at what an agent left: 100,000 files take it some seconds."""
_LARGE_BYTES = 8 << 20
"""What is larger takes the daemon's memory and its interpreter's lock for too long."""
_LONGEST, _DEEPEST = 2000, 200
"""Bytes and folders of an added path: it must fit below a checkout's, and trees are written level by level."""
_MOST_FILES, _MOST_NAMES_MB = 20_000, 16
"""New files, and MiB of their names: a tree of millions is the daemon's memory."""
_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """A candidate's edits.

    Attributes:
        entries: The new entry of each changed path; None where it is gone.
        extras: Files in sealed folders that were not checked out, ignored ones included.
        nested: Repositories within the worktree.
        filtered: Changed paths under a content filter.
    """

    entries: Mapping[str, Entry | None]
    extras: tuple[str, ...]
    nested: tuple[str, ...]
    filtered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConversionConfig:
    """What the user's git configuration says of conversions: line ends, and the names of filters."""

    autocrlf: bool
    filters: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Found:
    """What differs on the disk: modes of what is to be written, what is gone, and the rest as in `Edits`.

    `large` is what git writes, in a process of its own.
    """

    present: Mapping[str, int]
    gone: tuple[str, ...]
    extras: tuple[str, ...]
    nested: tuple[str, ...]
    total_bytes: int
    large: frozenset[str]


async def find_edits(
    common_dir: str, worktree: Worktree, seal: Seal, settings: Settings, config: ConversionConfig
) -> Edits | Refusal:
    """Find what differs from the checkout and write the contents to the object database.

    Raises:
        GitError: git failed.
    """
    try:
        return await _find_edits(common_dir, worktree, seal, settings, config)
    except GitTimedOut as error:  # one line of ignore rules or attributes can keep git for years
        return Refusal("scope_error", f"what it left cannot be looked at: {error.message}", ())


async def _find_edits(
    common_dir: str, worktree: Worktree, seal: Seal, settings: Settings, config: ConversionConfig
) -> Edits | Refusal:
    difference = await trio.to_thread.run_sync(_difference, worktree)
    if isinstance(difference, Refusal):
        return difference
    plain = _plain_git(common_dir, worktree)
    untracked: list[str] = []
    if difference.has_more:
        listed = await _listed(plain, worktree.manifest.files)
        if isinstance(listed, Refusal):
            return listed
        untracked = listed
    found = await trio.to_thread.run_sync(_look, common_dir, worktree, seal, difference, untracked)
    if isinstance(found, Refusal):
        return found
    limit = settings.limits.worktree_mb
    if limit is not None and found.total_bytes > limit * _MB:
        why = f"it left {found.total_bytes // _MB} MB of changed files, limits.worktree_mb is {limit}"
        return Refusal("scope_error", why, tuple(sorted(found.present)))
    regular = [path for path, mode in found.present.items() if mode != LINK]
    attributes: dict[str, dict[str, str]] = {path: {} for path in regular}
    if worktree.converts or any(path.rpartition("/")[2] == ATTRIBUTES for path in regular):
        attributes = await _attributes(plain, regular)
    filtered = [path for path in regular if attributes[path].get("filter", "") in config.filters]
    named = {literal(pattern) for pattern in settings.scope.include}
    by_git = {path for path in filtered if path in named}
    by_git |= {path for path in regular if path not in filtered and _may_convert(attributes[path], config)}
    written, converted = await trio.to_thread.run_sync(
        _write_raw, common_dir, worktree, found, by_git, attributes
    )
    for taken, how in ((converted, ()), (found.large - converted, ("--no-filters",))):
        if paths := sorted(taken):
            stdin = b"".join(map(_line_of, paths))
            ids = (await plain("hash-object", "-w", *how, "--stdin-paths", stdin=stdin)).line.split()
            written |= dict(zip(paths, ids, strict=True))
    entries: dict[str, Entry | None] = {
        path: Entry(found.present[path], oid) for path, oid in written.items()
    }
    entries |= dict.fromkeys(found.gone)
    return Edits(entries=entries, extras=found.extras, nested=found.nested, filtered=tuple(filtered))


async def _listed(plain: _Git, tracked: Collection[str]) -> list[str] | Refusal:
    """Return all paths that are not ignored, the tracked ones too, since git has no index here."""
    ignore = [word for pattern in IGNORED for word in ("-x", pattern)]
    names_mb = sum(len(os.fsencode(path)) + 1 for path in tracked) // _MB + 1 + _MOST_NAMES_MB
    try:
        output = await plain(
            "ls-files",
            "--others",
            "--exclude-standard",
            *ignore,
            "-z",
            deadline_s=LOOK_LIMIT_S,
            output_mb=names_mb,
        )
    except GitPrintedTooMuch:
        return Refusal("scope_error", f"it left more than {_MOST_NAMES_MB} MB of names of new files", ())
    listed = output.paths
    new = len(listed) - len(tracked)
    if new > _MOST_FILES:
        return Refusal("scope_error", f"it left {new} new files, at most {_MOST_FILES} are taken", ())
    return listed


def _line_of(path: str) -> bytes:
    """Return a path as a line that git takes for it: one that begins with a quote it reads as C reads a string."""
    return b'"%s"\n' % b"".join(
        b"\\%03o" % byte if byte in _QUOTED else bytes((byte,)) for byte in os.fsencode(path)
    )


_QUOTED = frozenset((*range(32), *b'"\\', 127))


def _plain_git(common_dir: str, worktree: Worktree) -> _Git:
    """Return git that sees the folder as a work tree without an index, whatever its `.git` says."""

    async def run(
        *args: str, stdin: bytes = b"", deadline_s: float = DEADLINE_S, output_mb: int = OUTPUT_MB
    ) -> GitOutput:
        return await git(
            f"--git-dir={common_dir}",
            f"--work-tree={worktree.path}",
            *args,
            cwd=worktree.path,
            stdin=stdin,
            env={"GIT_INDEX_FILE": f"{common_dir}/sid-no-index"},
            deadline_s=deadline_s,
            output_mb=output_mb,
        )

    return run


class _Git(Protocol):
    async def __call__(
        self, *args: str, stdin: bytes = b"", deadline_s: float = DEADLINE_S, output_mb: int = OUTPUT_MB
    ) -> GitOutput: ...


def _difference(worktree: Worktree) -> disk.Difference | Refusal:
    if why := _git_tampered(worktree):
        return Refusal("sealed_file_violation", why, (".git",))
    return disk.compare(worktree.path, worktree.manifest)


def _git_tampered(worktree: Worktree) -> str | None:
    link = Path(worktree.path, ".git")
    is_ours = not link.is_symlink() and link.is_file() and link.stat().st_size == len(worktree.git_file)
    if not is_ours or link.read_bytes() != worktree.git_file:
        return "the worktree's .git was replaced"
    admin = Path(worktree.admin_dir)
    if not admin.is_dir():
        return "the worktree was removed from git's list"
    if under_way := [name for name in _UNDER_WAY if (admin / name).exists()]:
        return f"the worktree is in the middle of something ({under_way[0]})"
    return None


def _look(
    common_dir: str, worktree: Worktree, seal: Seal, difference: disk.Difference, untracked: Sequence[str]
) -> _Found | Refusal:
    manifest, root = worktree.manifest, worktree.path
    tracked: Mapping[str, object] = manifest.files
    modules: set[str] = set()
    if untracked:
        repo = open_repository(common_dir)
        entries = dict(files(repo, tree_of(repo, worktree.start)))
        tracked, modules = entries, {path for path, entry in entries.items() if entry.mode == GITLINK}
    untracked = [path for path in untracked if not _is_shown(path, worktree.shown)]
    nested = [path.rstrip("/") for path in untracked if path.endswith("/")]
    added = [path for path in untracked if path not in tracked and not path.endswith("/")]
    overlong = [
        path[:_SHOWN] for path in added if len(os.fsencode(path)) > _LONGEST or path.count("/") > _DEEPEST
    ]
    if overlong:
        return Refusal("scope_error", f"a path too deep or too long: {overlong[0]}…", tuple(overlong))
    present: dict[str, int] = {}
    large: set[str] = set()
    gone = set(difference.gone)
    total = 0
    for path in (*difference.changed, *added):
        status = os.lstat(f"{root}/{path}")
        mode = git_mode(status.st_mode)
        if mode:
            present[path] = mode
            total += status.st_size
            if mode != LINK and status.st_size > _LARGE_BYTES:
                large.add(path)
        elif path in manifest.files:
            gone.add(path)  # a pipe, socket or device in its place: git has no such thing
    extras = [
        path
        for folder in (seal.folders if difference.has_more else ())
        for path in walk_all(root, folder, IGNORED_FOLDERS)
        if path not in tracked and not path.endswith(".pyc") and not _is_shown(path, worktree.shown)
    ]
    nested = [path for path in nested if path not in modules]
    return _Found(present, tuple(gone), tuple(extras), tuple(nested), total, frozenset(large))


def _is_shown(path: str, shown: frozenset[str]) -> bool:
    """Say whether a path is, or lies in, what was only put there to be seen."""
    return bool(shown) and any(path.rstrip("/") == s or path.startswith(f"{s}/") for s in shown)


async def _attributes(plain: _Git, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {path: {} for path in paths}
    if not paths:
        return found
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    asked = await plain(
        "check-attr", "-z", "--stdin", *_CONVERTING, "filter", stdin=stdin, deadline_s=LOOK_LIMIT_S
    )
    words = [os.fsdecode(word) for word in asked.out.split(b"\0")]
    for path, name, value in zip(words[::3], words[1::3], words[2::3], strict=False):
        if value != "unspecified":
            found[path][name] = value
    return found


async def conversion_config(common_dir: str) -> ConversionConfig:
    """Read the user's configuration of conversions.

    Raises:
        GitError: git failed.
    """
    wanted = r"^(filter\..*\.(clean|process)|core\.autocrlf)$"
    shown = await git("config", "-z", "--get-regexp", wanted, cwd=common_dir, expect=(0, 1))
    values = dict(item.partition("\n")[::2] for item in shown.paths)
    filters = frozenset(key.split(".", 1)[1].rpartition(".")[0] for key in values if key != "core.autocrlf")
    return ConversionConfig(values.get("core.autocrlf", "false").lower() in _TRUE, filters)


_TRUE = ("true", "input", "yes", "on", "1", "")


def _may_convert(attributes: Mapping[str, str], config: ConversionConfig) -> bool:
    if attributes.get("text") == "unset" and not {"ident", "working-tree-encoding"} & attributes.keys():
        return False
    return config.autocrlf or any(name in attributes for name in _CONVERTING)


def _write_raw(
    common_dir: str,
    worktree: Worktree,
    found: _Found,
    by_git: set[str],
    attributes: Mapping[str, Mapping[str, str]],
) -> tuple[dict[str, str], set[str]]:
    """Write what needs no conversion and is not large; return the blobs' ids, and what is to be converted."""
    repo = open_repository(common_dir)
    tracked = lookup(repo, tree_of(repo, worktree.start), by_git)
    written: dict[str, str] = {}
    converted: set[str] = set()
    for path, mode in found.present.items():
        full = f"{worktree.path}/{path}"
        if mode == LINK:
            written[path] = str(repo.create_blob(os.fsencode(Path(full).readlink())))
            continue
        if path in by_git:
            old = tracked.get(path)
            # As git does: a file that was committed with CR LF stays so, unless it is declared to be text.
            keeps_ends = attributes[path].get("text", "auto") == "auto" and not attributes[path].get("filter")
            if not (old and keeps_ends and b"\r\n" in repo.read(pygit2.Oid(hex=old.id))[1]):
                converted.add(path)
        with open_file(full) as file:  # also where git is to read it: it has to be readable
            if path not in converted and path not in found.large:
                written[path] = str(repo.create_blob(file.read()))
    return written, converted
