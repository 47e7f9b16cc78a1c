"""The step chart: what is in it, and that it is drawn, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sid_daemon.core.state import RunState
from sid_daemon.drawing import render_chart
from sid_daemon.layout import RAW_DATA
from sid_daemon.report.chart import NO_LIBRARY, main
from sid_daemon.report.series import FAILED, MERGED, NO_GAIN, WORSE, Subject, series
from sid_daemon.report.vega import MARKS, step_chart
from sid_daemon.store.journal import Batch, Journal
from sid_protocol.errors import SidError
from sid_protocol.settings import Settings
from tests.core.play import Play, World, created


def entry(iteration: int, score: float | None, *, wins: bool = False, **more: Any) -> str:
    fields = {
        "iteration": iteration,
        "plan_id": f"round_{iteration}_planner_a",
        "benchmark_score": score,
        "is_winner": wins,
        "approach_family": "data",
        "sub_scores": {},
    }
    return json.dumps({**fields, **more})


def state(**more: Any) -> RunState:
    made = Settings(**{"benchmark_command": "b", "primary_metric": "ops", **more})
    return Play(World(made), created(made)).now


def subject(**more: Any) -> Subject:
    return Subject.of(state(**more), 5.0)


def database(folder: Path, entries: list[str]) -> Path:
    """Make a run's database with these candidates, open elsewhere."""
    journal = Journal(folder / "run.db")
    journal.append(Batch((), {}, tuple((RAW_DATA, one) for one in entries)))
    journal.close()
    return journal.path


TWO_ROUNDS = [
    entry(1, 9.0),
    entry(1, 12.0, wins=True),
    entry(1, None),
    entry(2, 12.0, approach_family="testing"),
    entry(2, 15.0, wins=True),
]


def texts(spec: Any) -> list[str]:
    """Return every text of a specification's data."""
    if isinstance(spec, dict):
        own = [spec["told"]] if "told" in spec else []
        return own + [text for value in spec.values() for text in texts(value)]
    return [text for value in spec for text in texts(value)] if isinstance(spec, list) else []


def points(spec: dict[str, Any]) -> list[dict[str, Any]]:
    (found,) = [
        layer["data"]["values"] for layer in spec["vconcat"][0]["layer"] if layer["mark"]["type"] == "point"
    ]
    assert isinstance(found, list)
    return found


def test_every_candidate_is_in_the_series_with_its_outcome() -> None:
    found = series(TWO_ROUNDS, 10.0, "higher_is_better")

    assert [dot.outcome for dot in found.dots] == [WORSE, MERGED, FAILED, NO_GAIN, MERGED]
    assert [dot.before for dot in found.dots] == [10.0, 10.0, 10.0, 12.0, 12.0]
    assert [best for _, best in found.line] == [10.0, 12.0, 15.0, 15.0]
    assert [x for x, _ in found.line] == sorted(x for x, _ in found.line)


def test_the_series_goes_down_where_lower_is_better() -> None:
    found = series([entry(1, 9.0, wins=True), entry(1, 11.0)], 10.0, "lower_is_better")

    assert [dot.outcome for dot in found.dots] == [MERGED, WORSE]
    assert found.line[-1][1] == 9.0


def test_a_round_that_was_resumed_by_another_tool_begins_where_it_was() -> None:
    found = series([entry(41, 12.0, wins=True)], 10.0, "higher_is_better")

    assert found.line[0] == (40.0, 10.0)


def test_the_chart_shows_baseline_target_gains_and_failures() -> None:
    spec = step_chart(TWO_ROUNDS, subject(target_value=16.0))

    assert {"baseline 10", "target 16", "+20.0 %", "+25.0 %", FAILED} <= set(texts(spec))
    assert len(points(spec)) == 4
    assert len(spec["vconcat"][1]["layer"][0]["data"]["values"]) == 1
    assert spec["title"]["text"] == "faster sieve: 10 → 15 (+50.0 %)"
    assert spec["title"]["subtitle"] == "2 rounds · 5 candidates · 2 merged · 1 no gain · 1 worse · 1 failed"


def test_a_wild_score_stands_at_the_edge_and_is_told() -> None:
    spec = step_chart([*TWO_ROUNDS, entry(3, -1e6)], subject())

    assert "1 off the scale, drawn at its edge" in spec["title"]["subtitle"]
    assert min(point["y"] for point in points(spec)) > -10


def test_a_target_out_of_reach_is_told_and_not_drawn() -> None:
    spec = step_chart(TWO_ROUNDS, subject(target_value=1e6))

    assert "target 1e+06 is off the scale" in spec["title"]["subtitle"]
    assert not [text for text in texts(spec) if text.startswith("target")]


def test_labels_do_not_meet() -> None:
    wins = [entry(n, 10.0 + n / 100, wins=True) for n in range(1, 101)]
    labels = [text for text in texts(step_chart(wins, subject())) if text.endswith(" %")]

    assert 3 < len(labels) < 30


