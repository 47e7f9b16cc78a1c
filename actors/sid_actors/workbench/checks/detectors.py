"""Detectors: what in a candidate's diff looks like gaming the benchmark instead of improving the program. Pure.

`local` asks `detect` about every candidate that seal and scope let pass, and takes each finding as the setting
`detectors` says: ignored, a warning on the record, or a rejection. Only what is new counts: what the changed files
held before is nobody's trick. Python is read by its syntax (`pysyntax`), everything else and what does not parse line by line. A detector
proves nothing, and code that is bent on lying inside the benchmark's own process can hide from it; it makes the
cheap lies visible. The list is containment's.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sid_actors.workbench.checks.pysyntax import Facts, facts_of, same_but_seeds
from sid_protocol.errors import SettingsInvalid

Level = Literal["ignore", "warn", "reject"]

DEFAULTS: dict[str, Level] = {
    "seed_only": "reject",
    "detects_benchmark": "reject",
    "clock_patched": "reject",
    "exit_trick": "reject",
    "exit_hook": "reject",
    "import_hook": "reject",
    "judge_patched": "reject",
    "prints_score": "reject",
    "reads_sealed": "reject",
    "shadows_module": "reject",
    "test_weakened": "reject",
    "clock_read": "warn",
    "module_patched": "warn",
    "network_used": "warn",
    "not_parsed": "warn",
    "process_started": "warn",
    "raw_output": "warn",
    "sealed_imported": "warn",
    "tolerance_widened": "warn",
}
"""Every detector, with what is done about its findings unless the settings say otherwise."""

MEANING: dict[str, str] = {
    "seed_only": "changes nothing but a seed or a random state",
    "detects_benchmark": "reads a SID_ variable, or looks at who calls it",
    "clock_patched": "replaces a clock",
    "exit_trick": "ends the process past everything that should still run (os._exit, os.abort)",
    "exit_hook": "runs something at the process's end (atexit)",
    "import_hook": "changes how modules are imported, traced or found",
    "judge_patched": "replaces a part of a sealed module, of builtins, or standard output",
    "prints_score": "prints what the benchmark's own score line looks like",
    "reads_sealed": "names a sealed file as data",
    "shadows_module": "adds a module that the benchmark would import in place of a standard or a sealed one",
    "test_weakened": "skips a test or widens its tolerance",
    "clock_read": "reads a clock that it did not read before",
    "module_patched": "replaces a part of another module",
    "network_used": "uses the network",
    "not_parsed": "is Python that cannot be read as such: a newer one, or wrong; detectors looked at its lines only",
    "process_started": "starts processes",
    "raw_output": "writes to standard output past print",
    "sealed_imported": "imports a sealed module",
    "tolerance_widened": "widens a numeric tolerance",
}
"""What each means, for people; `docs/reference` is made from it."""

_TEXT_SUFFIXES = (
    *(".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".lua", ".php", ".c", ".cc", ".cpp", ".h"),
    *(".hpp", ".rs", ".go", ".java", ".kt", ".swift", ".jl", ".r", ".mk", ".pyx", ".py"),
)
_TEXT_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("detects_benchmark", re.compile(r"\bSID_[A-Z]+")),
    ("exit_trick", re.compile(r"\b_exit\s*\(|\bquick_exit\s*\(|process\.reallyExit")),
    ("clock_patched", re.compile(r"(?:Date\.now|performance\.now)\s*=[^=]|\bfaketime\b|\bLD_PRELOAD\b")),
)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FileChange:
    """One changed file: its text before and after; None where it is absent, too large, or not text."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one detector saw."""

    detector: str
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.detector}: {self.path}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the detectors know of a track beside the diff.

    Attributes:
        metric: The score's key.
        form: The benchmark's format.
        sealed: The sealed files.
    """

    metric: str
    form: str
    sealed: tuple[str, ...]


def check_names(levels: Mapping[str, str]) -> None:
    """Refuse a setting that names a detector that does not exist.

    Raises:
        SettingsInvalid: with the names there are.
    """
    if unknown := sorted(levels.keys() - DEFAULTS.keys()):
        raise SettingsInvalid(
            "detectors",
            f"there is no detector {unknown[0]}",
            hint=f"use one of: {', '.join(sorted(DEFAULTS))}",
        )


def sorted_out(
    findings: Sequence[Finding], levels: Mapping[str, Level]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that reject and those that warn."""

    def of(level: Level) -> tuple[Finding, ...]:
        return tuple(f for f in findings if levels.get(f.detector, DEFAULTS[f.detector]) == level)

    return of("reject"), of("warn")


