"""Simulate rounds with a known truth and print what each rule makes of them.

    python benchmarks/measurement/simulate.py            # 10,000 rounds a noise model: about half an hour on one core
    python benchmarks/measurement/simulate.py --quick    # 200 rounds: a minute
    python benchmarks/measurement/simulate.py --only false-merges --rule ours --rounds 2000 --trace runs.txt
    python benchmarks/measurement/simulate.py --only false-merges --model 'gaussian 1 %' --model 'trace sort-wall'

The project's rule is the project's own code (`sid_daemon.core.measuring.selection`), driven run by run. Rates stand with
their 95 % interval (Wilson). The traces in `traces/` are noise models, too, and so is one that `--trace` names: a file of
scores of one tree, one a line, in the order in which they were measured.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean, median

if __package__ in {None, ""}:  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measurement.rules import Greedy, MedianOf, Omc, Ours, Rule, Welch
from benchmarks.measurement.worlds import MODELS, Noise, World, gaussian
from sid_daemon.core.measuring.words import Policy

TRACES = Path(__file__).parent / "traces"
CAMPAIGN = 20  # rounds of one run: long enough for a remembered best to creep
NOBODY = [0.0, 0.0, 0.0, 0.0]


FULL = Policy("higher_is_better", "noisy")
QUICK = replace(FULL, screen_blocks=1, futility_sd=1.0)

RULES: dict[str, Callable[[int], Rule]] = {
    "ours": lambda seed: Ours(replace(FULL, seed=seed)),
    "ours, quick": lambda seed: Ours(replace(QUICK, seed=seed)),
    "rank, re-benchmark, >= (OMC)": lambda _: Omc(),
    "one run against the best": lambda _: Greedy(),
    "median of 3, +0.5 %": lambda _: MedianOf(),
    "Welch 1 %, stored base": lambda _: Welch(),
    "Welch 1 %, up to 3 retries": lambda _: Welch(retries=3),
}


@dataclass
class Tally:
    """What a rule did over many rounds."""

    rounds: int = 0
    merged: int = 0
    best_merged: int = 0
    runs: int = 0
    smoke_runs: int = 0
    covered: list[bool] = field(default_factory=list)

    def rate(self, count: int) -> str:
        low, high = wilson(count, self.rounds)
        return f"{100 * count / self.rounds:6.2f} [{100 * low:.2f}, {100 * high:.2f}]"


def wilson(count: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a rate."""
    z = 1.96
    share, weight = count / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / total + weight / (4 * total)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)


def play(
    make: Callable[[int], Rule], noise: Noise, gains: list[float], rounds: int, campaign: int = CAMPAIGN
) -> Tally:
    """Play rounds in runs of some length; the candidates come in a new order each round."""
    tally = Tally()
    for seed in itertools.count():
        if tally.rounds >= rounds:
            return tally
        world, rule = World(noise, seed), make(seed)
        rule.prepare(world)
        for _ in range(campaign):
            order = gains[:]
            world.dice.shuffle(order)
            before = world.runs
            merged = rule.round(world, order)
            tally.rounds += 1
            tally.runs += world.runs - before
            tally.smoke_runs += len(gains)
            if merged is None:
                continue
            tally.merged += 1
            tally.best_merged += order[merged] == max(gains)
            if isinstance(rule, Ours) and rule.verdict is not None and rule.verdict.interval is not None:
                low, high = rule.verdict.interval
                if low is not None and high is not None:
                    tally.covered.append(low <= order[merged] <= high)
    return tally


def false_merges(rounds: int, models: dict[str, Noise]) -> Iterable[str]:
    yield f"## Nothing is better: rounds that merge, % ({rounds} rounds a model, 4 candidates); runs a round"
    for model, noise in models.items():
        for name, make in RULES.items():
            tally = play(make, noise, NOBODY, rounds)
            yield f"{model:16} {name:30} {tally.rate(tally.merged):24} {per_round(tally)}"


