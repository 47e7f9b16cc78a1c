"""Rules that decide a round: the project's own, that of oh-my-claudecode, and the common alternatives.

Each is a class with `round(world, gains)`: the gains are the true relative gains of the round's candidates; it
returns the index of the one it merged, or None. What it remembers between rounds is its own.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean, median, variance
from typing import Protocol, cast

from benchmarks.measurement.worlds import World
from sid_daemon.core.measuring import calibration
from sid_daemon.core.measuring.selection import begin, decide
from sid_daemon.core.measuring.words import (
    Ask,
    AskMerge,
    AskRun,
    Candidate,
    Fed,
    MergeResult,
    Policy,
    SelectionHistory,
    Verdict,
)


class Rule(Protocol):
    @property
    def best_score(self) -> float: ...

    def prepare(self, world: World) -> None: ...

    def round(self, world: World, gains: list[float]) -> int | None: ...


def arms(world: World, gains: list[float]) -> list[str]:
    """Make the round's candidates known to the world."""
    names = [f"executor_{index + 1}" for index in range(len(gains))]
    for name, gain in zip(names, gains, strict=True):
        world.truths[name] = world.truths["A"] * math.exp(gain)
    return names


def keep(world: World, arm: str) -> None:
    world.truths["A"] = world.truths[arm]


@dataclass
class Ours:
    """The project's own decision code, driven run by run."""

    policy: Policy = field(default_factory=lambda: Policy("higher_is_better", "noisy"))
    history: SelectionHistory = field(default_factory=SelectionHistory)
    best: float | None = None
    iteration: int = 0
    verdict: Verdict | None = None

    @property
    def best_score(self) -> float:
        return self.best or 0.0

    def prepare(self, world: World) -> None:
        state = calibration.Calibration(self.policy.direction, runs=self.policy.calibration_runs)
        while isinstance(found := calibration.next_ask(state), AskRun):
            state = calibration.on_run(state, world.run(found.arm))
        self.policy = replace(self.policy, mode=found.mode)
        self.best, self.history = found.baseline, found.history

    def round(self, world: World, gains: list[float]) -> int | None:
        self.iteration += 1
        names = arms(world, gains)
        candidates = tuple(Candidate(name, world.run(name), 1) for name in names)
        selection = begin(
            self.policy,
            incumbent_score=self.best,
            history=self.history,
            candidates=candidates,
            iteration=self.iteration,
        )
        self.verdict = self._drive(world, decide(selection))
        self.history = self.verdict.history
        if self.verdict.best_score is not None:
            self.best = self.verdict.best_score
        if self.verdict.winner is None:
            return None
        keep(world, self.verdict.winner)
        return names.index(self.verdict.winner)

    @staticmethod
    def _drive(world: World, flow: Generator[Ask, Fed, Verdict]) -> Verdict:
        try:
            ask = next(flow)
            while True:
                if isinstance(ask, AskMerge):
                    world.truths["merged"] = world.truths[ask.arm]
                    fed: Fed = MergeResult(ask.arm, conflict=False)
                else:
                    fed = world.run(ask.arm)
                ask = flow.send(fed)
        except StopIteration as end:
            return cast("Verdict", end.value)


@dataclass
class Omc:
    """Rank by one score each; best first: merge, one re-benchmark, keep if not below the remembered best."""

    best_score: float = 0.0

    def prepare(self, world: World) -> None:
        self.best_score = fmean(world.score("A") for _ in range(3))

    def round(self, world: World, gains: list[float]) -> int | None:
        names = arms(world, gains)
        scores = {name: world.score(name) for name in names}
        for name in sorted(names, key=lambda one: -scores[one]):
            if scores[name] < self.best_score:
                break
            again = world.score(name)
            if again >= self.best_score:
                self.best_score = again
                keep(world, name)
                return names.index(name)
        return None


@dataclass
class Greedy:
    """Keep whatever scores above the remembered best, once."""

    best_score: float = 0.0

    def prepare(self, world: World) -> None:
        self.best_score = world.score("A")

    def round(self, world: World, gains: list[float]) -> int | None:
        names = arms(world, gains)
        scores = {name: world.score(name) for name in names}
        winner = max(names, key=lambda one: scores[one])
        if scores[winner] <= self.best_score:
            return None
        self.best_score = scores[winner]
        keep(world, winner)
        return names.index(winner)


@dataclass
class MedianOf:
    """Median of a few runs each, kept if above the remembered best by a minimum gain."""

    runs: int = 3
    min_gain: float = 0.005
    best_score: float = 0.0

    def prepare(self, world: World) -> None:
        self.best_score = median(world.score("A") for _ in range(self.runs))

    def round(self, world: World, gains: list[float]) -> int | None:
        names = arms(world, gains)
        scores = {name: median(world.score(name) for _ in range(self.runs)) for name in names}
        winner = max(names, key=lambda one: scores[one])
        if scores[winner] <= self.best_score * (1 + self.min_gain):
            return None
        self.best_score = scores[winner]
        keep(world, winner)
        return names.index(winner)


@dataclass
class Welch:
    """A one-sided Welch test (normal approximation, 1 %) of each candidate's runs against a stored base."""

    runs: int = 8
    alpha: float = 0.01
    retries: int = 0
    base: list[float] = field(default_factory=list)

    @property
    def best_score(self) -> float:
        return fmean(self.base)

    def prepare(self, world: World) -> None:
        self.base = [world.score("A") for _ in range(self.runs)]

    def round(self, world: World, gains: list[float]) -> int | None:
        names = arms(world, gains)
        samples = {name: [world.score(name) for _ in range(self.runs)] for name in names}
        for _ in range(self.retries + 1):
            winner = max(names, key=lambda one: fmean(samples[one]))
            if self._p(samples[winner]) < self.alpha:
                self.base = samples[winner]
                keep(world, winner)
                return names.index(winner)
            samples[winner] += [world.score(winner) for _ in range(self.runs)]
        return None

    def _p(self, sample: list[float]) -> float:
        spread = math.sqrt(variance(sample) / len(sample) + variance(self.base) / len(self.base))
        lead = fmean(sample) - fmean(self.base)
        if spread == 0:
            return 0.0 if lead > 0 else 1.0
        return 1 - NormalDist().cdf(lead / spread)
