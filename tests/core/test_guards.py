"""Guards in a round: red ones are reworked, excused, or end a candidate; an agent that cannot mend is not asked again."""

from __future__ import annotations

from typing import Any

from sid_daemon.core.longterm.learning import sightings
from sid_protocol.commands import RunPlan
from sid_protocol.events import AgentFailed, GuardResult, GuardsDone
from tests.core.play import Play, World, played, scripted
from tests.core.test_run import document, report, second_wins, settings


def red(**more: Any) -> GuardsDone:
    return GuardsDone(results=(GuardResult(command="make test", passed=False, output="1 failed"),), **more)


def test_a_red_guard_is_reworked_with_its_output() -> None:
    play = played(
        settings(guard_command=["make test"]),
        answer=scripted({"guard.executor_2": [red()]}),
        score=second_wins,
    )

    runs = [c for c in play.dispatched if isinstance(c, RunPlan) and c.executor == "executor_2"]
    assert [(c.rework_of is not None, c.guard_output) for c in runs] == [(False, ""), (True, "1 failed")]
    assert play.entries["tracking/results.tsv"][3].split("\t")[4:6] == ["pass", "keep (reworked)"]


def test_after_two_reworks_a_red_guard_is_a_regression() -> None:
    play = played(settings(guard_command=["make test"]), answer=scripted({"guard.executor_2": [red()] * 3}))

    assert sum(isinstance(c, RunPlan) and c.executor == "executor_2" for c in play.dispatched) == 3
    result = document(play, "state/benchmark_results/round_1/executor_2.json")
    assert (result["status"], result["benchmark_score"]) == ("regression", None)
    assert report(play)["regressions_detected"] is True
    assert play.entries["tracking/results.tsv"][3].split("\t")[4:6] == ["fail", "discard"]


def test_a_guard_that_was_red_before_blames_nobody() -> None:
    excused = red(baseline_red=("make test",))
    play = played(
        settings(guard_command=["make test"]), answer=scripted({"guard": [excused] * 2}), score=second_wins
    )

    assert report(play)["status"] == "merged"


def test_a_rework_waits_for_a_free_executor() -> None:
    play = Play(World(settings(guard_command=["make test"], max_parallel_executors=1)))
    play.world.answer = scripted({"guard.executor_1": [red()]})
    play.start()
    play.run(until=lambda p: bool(p.now.round and any(e.reworks for e in p.now.round.executions.values())))

    statuses = {name: one.status for name, one in play.now.now_round.executions.items()}
    assert statuses == {"executor_1": "waiting", "executor_2": "running"}


def test_an_agent_that_mends_no_guard_loses_to_it_at_once_and_teaches_nothing() -> None:
    cannot = AgentFailed(why="nothing to mend it with", final=True)
    answer = scripted({"guard.executor_2": [red()], "run.executor_2.1.": [cannot]})
    play = Play(World(settings(guard_command=["make test"])))
    play.world.answer = answer
    play.start()
    play.run(until=lambda p: bool(p.now.round and p.now.round.failures))
    keys = [one.key for one in sightings(play.now.now_round)]
    play.run()

    assert not [key for key in keys if key.startswith("agent_failed")]
    assert sum(isinstance(c, RunPlan) and c.executor == "executor_2" for c in play.dispatched) == 2
    result = document(play, "state/benchmark_results/round_1/executor_2.json")
    assert (result["status"], result["failure_analysis"]["why"]) == ("regression", "1 failed")
