"""What a repository already has that measures it: benchmarks to adopt, tests to keep green.

Pure: the list of tracked files and the text of a few of them in, offers out. Called by `init`; runs nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

_BENCH_NAME = re.compile(r"^bench(mark)?s?([_-].*)?$|^.*[_-]bench(mark)?s?$")
_BENCH_FOLDERS = ("bench", "benches", "benchmark", "benchmarks", "perf")
_BENCH_TARGETS = ("bench", "benchmark", "perf")
_OFFERS_MAX = 6


@dataclass(frozen=True, slots=True)
class Offer:
    """A command that could measure.

    Attributes:
        kind: `benchmark` gives a score; `test` passes or fails, and serves as a guard.
        command: As it would be set.
        format: How it would tell its score, as far as its text shows.
        why: Where it was found.
    """

    kind: Literal["benchmark", "test"]
    command: str
    format: str
    why: str


def survey(files: Sequence[str], read: Callable[[str], str]) -> list[Offer]:
    """Return what the repository offers, benchmarks before tests, the likeliest first.

    Args:
        files: Tracked files, relative, `/` between folders.
        read: Returns the text of one of them, empty if it cannot be read.
    """
    found = [*_scripts(files, read), *_make(files, read), *_node(files, read), *_pytest(files, read)]
    unique: dict[str, Offer] = {}
    for offer in found:
        unique.setdefault(offer.command, offer)
    return sorted(unique.values(), key=lambda offer: offer.kind == "test")[:_OFFERS_MAX]


def _scripts(files: Sequence[str], read: Callable[[str], str]) -> list[Offer]:
    offers = []
    for name in sorted(files, key=lambda file: (file.count("/"), file)):
        path = PurePosixPath(name)
        runner = {".py": "python3", ".sh": "sh"}.get(path.suffix)
        named = _BENCH_NAME.match(path.stem.lower()) is not None
        placed = bool(path.parts[:-1]) and path.parts[-2].lower() in _BENCH_FOLDERS
        if runner is None or not (named or placed) or path.stem.startswith(("__", "conftest", "test_")):
            continue
        command = f"{runner} {shlex.quote(name)}"
        offers.append(Offer("benchmark", command, _format(read(name)), f"the script {name}"))
    return offers


def _format(text: str) -> str:
    return "json" if "json.dumps" in text or '"primary"' in text else "number"


def _make(files: Sequence[str], read: Callable[[str], str]) -> list[Offer]:
    name = next((file for file in ("GNUmakefile", "Makefile", "makefile") if file in files), None)
    if name is None:
        return []
    targets = set(re.findall(r"^([A-Za-z0-9_-]+)\s*:(?!=)", read(name), re.MULTILINE))
    offers = [
        Offer("benchmark", f"make -s {target}", "number", f"the target {target} of {name}")
        for target in _BENCH_TARGETS
        if target in targets
    ]
    if "test" in targets:
        offers.append(Offer("test", "make -s test", "pass_fail", f"the target test of {name}"))
    return offers


def _node(files: Sequence[str], read: Callable[[str], str]) -> list[Offer]:
    if "package.json" not in files:
        return []
    try:
        document = json.loads(read("package.json"))
    except (ValueError, RecursionError):
        return []
    scripts = document.get("scripts") if isinstance(document, dict) else None
    if not isinstance(scripts, dict):
        return []
    offers = [
        Offer("benchmark", f"npm run --silent {name}", "number", f"the script {name} of package.json")
        for name in _BENCH_TARGETS
        if isinstance(scripts.get(name), str)
    ]
    if isinstance(scripts.get("test"), str) and "no test specified" not in scripts["test"]:
        offers.append(Offer("test", "npm test --silent", "pass_fail", "the script test of package.json"))
    return offers


def _pytest(files: Sequence[str], read: Callable[[str], str]) -> list[Offer]:
    tests = [file for file in files if re.search(r"(^|/)(test_[^/]*|[^/]*_test)\.py$", file)]
    if not tests:
        return []
    texts = [read(file) for file in tests[:20]]
    plain = any("unittest" in text for text in texts) and not any("pytest" in text for text in texts)
    command = "python3 -m unittest discover -q" if plain else "python3 -m pytest -q"
    return [Offer("test", command, "pass_fail", f"{len(tests)} files of tests")]
