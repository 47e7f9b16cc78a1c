"""Output of benchmarks and agents that is made to hold up whoever looks into it."""

from __future__ import annotations

import json

import pytest
import trio

from sid_actors.backends.command.stream import StreamReader
from sid_actors.watching.activity import ActivityLog
from sid_actors.workbench.scores import searching
from tests.actors.workbench.conftest import OpenBay, open_bay, settings_of
from tests.conftest import MakeRepo

__all__ = ["open_bay"]


async def test_a_search_without_an_end_is_ended_and_is_no_score(
    repo: MakeRepo, open_bay: OpenBay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "SEARCH_LIMIT_S", 1.0)
    made = repo({"bench.py": "from app import said\nprint(said)\n", "app.py": "said = 'time 1.5 s'\n"})
    settings = settings_of(benchmark_format=r"regex:time (?:(\d+\.?\d*)+ )+s")
    async with open_bay(made) as bay:
        honest = await bay.bench.measure(bay.base, 1, settings)
        hostile = await bay.attempt(lambda top: (top / "app.py").write_text(f"said = 'time {'1' * 60}'\n"))
        assert hostile.tree
        held_up = await bay.bench.measure(hostile.tree, 1, settings)
    assert (honest.status, honest.score) == ("success", 1.5)
    assert (held_up.status, held_up.score, held_up.category) == ("error", None, "benchmark_parse_error")
    assert "did not come to an end" in held_up.why


async def test_a_match_on_a_line_too_long_to_be_told_is_no_score(repo: MakeRepo, open_bay: OpenBay) -> None:
    """Control characters take six times their room on their way; cut in the middle, the answer could not be read."""
    made = repo({"bench.py": "print('time 1.5 s', 'abc' + '\\1' * (11 << 20))\n"})
    async with open_bay(made) as bay:
        run = await bay.bench.measure(bay.base, 1, settings_of(benchmark_format=r"regex:time ([\d.]+) s"))
    assert (run.status, run.score, run.category) == ("error", None, "benchmark_parse_error")
    assert "too long" in run.why


@pytest.mark.parametrize(("place", "is_seen"), [(10, True), (50_000, False)])
async def test_an_event_of_endless_objects_is_looked_at_in_part(place: int, is_seen: bool) -> None:
    """Millions of empty objects in one line held the event loop, and so every run, for half a minute."""
    objects: list[dict[str, str]] = [{}] * place + [{"stop_reason": "end_turn"}]
    await trio.lowlevel.checkpoint()
    reader = StreamReader(ActivityLog())
    reader.feed(json.dumps({"type": "x", "content": objects}).encode() + b"\n")
    assert (reader.activity.stop_reason == "end_turn") is is_seen


async def test_arguments_as_deep_as_can_just_be_read_are_noted() -> None:
    await trio.lowlevel.checkpoint()
    reader = StreamReader(ActivityLog())
    for depth in range(850, 1000):
        event = '{"type": "tool", "name": "a", "input": ' + "[" * depth + "]" * depth + "}"
        reader.feed(event.encode() + b"\n")
    assert reader.activity.tools
