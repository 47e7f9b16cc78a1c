"""Fixtures of the end-to-end tests: a world with the real executables, ended and looked over after each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import SEALED_BENCHMARK, World
from tests.repos import Repo


@pytest.fixture
def world(short_dir: Path, own_world: None) -> Iterator[World]:
    """One user's machine; whatever still runs after its daemon has left is a failure."""
    made = World(short_dir, dict(os.environ))
    yield made
    left = made.end()
    assert left == [], "still running after the daemon left"


@pytest.fixture
def numbers(repo: MakeRepo) -> Repo:
    """A repository whose score is the number in `value.txt`; its benchmark is sealed."""
    return repo(SEALED_BENCHMARK)
