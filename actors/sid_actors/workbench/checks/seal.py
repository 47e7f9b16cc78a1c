"""The seal: which paths no candidate may touch, and whether a candidate did. Pure.

`init` shows `Seal.shown`, agents get it read-only, `local` checks every candidate by `check_candidate` and
`benchmark` replaces sealed content by the trusted commit's. Nothing here looks at a disk or at git's index:
`disk` and `trees` say what changed. The sealed set is containment's: the user's globs, the files that the
benchmark and guard commands name, and what steers them, unless the user puts one in scope by its exact path.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sid_actors.git.trees import GITLINK, LINK, Change
from sid_actors.workbench.checks.named_paths import named_paths
from sid_actors.workbench.checks.patterns import covers, fold, literal, matches
from sid_protocol.records import Category
from sid_protocol.settings import Scope, Settings

HARNESS = (
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    ".gitattributes",
    ".gitmodules",
    "/.github/",
    "/.gitlab-ci.yml",
    "/.gitlab/",
    "/.circleci/",
    "/.buildkite/",
    "/.woodpecker/",
    "/.woodpecker.yml",
    "/.travis.yml",
    "/.drone.yml",
    "/.ci/",
    "/azure-pipelines.yml",
    "/bitbucket-pipelines.yml",
    "/Jenkinsfile",
    *("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", ".mcp.json", ".cursorrules"),
    *("/.claude/", "/.codex/", "/.gemini/", "/.cursor/"),
    *(".envrc", "/.vscode/", "/.devcontainer/", "/.husky/", "/.pre-commit-config.yaml"),
)
"""What steers tests and checkouts wherever it lies, and the files of CI; what tells other agents what to do, and what
runs by itself on a machine where the folder is entered or committed in."""
OURS = (".sid", ".omc/self-improve", "worktrees")
"""Where a run's own files and worktrees lie: a link there, once applied, would lead them elsewhere."""
_SHOWN = 5  # paths that a refusal's line names


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a candidate cannot be measured.

    Attributes:
        category: The failure's category.
        why: One line, which names paths.
        paths: The paths that no candidate may change, whatever the change; empty where the content is at fault.
    """

    category: Category
    why: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """The sealed set of one commit.

    Attributes:
        paths: The tracked files that are sealed.
        folders: Folders that are sealed whole: nothing may be added there.
        patterns: What an added file may not match.
        names: Paths that the commands name, whether or not they exist yet.
        free: Paths that the user put in scope by name.
        twins: Paths and folders, folded: what differs from them by case or composition only.
        shared: Our own places, and relative paths of the user's that checkouts are shown, folded: nothing may lie
            there, or above as a file.
    """

    paths: frozenset[str]
    folders: tuple[str, ...]
    patterns: tuple[str, ...]
    names: frozenset[str]
    free: frozenset[str]
    twins: frozenset[str]
    shared: frozenset[str]

    @property
    def shown(self) -> tuple[str, ...]:
        """The sealed set as a sorted list: whole folders (with a `/` at the end), then single files."""
        whole = tuple(f"{folder}/" for folder in self.folders)
        return tuple(sorted((*whole, *(path for path in self.paths if not path.startswith(whole)))))

    def holds(self, path: str, *, exists: bool = True) -> bool:
        """Whether a path is sealed; one that did not exist before is also held by its twins' names."""
        if exists:
            return path in self.paths
        if path in self.free:
            return False
        folded = fold(path)
        return (
            path in self.names
            or matches(path, self.patterns)
            or matches(folded, map(fold, self.patterns))
            or any(part in self.twins or part in self.shared for part in (folded, *_parents(folded)))
            or any(path.startswith(f"{folded}/") for path in self.shared)
        )


@dataclass(frozen=True, slots=True)
class SealRules:
    """What of a track's settings decides the sealed set; can be a cache's key."""

    sealed_files: tuple[str, ...]
    include: tuple[str, ...]
    commands: tuple[str, ...]
    shared: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings) -> SealRules:
        """Take what counts from the settings."""
        commands = (settings.benchmark_command, settings.holdout_command or "", *settings.guard_command)
        shown = [path.removesuffix(":rw") for path in (*settings.share_paths, *settings.benchmark_paths)]
        inside = tuple(posixpath.normpath(path) for path in shown if not path.startswith("/"))
        return cls(tuple(settings.sealed_files), tuple(settings.scope.include), commands, inside)


