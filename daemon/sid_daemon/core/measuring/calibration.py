"""Set-up: what does the benchmark say of the incumbent, and how well does it say it?

Theory of operation
-------------------
The same tree is run a few times before anything is judged. Three bitwise equal scores make the benchmark
deterministic, and a round then costs one run a candidate. Otherwise it is noisy: the baseline is the median,
and the gaps between neighbouring runs are the first of the noise floor that the screen and the fast lane
compare with. Said before round 1 is what that noise costs: the smallest gain that can be found. A failing
incumbent ends the set-up at once with the command's own words, since nothing can be compared with it.

Called at `init` and whenever the user asks for it again, and by the simulator. Like `selection`: `next_ask`
names the one run needed, `on_run` takes it. Never blames a candidate: there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Literal

from sid_daemon.core.measuring.evidence import MAD_TO_SD, TINY, Direction, Scale, findable_gains
from sid_daemon.core.measuring.session import medians
from sid_daemon.core.measuring.words import (
    INCUMBENT,
    NOISY_MIN_EFFECT,
    AskRun,
    Mode,
    RunResult,
    SelectionHistory,
)
from sid_daemon.core.wording import noise_line, share

# So many equal runs make a benchmark deterministic: also what the set-up gate asks for at least.
EQUAL_RUNS = 3
# The bar of oh-my-claudecode's set-up for the spread of a benchmark's runs.
NOISE_BAR = 0.05
# Wall time this many times as noisy as CPU time: other programs are being measured, not this one.
WALL_OVER_CPU = 3.0
# A run may take so many times the slowest seen, and never less than a minute: a loaded machine is no failure.
TIMEOUT_RUNS = 3.0
TIMEOUT_FLOOR_S = 60.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A set-up under way: what it was begun with and every run since.

    Args:
        direction: Which way the metric is better.
        mode: As set by the user; `noisy` asks for all runs, `auto` stops at three equal ones.
        runs: How many at most.
        pass_fail: Scores are 0 and 1.
        results: So far, in order.
    """

    direction: Direction
    mode: Literal["auto", "deterministic", "noisy"] = "auto"
    runs: int = 5
    pass_fail: bool = False
    results: tuple[RunResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What the set-up found out.

    Args:
        failed: The run that gave no score; nothing else is known then.
        mode: How rounds are to be judged.
        baseline: The incumbent's score: the one score, or the median.
        scores: All of them, in order.
        sub_scores: Medians by name.
        cv: Standard deviation over mean.
        spread: Largest minus smallest, over mean.
        sd_pair: Robust sd of a pair of runs, from neighbouring runs.
        integer: Every score was a whole number.
        run_s: Median wall time of a run, if known.
        run_timeout_s: Deadline of later runs: three times the slowest, at least a minute.
        advice: Sentences for the user.
        history: For the first round.
    """

    failed: RunResult | None
    mode: Mode = "noisy"
    baseline: float | None = None
    scores: tuple[float, ...] = ()
    sub_scores: dict[str, float] = field(default_factory=dict)
    cv: float = 0.0
    spread: float = 0.0
    sd_pair: float = 0.0
    integer: bool = False
    run_s: float | None = None
    run_timeout_s: float = TIMEOUT_FLOOR_S
    advice: tuple[str, ...] = ()
    history: SelectionHistory = field(default_factory=SelectionHistory)


def next_ask(calibration: Calibration) -> AskRun | Calibrated:
    """Return the next run of the incumbent, or what was found."""
    results = calibration.results
    failed = next((one for one in results if not one.valid), None)
    if failed is not None:
        return Calibrated(failed)
    equal = len({one.value for one in results}) == 1
    enough = len(results) >= EQUAL_RUNS and equal and calibration.mode != "noisy"
    if enough or len(results) >= max(calibration.runs, EQUAL_RUNS):
        return _found(calibration, deterministic=enough)
    return AskRun(INCUMBENT, "calibrate", serial=len(results))


def on_run(calibration: Calibration, result: RunResult) -> Calibration:
    """Return the state with one more run.

    Raises:
        ValueError: if it is a run of another arm, or none is outstanding.
    """
    if result.arm != INCUMBENT or isinstance(next_ask(calibration), Calibrated):
        raise ValueError(f"no run of {result.arm} is outstanding")
    return replace(calibration, results=(*calibration.results, result))


def _found(calibration: Calibration, *, deterministic: bool) -> Calibrated:
    results = calibration.results
    scores = tuple(one.value for one in results)
    baseline = median(scores)
    positive = min(scores) > 0
    integer = all(score == int(score) for score in scores)
    logarithmic = positive and not integer and not calibration.pass_fail
    scale = Scale(calibration.direction, logarithmic, 1.0 if calibration.pass_fail else baseline)
    gaps = tuple(abs(scale.gap(a, b)) for a, b in pairwise(scores))
    sub_scores = medians(results)
    walls = [one.wall_s for one in results if one.wall_s is not None]
    found = Calibrated(
        None,
        mode="deterministic" if deterministic else "noisy",
        baseline=baseline,
        scores=scores,
        sub_scores=sub_scores,
        cv=_cv(scores),
        spread=(max(scores) - min(scores)) / max(abs(fmean(scores)), TINY),
        sd_pair=MAD_TO_SD * median(gaps),
        integer=integer,
        run_s=median(walls) if walls else None,
        run_timeout_s=max(TIMEOUT_FLOOR_S, TIMEOUT_RUNS * max(walls, default=0.0)),
        history=SelectionHistory(
            aa_gaps=() if deterministic else gaps,
            sessions=() if deterministic else (scores,),
            all_positive=positive,
            all_whole=integer,
            guard_baseline=sub_scores,
        ),
    )
    return replace(found, advice=_advice(calibration, found))


def _advice(calibration: Calibration, found: Calibrated) -> tuple[str, ...]:
    """Return what the user should know before the first round."""
    if found.mode == "deterministic":
        return ()
    lines = [noise_line(found.sd_pair, *findable_gains(found.sd_pair, NOISY_MIN_EFFECT))]
    if calibration.mode == "deterministic":
        lines.append("the benchmark was set to be deterministic, but one tree gave different scores: noisy")
    if min(found.scores) < 0 < max(found.scores):
        lines.append(
            "scores lie on both sides of zero, where shares say little: score what is always positive"
        )
    elif found.cv > NOISE_BAR:
        lines.append(
            f"runs differ by {share(found.cv)} of their mean: a longer or quieter benchmark finds more"
        )
    wall = _cv([one.wall_s for one in calibration.results if one.wall_s is not None])
    cpu = _cv([one.cpu_s for one in calibration.results if one.cpu_s is not None])
    if wall > NOISE_BAR and wall > WALL_OVER_CPU * cpu > 0:
        lines.append(
            f"wall time differs by {share(wall)}, CPU time by {share(cpu)}: score CPU time or counted work if you can"
        )
    return tuple(lines)


def _cv(values: tuple[float, ...] | list[float]) -> float:
    """Return the coefficient of variation, 0 for fewer than two values."""
    return stdev(values) / max(abs(fmean(values)), TINY) if len(values) > 1 else 0.0
