"""Where the wins are while the user has the improvement branch checked out."""

from __future__ import annotations

import pytest

from sid_protocol.events import BranchAdvanced
from tests.core.play import played, scripted, sha
from tests.core.test_run import second_wins, settings


@pytest.mark.parametrize(("ref", "aside"), [("refs/sid/goal", True), ("refs/heads/improve/goal", False)])
def test_the_last_win_of_a_run_may_wait_on_a_ref_of_ours(ref: str, aside: bool) -> None:
    slug = played(settings(), score=second_wins).now.goal_slug
    held = BranchAdvanced(commit=sha("m1"), ref=ref.replace("goal", slug))
    play = played(settings(max_iterations=1), answer=scripted({"advance": [held]}), score=second_wins)

    assert (play.status, play.now.on_side_ref) == ("max_iterations", aside)