def test_intervals_are_drawn_in_score_units() -> None:
    noisy = entry(1, 12.0, wins=True, measurement={"n": 8, "gain": 0.2, "ci": [0.15, 0.25]})
    open_end = entry(1, 9.0, measurement={"n": 2, "gain": -0.1, "ci": [None, None]})
    first, second = series([noisy, open_end], 10.0, "higher_is_better").dots

    assert (first.low, first.high, second.low) == (11.5, 12.5, None)
    lower = entry(1, 8.0, wins=True, measurement={"n": 8, "gain": 0.2, "ci": [0.15, 0.25]})
    mirrored = series([lower], 10.0, "lower_is_better").dots[0]
    assert (mirrored.low, mirrored.high) == (7.5, 8.5)


@pytest.mark.parametrize(("baseline", "direction"), [(100.0, "higher_is_better"), (80.0, "lower_is_better")])
def test_a_machine_that_changed_turns_no_win_into_a_loss(baseline: float, direction: Any) -> None:
    """The score is worse than the baseline's of another day; side by side the candidate was 4 % better."""
    won = entry(1, 94.0, wins=True, measurement={"n": 9, "gain": 0.04, "ci": [0.03, 0.05]})
    lost = entry(1, 91.0, measurement={"n": 9, "gain": 0.001, "ci": [-0.01, 0.01]})
    first, second = series([won, lost], baseline, direction).dots

    assert None not in (first.low, first.high)
    assert (first.low or 0.0) < 94.0 < (first.high or 0.0)
    assert second.outcome == NO_GAIN
    about = replace(subject(), baseline=baseline, direction=direction, gain=4.0)
    spec = step_chart([won, lost], about)
    assert "+4.0 %" in texts(spec)
    assert spec["title"]["text"].endswith(f"(+{400 / baseline:.1f} %)")


def test_names_from_agents_are_only_data() -> None:
    hostile = entry(1, 11.0, approach_family="</svg><script>alert(1)</script>")
    spec = step_chart([hostile], replace(subject(), goal_slug="a\nb\x1b"))

    assert spec["title"]["text"].startswith("a b:")
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec


def test_marks_that_would_cover_each_other_are_drawn_once_and_counted_all() -> None:
    many = [entry(n, 10.0 + n % 7, wins=n % 5 == 0) for n in range(1, 3 * MARKS)]
    spec = step_chart(many, subject())

    drawn = points(spec)
    assert 500 < len(drawn) <= MARKS
    assert {point["outcome"] for point in drawn} == {MERGED, NO_GAIN, WORSE}
    assert f"{len(many)} candidates" in spec["title"]["subtitle"]
    assert drawn[-1]["x"] == len(many)


@pytest.mark.parametrize(
    "entries",
    [[], [entry(1, 9.5)], [entry(1, None)], TWO_ROUNDS],
    ids=["nothing", "one", "a failure", "two rounds"],
)
async def test_a_chart_is_drawn_of_much_and_of_little(
    entries: list[str], real_process: Any, short_dir: Path
) -> None:
    picture = await render_chart(database(short_dir, entries), subject(), "png")

    assert picture.startswith(b"\x89PNG\r\n\x1a\n")


async def test_an_svg_holds_its_texts(real_process: Any, short_dir: Path) -> None:
    entries = [*TWO_ROUNDS, entry(3, 9.0, approach_family="<script>x</script>")]
    picture = (await render_chart(database(short_dir, entries), subject(), "svg")).decode()

    assert picture.startswith("<svg")
    assert "+25.0 %" in picture
    assert "<script" not in picture


async def test_a_chart_that_cannot_be_drawn_says_why(real_process: Any, short_dir: Path) -> None:
    with pytest.raises(SidError, match=r"the chart could not be drawn.*unable to open database"):
        await render_chart(short_dir / "gone.db", subject(), "png")


async def test_drawing_has_a_deadline(real_process: Any, short_dir: Path) -> None:
    with pytest.raises(SidError, match="longer than 0"):
        await render_chart(database(short_dir, []), subject(), "png", deadline_s=0.01)


async def test_a_chart_goes_behind_others_only_if_nobody_waits_for_it(
    real_process: Any, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawer = short_dir / "drawer"
    drawer.write_text("#!/bin/sh\nexec nice\n")
    drawer.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(drawer))
    place = database(short_dir, [])
    waited_for = int(await render_chart(place, subject(), "png"))
    assert waited_for == os.nice(0)
    assert int(await render_chart(place, subject(), "png", stands_back=True)) > waited_for


async def test_a_missing_library_names_its_extra(
    real_process: Any, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / "vl_convert.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(short_dir), os.environ.get("PYTHONPATH", "")]))

    with pytest.raises(SidError, match=r"vl-convert-python.*sid-daemon\[charts\]"):
        await render_chart(short_dir / "run.db", subject(), "png")


def test_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sid_daemon.report.chart", "gif", "run.db"],
        input=b"{}",
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, b"")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main(["png", "run.db"]) == NO_LIBRARY


def test_the_daemon_never_loads_the_drawing_library() -> None:
    code = (
        "import sys, sid_daemon.report.chart, sid_daemon.report.series; sys.exit('vl_convert' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
