"""Journals that were recorded once are understood for good: a run that is on disk must survive an upgrade.

Each `golden/<name>.jsonl` is a journal as it was written, `<name>.json` what was known of the run then. A change that
breaks one of them breaks users' runs: mend the change, never the recording. `record` makes a new pair, for a story
that no recording tells yet:

    python -c "from tests.replay.test_golden import record; record('name', play)"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.store.views import project
from sid_protocol.events import RunCreated, parse_event
from sid_protocol.settings import Settings
from tests.core.play import Play, created

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))
KEPT = ("state/merge_reports/", "state/iteration_history/", "tracking/baseline.json")
MENDED = frozenset({"sd_pair"})
"""Figures that the recordings tell wrongly, and that decide nothing: this one was not the sd of the pairs."""


def known(state: RunState, documents: dict[str, str]) -> dict[str, Any]:
    """Return what an upgrade must not change."""
    return {
        "status": state.status,
        "completed": state.completed,
        "best_score": state.best_score,
        "head": state.head,
        "counters": [state.plateau_count, state.breaker_count, state.blocked_count],
        "winner_families": list(state.winner_families),
        "outstanding": sorted(state.outstanding),
        "documents": {path: json.loads(text) for path, text in documents.items() if path.startswith(KEPT)},
    }


def record(name: str, play: Play) -> None:
    """Write a journal and what is known of its run."""
    lines = [event.model_dump_json() for event in play.journal]
    (GOLDEN / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    told = json.dumps(known(play.now, play.files), indent=1, ensure_ascii=False)
    (GOLDEN / f"{name}.json").write_text(told + "\n")


def is_kept(then: Any, now: Any) -> bool:
    """Say whether all that was known then is known now; a field may have been added since, and evidence where none was."""
    if isinstance(then, dict):
        told = [key for key, value in then.items() if key not in MENDED and (key != "evidence" or value)]
        return isinstance(now, dict) and all(key in now and is_kept(then[key], now[key]) for key in told)
    if isinstance(then, list):
        return (
            isinstance(now, list)
            and len(then) == len(now)
            and all(is_kept(one, other) for one, other in zip(then, now, strict=True))
        )
    return bool(then == now)


def test_there_are_recordings() -> None:
    assert len(NAMES) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_journal_still_tells_the_same_run(name: str) -> None:
    state: RunState | None = None
    documents: dict[str, str] = {}
    for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines():
        event = parse_event(line)
        after, _ = step(state, event)
        documents.update(project(state, event, after).documents)
        state = after
    assert state is not None

    then, now = json.loads((GOLDEN / f"{name}.json").read_text()), known(state, documents)
    for key, value in then.items():
        assert is_kept(value, now[key]), f"{key} was {value}, is {now[key]}"


def test_a_track_that_an_earlier_version_took_over_is_understood() -> None:
    then = json.loads(created(Settings(benchmark_command="b")).model_dump_json())
    then["carried_over"] = {"iterations": 2, "best_score": 4.5, "starts": 0}
    now = parse_event(json.dumps(then))
    assert isinstance(now, RunCreated)
    assert now.carried_over is not None
    assert (now.carried_over.iterations, now.carried_over.best_score) == (2, 4.5)