def power(rounds: int, _models: dict[str, Noise]) -> Iterable[str]:
    yield "## One of four candidates is better: rounds that merge it, %; that merge another, %; runs a round; coverage"
    cases = [(0.005, 0.01), (0.01, 0.01), (0.01, 0.02), (0.02, 0.04), (0.05, 0.10)]
    for sd, gain in cases:
        for name, make in RULES.items():
            tally = play(make, gaussian(sd), [0.0, 0.0, 0.0, gain], rounds, campaign=1)
            wrong = tally.merged - tally.best_merged
            cover = f"covers {100 * fmean(tally.covered):.1f} %" if tally.covered else ""
            label = f"+{100 * gain:g} % at sd {100 * sd:g} %"
            yield (
                f"{label:18} {name:30} {tally.rate(tally.best_merged):24} "
                f"{100 * wrong / tally.rounds:5.2f}  {per_round(tally)}  {cover}"
            )
    yield "## The same at sd 1 % with fewer candidates, or all four better, the quick profile"
    for gains in ([0.02], [0.0, 0.02], [0.02] * 4):
        tally = play(lambda seed: Ours(replace(QUICK, seed=seed)), gaussian(0.01), gains, rounds, campaign=1)
        yield f"{gains!s:30} {tally.rate(tally.best_merged)}  {per_round(tally)}"


def moved_machine(rounds: int, _models: dict[str, Noise]) -> Iterable[str]:
    yield "## The machine changes after the baseline (sd 1 %): runs of rounds that merge anything, %"
    cases = (
        ("10 % slower, true +5 %", 0.9, [0.05, 0, 0, 0], 2),
        ("10 % faster, true -2 %", 1.1, [-0.02] * 4, 20),
    )
    for label, level, gains, length in cases:
        for name, make in RULES.items():
            merged = 0
            for seed in range(rounds // 10):
                world, rule = World(gaussian(0.01), seed), make(seed)
                rule.prepare(world)
                world.level = level
                merged += any(rule.round(world, gains) is not None for _ in range(length))
            low, high = wilson(merged, rounds // 10)
            yield (
                f"{label} in {length} rounds  {name:30} {1000 * merged / rounds:6.1f} [{100 * low:.1f}, {100 * high:.1f}]"
            )


def creep(rounds: int, _models: dict[str, Noise]) -> Iterable[str]:
    yield "## best_score against the truth after 50 rounds in which nothing is better, in sd of a run (sd 1 %)"
    for name, make in RULES.items():
        errors = []
        for seed in range(max(10, rounds // 50)):
            world, rule = World(gaussian(0.01), seed), make(seed)
            rule.prepare(world)
            for _ in range(50):
                rule.round(world, NOBODY)
            errors.append(math.log(rule.best_score / world.truths["A"]) / 0.01)
        within = fmean(abs(error) <= 1 for error in errors)
        yield f"{name:30} median {median(errors):+.2f}, mean {fmean(errors):+.2f}, within one sd {100 * within:.0f} %"


PARTS = {"false-merges": false_merges, "power": power, "moved-machine": moved_machine, "creep": creep}


def per_round(tally: Tally) -> str:
    return f"{(tally.runs - tally.smoke_runs) / tally.rounds:5.1f} + {tally.smoke_runs // tally.rounds} runs"


def recorded(path: Path) -> Noise:
    """A noise model replayed from a file, from a random place on."""
    scores = [float(line) for line in path.read_text().split()]
    middle = median(scores)
    noises = [math.log(score / middle) for score in scores]

    def noise(dice: Random) -> Iterator[float]:
        start = dice.randrange(len(noises))
        yield from itertools.islice(itertools.cycle(noises), start, None)

    return noise


def main() -> None:
    parser = argparse.ArgumentParser(description="simulate the measuring rule and others")
    parser.add_argument("--rounds", type=int, default=10_000, help="rounds of each row")
    parser.add_argument("--quick", action="store_true", help="200 rounds")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part of the table")
    parser.add_argument("--rule", choices=RULES, action="append", help="one rule of the table")
    parser.add_argument("--trace", type=Path, help="scores of one tree, one a line: one more noise model")
    traces = sorted(TRACES.glob("*.txt"))
    models = {**MODELS, **{f"trace {path.stem}": recorded(path) for path in traces}}
    parser.add_argument("--model", choices=models, action="append", help="one noise model of the table")
    given = parser.parse_args()
    rounds = 200 if given.quick else given.rounds
    for name in set(RULES) - set(given.rule or RULES):
        del RULES[name]
    models = {name: noise for name, noise in models.items() if name in (given.model or models)}
    if given.trace:
        models[f"trace {given.trace.stem}"] = recorded(given.trace)
    for name in given.only or PARTS:
        for line in PARTS[name](rounds, models):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
