"""Machines with a known truth: what a benchmark run would print, under several kinds of noise.

A world holds the true score of each arm and a clock that each run advances by one. The noise is relative
(0.01 is 1 %) and multiplies the truth, as a slow machine multiplies a running time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

from sid_daemon.core.measuring.words import RunResult

Noise = Callable[[random.Random], Iterator[float]]


def none(_dice: random.Random) -> Iterator[float]:
    while True:
        yield 0.0


def gaussian(sd: float) -> Noise:
    def noise(dice: random.Random) -> Iterator[float]:
        while True:
            yield dice.gauss(0, sd)

    return noise


def heavy(sd: float) -> Noise:
    """Student's t with 2 degrees of freedom: infinite variance, outliers of ten sd are common."""

    def noise(dice: random.Random) -> Iterator[float]:
        while True:
            yield sd * dice.gauss(0, 1) / math.sqrt(dice.expovariate(1.0))

    return noise


def skewed(sd: float) -> Noise:
    """What neighbours do to a program: now and then (1 run in 10) it is 10 sd slower, never faster."""

    def noise(dice: random.Random) -> Iterator[float]:
        while True:
            yield dice.gauss(0, sd) - (10 * sd if dice.random() < 0.1 else 0.0)

    return noise


def drift(sd: float) -> Noise:
    """A random walk of a third of an sd a run (18 % over 300 runs at 3 %) under the noise."""

    def noise(dice: random.Random) -> Iterator[float]:
        level = 0.0
        while True:
            level += dice.gauss(0, sd / 3)
            yield level + dice.gauss(0, sd)

    return noise


def trend(sd: float) -> Noise:
    """Slower by a tenth of an sd with each run, as a machine that heats up, then back again."""

    def noise(dice: random.Random) -> Iterator[float]:
        level, step = 0.0, sd / 10
        while True:
            level -= step
            if abs(level) > 20 * sd:
                step = -step
            yield level + dice.gauss(0, sd)

    return noise


def regimes(sd: float) -> Noise:
    """Two states 10 sd apart, 15 runs each on average, as a neighbour that comes and goes."""

    def noise(dice: random.Random) -> Iterator[float]:
        slow = False
        while True:
            slow ^= dice.random() < 1 / 15
            yield dice.gauss(0, sd) - (10 * sd if slow else 0.0)

    return noise


def bimodal(sd: float) -> Noise:
    """Two levels 5 sd apart, either as likely in each run, as where memory falls this way or that."""

    def noise(dice: random.Random) -> Iterator[float]:
        while True:
            yield dice.gauss(0, sd / 5) + (5 * sd if dice.random() < 0.5 else 0.0)

    return noise


def autocorrelated(sd: float) -> Noise:
    """Each run is much like the one before it: correlation 0.95."""

    def noise(dice: random.Random) -> Iterator[float]:
        level, kept = 0.0, 0.95
        while True:
            level = kept * level + dice.gauss(0, sd * math.sqrt(1 - kept * kept))
            yield level

    return noise


def thrice(sd: float) -> Noise:
    """One run in 20 takes three times as long, as where a cache is cold."""

    def noise(dice: random.Random) -> Iterator[float]:
        while True:
            yield dice.gauss(0, sd) - (math.log(3) if dice.random() < 0.05 else 0.0)

    return noise


def warm_up(sd: float) -> Noise:
    """30 % slower at first and warm after some 200 runs."""

    def noise(dice: random.Random) -> Iterator[float]:
        for run in itertools.count():
            yield dice.gauss(0, sd) - 0.3 * math.exp(-run / 60)

    return noise


def jumps(sd: float) -> Noise:
    """5 % faster after each 37 runs, ten times, then as slow as at first."""

    def noise(dice: random.Random) -> Iterator[float]:
        for run in itertools.count():
            yield dice.gauss(0, sd) + 0.05 * (run // 37 % 10)

    return noise


MODELS: dict[str, Noise] = {
    "none": none,
    "gaussian 1 %": gaussian(0.01),
    "gaussian 2 %": gaussian(0.02),
    "gaussian 5 %": gaussian(0.05),
    "heavy tails 1 %": heavy(0.01),
    "skewed 1 %": skewed(0.01),
    "drift 1 %": drift(0.01),
    "trend 1 %": trend(0.01),
    "regimes 1 %": regimes(0.01),
    "bimodal 1 %": bimodal(0.01),
    "autocorrelated 2 %": autocorrelated(0.02),
    "thrice 1 %": thrice(0.01),
    "warm-up 1 %": warm_up(0.01),
    "jumps 1 %": jumps(0.01),
}


class World:
    """A benchmark on a machine: `run` prints the truth of an arm, times the noise of the moment."""

    def __init__(self, noise: Noise, seed: int, truth: float = 100.0) -> None:
        self.dice = random.Random(seed)
        self._noise = noise(self.dice)
        self.truths: dict[str, float] = {"A": truth}
        self.level = 1.0
        self.runs = 0

    def score(self, arm: str) -> float:
        self.runs += 1
        return self.truths[arm] * self.level * math.exp(next(self._noise))

    def run(self, arm: str) -> RunResult:
        return RunResult(arm, self.score(arm), {}, "success", cpu_s=1.0, wall_s=1.0)
