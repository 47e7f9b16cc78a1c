"""Output of a benchmark that is made to hold up whoever looks for a score in it."""

from __future__ import annotations

import pytest

from sid_actors.workbench import searching
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
