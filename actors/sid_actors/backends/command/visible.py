"""What the user's agent command is, word by word, and which of the user's files it may see.

The command back end asks it every turn, `init` and `start` once before (`check_agent_command`). It looks at
files, starts nothing and changes nothing. The rule is the last paragraph of the command back end's page: the
program, each file that an argument names, the folder of the script that is run, and `agent_paths`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sid_protocol.errors import SettingsInvalid
from sid_protocol.locations import shell_word
from sid_protocol.settings import Settings

KEY = "agent_command"

# Every sandbox shows these as they are, so there is nothing to add for a file in them.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
# What a repository's top holds besides the user's files: git's own, our roots, other candidates' worktrees.
_NOT_THE_USERS = frozenset({".git", ".sid", ".omc", "worktrees"})


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """An agent command, ready to be started.

    Attributes:
        argv: Its words; the program and files named relative to the repository as absolute paths.
        shown: The paths of the user's that it may read.
    """

    argv: tuple[str, ...]
    shown: tuple[str, ...]


def check_agent_command(settings: Settings, repo: str, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse settings whose command back end could never start; other back ends have nothing to check.

    Args:
        settings: The run's settings.
        repo: Absolute path of the repository's top.
        environ: Where PATH and HOME are looked up.

    Raises:
        SettingsInvalid: the command is empty, cannot be split, or its program is missing.
    """
    if settings.agent_backend == "command":
        home, path = environ.get("HOME", "/"), environ.get("PATH", os.defpath)
        resolve_command(settings.agent_command, repo=repo, home=home, path=path)
        agent_paths(settings.agent_paths, repo=repo, home=home)


def resolve_command(command: str, *, repo: str, home: str, path: str) -> AgentProgram:
    """Split a command as a shell splits words, and find its files; blocks for some file look-ups.

    Args:
        command: The setting.
        repo: Absolute path of the repository's top, which relative files are relative to.
        home: HOME; it is never shown as a whole.
        path: The PATH that the program is looked up on.

    Raises:
        SettingsInvalid: the command is empty, cannot be split, or its program is missing.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SettingsInvalid(KEY, f"cannot be split into words: {error}", hint="check its quotes") from None
    if not words or "\0" in command:
        hint = "sictl config set agent_command 'PROGRAM ARGUMENT…'"
        raise SettingsInvalid(KEY, "is empty" if not words else "holds a NUL character", hint=hint)
    program = _find(words[0], repo, path)
    arguments = [_absolute(word, repo) for word in words[1:]]
    files = [file for word in arguments if (file := _named_file(word))]
    script: Path | None = None
    if _is_script(program):
        script = program = program.resolve()  # a script finds what lies beside it by its real path
    elif files:
        script = files[0]
    shown = [program, program.resolve(), *files, *(file.resolve() for file in files)]
    if script:
        shown += _folder(script.resolve().parent, Path(repo).resolve(), Path(home).resolve())
    return AgentProgram((str(program), *arguments), _without_system(shown))


def agent_paths(entries: Iterable[str], *, repo: str, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the read-only and the writable paths of `PATH` and `PATH:rw` entries, absolute.

    Raises:
        SettingsInvalid: an entry names HOME, the repository, or a folder above one of them, as writable.
    """
    readable, writable = [], []
    for entry in entries:
        path = Path(repo, _at_home(entry.removesuffix(":rw").removesuffix(":ro"), home))
        normal = os.path.normpath(path)
        if not entry.endswith(":rw"):
            readable.append(normal)
            continue
        if any(Path(kept).is_relative_to(normal) for kept in (home, repo)):
            raise SettingsInvalid(
                "agent_paths", f"{entry} would let an agent write everywhere", hint="name a folder in it"
            )
        writable.append(normal)
    return tuple(readable), tuple(writable)


def _at_home(path: str, home: str) -> str:
    return path.replace("~", home, 1) if path == "~" or path.startswith("~/") else path


def _find(name: str, repo: str, path: str) -> Path:
    if "/" in name:
        found = Path(repo, name)
        if found.is_file() and os.access(found, os.X_OK):
            return Path(os.path.normpath(found))
        what = "is not executable" if found.is_file() else "does not exist"
        hint = (
            f"chmod +x {shell_word(str(found))}"
            if found.is_file()
            else "write the whole path; no shell expands it"
        )
        raise SettingsInvalid(KEY, f"the program {name} {what}", hint=hint)
    which = shutil.which(name, path=path)
    if which is None:
        raise SettingsInvalid(
            KEY, f"the program {name} is not on PATH", hint="install it, or write its whole path"
        )
    return Path(which).absolute()


def _absolute(word: str, repo: str) -> str:
    """Return the word, a relative file's path as an absolute one: an agent starts in a folder of its own.

    A word that could as well be a subcommand (`exec`) stays as it is, whatever the repository holds.
    """
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    if not value or Path(value).is_absolute() or not ("/" in value or "." in value):
        return word
    path = os.path.normpath(Path(repo, value))
    return f"{flag}{equals}{path}" if _is_file(path) else word


def _named_file(word: str) -> Path | None:
    value = word.partition("=")[2] if word.startswith("-") else word
    return Path(value) if value.startswith("/") and _is_file(value) else None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a prompt as an argument is longer than any file's name
        return False


def _is_script(program: Path) -> bool:
    try:
        with program.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _folder(folder: Path, repo: Path, home: Path) -> list[Path]:
    """Return what is shown of a script's folder: all of it, unless that is more than a program's own folder."""
    if home.is_relative_to(folder) or repo.parent.is_relative_to(folder):
        return []
    if folder.stat().st_mode & stat.S_ISVTX:
        return []  # /tmp and its like are everybody's
    if folder == repo:
        return [entry for entry in sorted(folder.iterdir()) if entry.name not in _NOT_THE_USERS]
    return [folder]


def _without_system(paths: Iterable[Path]) -> tuple[str, ...]:
    kept = (
        path for path in dict.fromkeys(paths) if not any(path.is_relative_to(system) for system in _SYSTEM)
    )
    return tuple(map(str, kept))
