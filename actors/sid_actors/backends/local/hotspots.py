"""Hot spots of a Python benchmark: how to run it under cProfile, and how to read what comes back.

Pure: builds an argument list and parses bytes. The run itself is a job in a clean checkout like any other, and
its output is never a score.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sid_actors.backends.local.profile_child import MARKER

CHILD = Path(__file__).with_name("profile_child.py")

_SHELL = re.compile(r"[;&|<>$`\n*?(){}~#!\[\]\\]")  # outside of quotes these mean something to a shell
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\]*\"")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_ALONE = re.compile(r"-[bBdEIOPqsSuv]+")
_WITH_VALUE = frozenset({"-X", "-W"})


@dataclass(frozen=True, slots=True)
class ProfileCommand:
    """How to start the profiled benchmark: arguments, and what to add to the benchmark's environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HotFunction:
    """A function of the checkout and what its calls cost.

    Attributes:
        path: Its file, relative to the checkout.
        line: Where it starts (its first decorator's line).
        name: Its bare name.
        calls: How often it was called.
        own_s: Seconds in itself.
        total_s: Seconds in itself and all that it called.
        called: For each function that it called itself: path (None outside of the checkout), line, seconds.
    """

    path: str
    line: int
    name: str
    calls: int
    own_s: float
    total_s: float
    called: tuple[tuple[str | None, int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class HotSpots:
    """Where the time of one run of the benchmark went."""

    functions: tuple[HotFunction, ...] = ()
    total_s: float = 0.0

    def cost_s(self, function: HotFunction, editable: frozenset[str]) -> float:
        """Return the seconds that only `function` can answer for: its own and those of what nobody may edit."""
        borrowed = sum(
            seconds for path, _, seconds in function.called if path is None or path not in editable
        )
        return min(function.total_s, function.own_s + borrowed)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as a JSON object, in the form that `profile_child` prints."""
        return {
            "functions": [
                [
                    f.path,
                    f.line,
                    f.name,
                    f.calls,
                    f.own_s,
                    f.total_s,
                    [[p, n, "", 0, s] for p, n, s in f.called],
                ]
                for f in self.functions
            ],
            "total_s": self.total_s,
        }


def profile_argv(benchmark_command: str) -> ProfileCommand | None:
    """Return how to run a benchmark command under the profiler; None where it is no plain Python command.

    `python3 x.py args` and `python -m module args` are, also with `VAR=value` or `env VAR=value` in front.
    Anything that needs a shell is not.
    """
    if _SHELL.search(_QUOTED.sub("", benchmark_command)):
        return None
    try:
        words = shlex.split(benchmark_command)
    except ValueError:
        return None
    if words[:1] == ["env"]:
        words = words[1:]
    env: dict[str, str] = {}
    while words and _ASSIGNMENT.match(words[0]):
        name, _, env[name] = words.pop(0).partition("=")
    if not words or not _PYTHON.fullmatch(words[0]):
        return None
    place = 1
    while place < len(words) and (_ALONE.fullmatch(words[place]) or words[place] in _WITH_VALUE):
        place += 2 if words[place] in _WITH_VALUE else 1
    target = words[place:]
    if not target or (target[0].startswith("-") and (target[0] != "-m" or len(target) == 1)):
        return None
    return ProfileCommand((*words[:place], str(CHILD), *target), env)


def parse_profile(output: bytes) -> HotSpots | None:
    """Return the profile that a run printed; None if there is none, or it is junk."""
    start = output.rfind(b"\n" + MARKER.encode())
    if start < 0:
        return None
    line = output[start + 1 + len(MARKER) :].split(b"\n", 1)[0]
    try:
        return hot_spots(json.loads(line))
    except (ValueError, RecursionError):
        return None


def hot_spots(value: object) -> HotSpots:
    """Return the profile that a JSON value holds.

    Raises:
        ValueError: it is none.
    """
    match value:
        case {"functions": list(rows), "total_s": int() | float() as total}:
            return HotSpots(tuple(_function(row) for row in rows), _seconds(total))
        case _:
            raise ValueError("a profile is an object with functions and total_s")


def _function(row: object) -> HotFunction:
    match row:
        case [str(path), int(line), str(name), int(calls), own, total, list(called)]:
            inner = tuple(_called(call) for call in called)
            return HotFunction(path, line, name, calls, _seconds(own), _seconds(total), inner)
        case _:
            raise ValueError("a function of a profile has 7 parts")


def _called(row: object) -> tuple[str | None, int, float]:
    match row:
        case [(str() | None) as path, int(line), str(), int(), seconds]:
            return path, line, _seconds(seconds)
        case _:
            raise ValueError("a call of a profile has 5 parts")


def _seconds(value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < 0
    ):
        raise ValueError("seconds are a finite number")
    return float(value)