def detect(changes: Sequence[FileChange], case: Case) -> list[Finding]:
    """Return what the detectors see in a candidate's changes, each thing once."""
    found = [*_seed_only(changes), *_shadowing(changes, case)]
    asked = _asked(case)
    known: set[tuple[str, str]] = set()
    fresh: list[tuple[str, Facts]] = []
    for change in changes:
        if change.path.endswith(".py"):
            before = facts_of(change.path, change.before or "", asked)
            after = facts_of(change.path, change.after or "", asked)
            known |= before.seen
            fresh.append((change.path, after))
            found += _weakened(change.path, before, after)
            if not after.is_parsed:
                found += _by_lines(change, case)
            if before.is_parsed and not after.is_parsed:
                found.append(Finding("not_parsed", change.path, "does not parse"))
        else:
            found += _by_lines(change, case)
    for path, facts in fresh:
        found += [Finding(detector, path, what) for detector, what in sorted(facts.seen - known)]
    return list(dict.fromkeys(found))


def _asked(case: Case) -> Mapping[str, str]:
    """Return sealed modules by dotted name, and sealed files by path: what `pysyntax` compares names with."""
    named: dict[str, str] = {"metric": case.metric, "form": case.form}
    for path in case.sealed:
        if path.endswith(".py"):
            dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            named[f"module {dotted}"] = path
        named[f"file {path}"] = path
    return named


def _seed_only(changes: Sequence[FileChange]) -> list[Finding]:
    if not changes or any(change.before is None or change.after is None for change in changes):
        return []
    if all(same_but_seeds(c.path, c.before or "", c.after or "") for c in changes):
        return [Finding("seed_only", changes[0].path, "only seeds differ")]
    return []


def _shadowing(changes: Sequence[FileChange], case: Case) -> list[Finding]:
    folders = {"", *(posixpath.dirname(path) for path in case.sealed)}
    hidden = _hidden_by(case.sealed)
    found = []
    for change in changes:
        folder, name = posixpath.split(change.path.removesuffix("/__init__.py"))
        module = name.split(".")[0]  # a compiled one may have its platform's name in the middle
        new = change.before is None and change.path.endswith((".py", ".so"))
        if new and folder in folders and module in sys.stdlib_module_names:
            found.append(Finding("shadows_module", change.path, f"hides the standard module {module}"))
        if change.before is None and (sealed := hidden.get(_plain_name(change.path))):
            found.append(Finding("shadows_module", change.path, f"is found before {sealed}, which is sealed"))
    return found


def _hidden_by(sealed: Sequence[str]) -> dict[str, str]:
    """Return what would be found before a sealed file where a program asks for it by its name without an ending.

    Python takes a package before a module, a compiled one before its source, and any module before a folder without
    `__init__.py`; Node takes a file without an ending before `.js`, and that before `.json` and a folder.
    """
    hidden: dict[str, str] = {}
    for path in sealed:
        stem, suffix = posixpath.splitext(path)
        if suffix == ".py":
            hidden |= dict.fromkeys((f"{stem}/__init__.py", f"{stem}/__init__.so", f"{stem}.so"), path)
            folder = posixpath.dirname(path)
            while folder and f"{folder}/__init__.py" not in sealed:
                hidden |= dict.fromkeys((f"{folder}.py", f"{folder}.so", f"{folder}/__init__.py"), path)
                folder = posixpath.dirname(folder)
        elif suffix in (".js", ".json", ".cjs", ".node"):
            hidden |= dict.fromkeys((stem, f"{stem}.js") if suffix != ".js" else (stem,), path)
            if posixpath.basename(stem) == "index":
                hidden |= dict.fromkeys((posixpath.dirname(path), f"{posixpath.dirname(path)}.js"), path)
    return {name: path for name, path in hidden.items() if name not in sealed}


def _plain_name(path: str) -> str:
    """Return a path without the name of a platform, which a compiled module has in the middle."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f"{name.split('.')[0]}.so") if name.endswith((".so", ".pyd")) else path


def _weakened(path: str, before: Facts, after: Facts) -> list[Finding]:
    detector = "test_weakened" if _is_test(path) else "tolerance_widened"
    return [
        Finding(detector, path, f"{where} {name}: {before.tolerances[where, name]:g} → {wide:g}")
        for (where, name), wide in sorted(after.tolerances.items())
        if wide > before.tolerances.get((where, name), wide)
    ]


def _is_test(path: str) -> bool:
    name = posixpath.basename(path)
    return name.startswith("test_") or name.endswith("_test.py") or "/tests/" in f"/{path}"


def _by_lines(change: FileChange, case: Case) -> list[Finding]:
    suffix = posixpath.splitext(change.path)[1].lower()
    if suffix not in _TEXT_SUFFIXES and posixpath.basename(change.path) not in ("Makefile", "justfile"):
        return []
    old = set((change.before or "").splitlines())
    named = [path for path in case.sealed if path in (change.after or "")]
    found = []
    for line in (change.after or "").splitlines():
        if line in old:
            continue
        found += [
            Finding(name, change.path, line.strip()[:80]) for name, rule in _TEXT_RULES if rule.search(line)
        ]
        if any(path in line and re.search(rf"[\"'/]{re.escape(path)}[\"']", line) for path in named):
            found.append(Finding("reads_sealed", change.path, line.strip()[:80]))
    return found[:_SHOWN]
