"""What a noisy run claims, wherever it is read: only what runs of the same minutes showed."""

from __future__ import annotations

import json
import math
import random
from functools import cache

import pytest

from sid_daemon.report.series import MERGED, series
from sid_daemon.rpc.rows import round_summary, run_row
from sid_daemon.store.documents import render_list
from sid_protocol.commands import AnyCommand, Measure
from sid_protocol.events import AnyEvent
from sid_protocol.records import IterationHistory, MergeReport
from sid_protocol.settings import Measurement, Settings
from tests.core.play import Play, created, measured, played

SD = 0.01
GAIN = 0.05
ROUNDS = 3
DIRECTIONS = ("higher_is_better", "lower_is_better")


@cache
def run(direction: str, level: float) -> Play:
    """Return a run of three rounds on a machine so many times as fast as at set-up; in each the first of four is better."""
    dice = random.Random(5)
    step = 1 + GAIN if direction == "higher_is_better" else 1 / (1 + GAIN)

    def score(wins: int) -> float:
        return 10.0 * level * step**wins * math.exp(dice.gauss(0, SD))

    def audited(command: AnyCommand) -> AnyEvent | None:
        if not isinstance(command, Measure) or command.stage != "audit":
            return None
        return measured(score(ROUNDS if command.arm == "A" else 0))

    settings = Settings(
        number_of_agents=4,
        benchmark_command="b",
        benchmark_direction=direction,  # type: ignore[arg-type]  # one of DIRECTIONS
        max_iterations=ROUNDS,
        measurement=Measurement(mode="noisy", screen_blocks=4),
    )
    return played(
        settings,
        created(settings, deterministic=False),
        score=lambda arm, iteration: score(iteration - 1 + (arm == "executor_1")),
        answer=audited,
    )


SLOWER_AND_FASTER = [(direction, level) for direction in DIRECTIONS for level in (0.9, 1.1)]


@pytest.mark.parametrize(("direction", "level"), SLOWER_AND_FASTER)
def test_a_win_has_the_sign_and_size_of_a_win_on_a_machine_that_changed(direction: str, level: float) -> None:
    play = run(direction, level)
    better = 1 if direction == "higher_is_better" else -1
    assert play.now.history.merges == 3

    keeps = [row.split("\t") for row in play.entries["tracking/results.tsv"] if "\tkeep\t" in row]
    deltas = [float(row[3]) for row in keeps]
    for iteration in range(1, ROUNDS + 1):
        history = play.files[f"state/iteration_history/round_{iteration}.json"]
        report = play.files[f"state/merge_reports/round_{iteration}.json"]
        row = round_summary(
            IterationHistory.model_validate_json(history),
            MergeReport.model_validate_json(report),
            play.now.settings.benchmark_direction,
        )
        assert row.delta is not None
        deltas.append(row.delta)
    assert len(deltas) == 2 * ROUNDS
    assert all(0.02 < better * delta / (10 * level) < 0.09 for delta in deltas)

    assert play.now.audited is not None
    # Of the baseline of 10: not of what it would score on this machine.
    truth = 10.0 * (1.05**3 - 1 if better > 0 else 1 - 1.05**-3)
    assert run_row(play.now).gain == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize(("direction", "level"), SLOWER_AND_FASTER)
def test_an_interval_holds_the_figure_that_it_stands_beside(direction: str, level: float) -> None:
    play = run(direction, level)
    seen = 0
    for _, _, state in play.steps:
        if state.best_interval is not None:
            low, high = state.best_interval
            assert (low or -math.inf) <= state.best_score <= (high or math.inf)
            seen += 1
    dots = series(play.entries["tracking/raw_data.json"], 10.0, direction).dots
    for dot in dots:
        if dot.low is not None and dot.high is not None and dot.score is not None:
            assert dot.low <= dot.score <= dot.high
            seen += 1
    assert [dot.gain is not None and dot.gain > 0.02 for dot in dots if dot.outcome == MERGED] == [True] * 3
    assert seen > 3


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_memory_calls_nobody_ahead_whose_pairs_say_otherwise(direction: str) -> None:
    play = run(direction, 1.1 if direction == "higher_is_better" else 0.9)
    entries = play.entries["state/memory.md"]
    lost = [one for entry in map(json.loads, entries) for one in entry.get("lost", ())]
    assert len(lost) == 9
    page = render_list("state/memory.md", entries)
    ahead, behind = (
        page.split("## What was ahead")[1].split("## What lost")
        if "## What was ahead" in page
        else ("", page)
    )

    assert all("~ +" in line for line in ahead.splitlines() if line.startswith("- round"))
    assert all("~ +" not in line for line in behind.splitlines() if line.startswith("- round"))
    assert page.count("~ ") == len(lost)
    assert "3 won" in page
