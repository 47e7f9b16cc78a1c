"""Which programs of the user's PATH a sandbox must show: interpreters that live outside the system's folders.

A virtual environment, a pyenv or a node installed below HOME is absent in a sandbox unless it is bound, and a
pyenv shim starts nothing without the rest of pyenv (and costs 80 to 260 ms where it does). The actors ask once
for each PATH, off the event loop, and put `Toolchain.path` into the job's environment and `Toolchain.readable`
into its `Sandbox`. It asks the interpreters themselves where they live and starts nothing else.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sid_actors.workbench.sandbox.bwrap import SYSTEM_DIRS

_ASK_LIMIT_S = 20.0
_SETTINGS_BYTES = 64 << 10
_ASK_PYTHON = ("-c", "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sep='\\n')")
_ASK_NODE = (
    "-p",
    "[process.execPath, require('path').dirname(require('path').dirname(process.execPath))].join('\\n')",
)
_INTERPRETERS = {"python3": _ASK_PYTHON, "python": _ASK_PYTHON, "node": _ASK_NODE}


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The PATH that a job gets, and the folders that its sandbox must show read-only for it to work."""

    path: str
    readable: tuple[str, ...]


def find_toolchain(path: str, *, home: str, programs: Iterable[str] = ()) -> Toolchain:
    """Find what must be visible for the programs on PATH to start; blocks while it asks the interpreters.

    Args:
        path: The PATH to look through, as in the environment.
        home: HOME; it and what is above it are never shown as a whole.
        programs: More programs that must start (names, or paths), such as the first word of a command.

    Returns:
        The PATH with the real interpreters in place of shims, and what to bind.
    """
    entries = [entry for entry in dict.fromkeys(path.split(":")) if _may_show(entry, home)]
    readable = [entry for entry in entries if not _in_system(entry)]
    first: list[str] = []
    shims: set[str] = set()
    for found, answer in _asked(path):
        executable, *prefixes = answer
        if not executable:
            continue
        if (folder := str(Path(executable).parent)) != str(Path(found).parent):
            shims.add(str(Path(found).parent))
            first += [folder] if folder not in first else []
        for prefix in (*prefixes, str(Path(executable).resolve().parent.parent)):
            readable += _parts(prefix, home)
    for name in programs:
        readable += _program(name, path, home)
    order = [*first, *(entry for entry in entries if entry not in shims and entry not in first)]
    shown = [entry for entry in readable if entry not in shims]
    return Toolchain(":".join(order), _outermost(shown))


def venv_prefix(folder: str, home: str) -> list[str]:
    """Return what must be visible for a virtual environment's interpreter to start, besides the folder itself.

    A candidate's set-up may have written what is read here, so nothing is shown but an installation of Python.
    """
    lines = _settings_of(folder).splitlines()
    values = (line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == "home")
    found = next(values, "")
    if not found.startswith("/") or _in_system(found):
        return []
    prefix = Path(found).resolve().parent
    return _parts(str(prefix), home) if any(prefix.glob("lib*/p*/os.py")) else []


def _settings_of(folder: str) -> str:
    """Return the settings of a virtual environment; empty where there are none, or no plain file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(f"{folder}/pyvenv.cfg", flags)
    except OSError:  # it is none
        return ""
    with os.fdopen(handle, "rb") as file:
        is_plain = stat.S_ISREG(os.fstat(handle).st_mode)
        return file.read(_SETTINGS_BYTES).decode("utf-8", "replace") if is_plain else ""


def _asked(path: str) -> list[tuple[str, list[str]]]:
    """Return the interpreters outside the system's folders, each with what it says of itself.

    All are asked at once, since a shim takes its time. An answer is the executable and its prefixes; an empty word if there is none.
    """
    found = {shutil.which(name, path=path): question for name, question in _INTERPRETERS.items()}
    asked = [
        (name, _begun(name, question)) for name, question in found.items() if name and not _in_system(name)
    ]
    return [(name, _answer(process)) for name, process in asked]


def _begun(program: str, question: tuple[str, ...]) -> subprocess.Popen[str] | None:
    try:
        return subprocess.Popen(
            [program, *question],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return None


def _answer(process: subprocess.Popen[str] | None) -> list[str]:
    if process is None:
        return [""]
    with process:
        try:
            said, _ = process.communicate(timeout=_ASK_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return [""]
    return said.splitlines() if process.returncode == 0 and said else [""]


def _program(name: str, path: str, home: str) -> list[str]:
    """Return the program's own file and the folder of the file that it is a link to."""
    found = shutil.which(name, path=path)
    if found is None:
        return []
    real = Path(found).resolve()
    shown = [found, str(real), str(real.parent)]
    return [entry for entry in shown if _may_show(entry, home) and not _in_system(entry)]


def _parts(prefix: str, home: str) -> list[str]:
    """Return the prefix, or of one that is shared with other things only what holds programs."""
    if _in_system(prefix):
        return []
    shared = {home, str(Path(home, ".local"))}
    if prefix not in shared and _may_show(prefix, home):
        return [prefix]
    return [part for part in (f"{prefix}/bin", f"{prefix}/lib") if Path(part).is_dir()]


def _may_show(entry: str, home: str) -> bool:
    path = Path(entry)
    return path.is_absolute() and path.exists() and not Path(home).is_relative_to(path)


def _in_system(path: str) -> bool:
    return any(Path(path).is_relative_to(directory) for directory in SYSTEM_DIRS)


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for path in sorted(dict.fromkeys(paths)):
        if not any(Path(path).is_relative_to(outer) for outer in kept):
            kept.append(path)
    return tuple(kept)
