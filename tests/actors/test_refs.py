"""Looking refs up: as often as a run of weeks does."""

from __future__ import annotations

import gc
import sys

import pygit2

from sid_actors.git import refs
from tests.conftest import MakeRepo


def test_no_name_of_a_branch_that_is_gone_is_kept(repo: MakeRepo) -> None:
    opened = pygit2.Repository(str(repo({"a": "1"}).path))
    head = str(opened.head.target)

    def live(number: int) -> None:
        ref = f"refs/heads/experiment/round_{number}"
        assert refs.target(opened, ref) is None
        refs.move(opened, ref, None, head, "made")
        refs.put(opened, ref, head)
        assert refs.target(opened, ref) == head
        refs.delete(opened, ref)
        refs.delete(opened, ref)
        assert refs.target(opened, ref) is None

    def live_through(rounds: range) -> int:
        for number in rounds:
            live(number)
        gc.collect()
        return sys.getallocatedblocks()

    before = live_through(range(20))
    assert live_through(range(20, 220)) < before + 50
