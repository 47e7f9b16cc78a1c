"""Fixtures of the fault tests: one run that is set up once, and put back before every case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import module_world
from tests.faults.harness import Stage


@pytest.fixture(scope="module")
def staged(session_dir: Path) -> Iterator[Stage]:
    """A run of two rounds, set up and kept."""
    with module_world(session_dir) as world:
        yield Stage.make(world)


@pytest.fixture
def stage(staged: Stage) -> Iterator[Stage]:
    """The run as it was set up; its daemon is gone after the test."""
    staged.reset()
    yield staged
    left = staged.world.end()
    staged.world.started.clear()
    assert left == [], "still running after the daemon left"