def make_seal(tracked: Iterable[str], rules: SealRules) -> Seal:
    """Return the seal of a commit, from its paths and the rules of its track."""
    exact = map(literal, rules.include)
    free = frozenset(path for path in exact if not matches(path, rules.sealed_files))
    names = frozenset().union(*map(named_paths, rules.commands)) - free
    patterns = (*rules.sealed_files, *HARNESS)
    paths: set[str] = set()
    folders: set[str] = set()
    for path in tracked:
        if path in free or not (path in names or matches(path, patterns)):
            continue
        paths.add(path)
        if whole := next((folder for folder in _parents(path) if covers(folder, patterns)), None):
            folders.add(whole)
    folders -= {parent for path in free for parent in _parents(path)}
    return Seal(
        paths=frozenset(paths),
        folders=tuple(sorted(folders)),
        patterns=patterns,
        names=names,
        free=free,
        twins=frozenset(map(fold, paths | folders)),
        shared=frozenset(map(fold, (*OURS, *rules.shared))),
    )


def _parents(path: str) -> list[str]:
    """Return the folders that a path lies in, from the top."""
    return [path[:at] for at, sign in enumerate(path) if sign == "/"]


def in_scope(path: str, scope: Scope) -> bool:
    """Whether a candidate may change a path, by `scope.include` and `scope.exclude` alone."""
    return matches(path, scope.include) and not matches(path, scope.exclude)


def editable(tracked: Iterable[str], seal: Seal, scope: Scope) -> tuple[str, ...]:
    """Return the tracked files that a candidate may change."""
    return tuple(path for path in tracked if path not in seal.paths and in_scope(path, scope))


def check_candidate(
    seal: Seal,
    scope: Scope,
    changes: Sequence[Change],
    *,
    extras: Sequence[str] = (),
    nested: Sequence[str] = (),
    filtered: Sequence[str] = (),
) -> tuple[Refusal | None, tuple[str, ...]]:
    """Judge what a candidate changed.

    Args:
        seal: The sealed set of its base.
        scope: What it may change.
        changes: How its tree differs from its base's.
        extras: Files in sealed folders on the disk that its base does not have, ignored ones included.
        nested: Repositories within the worktree.
        filtered: Changed paths that are under a content filter of the user's (LFS).

    Returns:
        The refusal or None, and warnings (scope that only warns).
    """
    gitlinks = [c.path for c in changes if GITLINK in (c.old and c.old.mode, c.new and c.new.mode)]
    if held := sorted({*nested, *gitlinks}):
        return _refusal("sealed_file_violation", "a repository within the repository", held), ()
    if held := [c.path for c in changes if c.new and has_control_characters(c.path)]:
        return _refusal("sealed_file_violation", "a name with control characters", held), ()
    if held := [c.path for c in changes if c.new and not may_be_checked_out(c.path, c.new.mode)]:
        return _refusal("sealed_file_violation", "a name that git does not check out", held), ()
    touched = {c.path for c in changes if seal.holds(c.path, exists=c.old is not None)}
    if touched := touched | set(extras):
        return _refusal("sealed_file_violation", "sealed files were changed", sorted(touched)), ()
    named = {literal(pattern) for pattern in scope.include}
    if held := [path for path in filtered if path not in named]:
        return _refusal("scope_error", "changed files under a content filter", held), ()
    return _by_scope(scope, [change.path for change in changes])


def has_control_characters(path: str) -> bool:
    """Whether a name holds characters that terminals, logs or line-based formats take for something else."""
    return any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") or sign in _BIDI for sign in path)


def may_be_checked_out(path: str, mode: int) -> bool:
    """Whether git writes an entry on every system: to none of them it is a `.git`, nor a link that is a `.gitmodules`.

    macOS overlooks characters without a width, and case; Windows case, blanks and dots at the end, and what follows a
    colon; a backslash is a slash there, and files have a short name with a tilde, too. What Windows takes for it git
    refuses on every system, what macOS does on that.
    """
    for part in re.split(r"[/\\]", path):
        seen = "".join(sign for sign in part if unicodedata.category(sign) != "Cf").casefold()
        plain = seen.split(":")[0].rstrip(" .")
        if plain in (".git", "git~1") or (mode == LINK and _MODULES.fullmatch(plain)):
            return False
    return True


_MODULES = re.compile(r"\.gitmodules|[gi7ebamtod]*~[0-9]+")
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _by_scope(scope: Scope, paths: Sequence[str]) -> tuple[Refusal | None, tuple[str, ...]]:
    faults: list[Refusal] = []
    if outside := [path for path in paths if not in_scope(path, scope)]:
        faults.append(_refusal("scope_error", "changed outside the scope", outside))
    if scope.max_files is not None and len(paths) > scope.max_files:
        why = f"{len(paths)} files changed, the scope allows {scope.max_files}"
        faults.append(_refusal("scope_error", why, paths))
    if scope.on_violation == "warn":
        return None, tuple(f"scope: {fault.why}" for fault in faults)
    return (faults[0] if faults else None), ()


def _refusal(category: Category, why: str, paths: Sequence[str]) -> Refusal:
    shown = [repr(path) if has_control_characters(path) else path for path in paths[:_SHOWN]]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return Refusal(category, f"{why}: {', '.join(shown)}{more}", tuple(paths))
