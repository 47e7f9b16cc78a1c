"""What `status` says of actors at work: what they are at, what they wait in, and how long they may."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from sid_actors.actor import Work
from sid_daemon.rpc.live_rows import actor_rows
from sid_protocol.settings import Deadlines, Settings
from sid_protocol.status import ActorRow
from tests.core.play import Play
from tests.core.play import World as Made


def rows(play: Play, works: dict[str, Work], waits: dict[str, str] | None = None) -> dict[str, ActorRow]:
    found = actor_rows(play.now, play.now.outstanding, works, trio.current_time(), waits)
    return {row.id: row for row in found}


async def test_the_deadline_that_comes_first_is_told(mock_clock: MockClock) -> None:  # noqa: ASYNC124 - trio's clock is asked
    deadlines = Deadlines(executor=100, executor_idle=30)
    play = Play(Made(Settings(number_of_agents=1, benchmark_command="sh b", deadlines=deadlines)))
    play.start()
    play.run(hold="run_plan")
    (command,) = [one for one in play.now.outstanding.values() if one.kind == "run_plan"]
    work = Work(command_id=command.id, actor="executor_1")
    works = {command.id: work}

    waiting = rows(play, works)["executor_1"]
    assert (waiting.state, waiting.idle_s, waiting.left_s) == ("waiting", None, None)

    work.since = trio.current_time()
    mock_clock.jump(20)
    begun = rows(play, works)["executor_1"]
    assert (begun.state, begun.idle_s, begun.left_s) == ("working", None, 80.0)

    work.activity.touch("Bash")
    mock_clock.jump(12)
    silent = rows(play, works, {command.id: "sleeps: sleep 600"})["executor_1"]
    assert (silent.doing, silent.idle_s, silent.left_s) == ("Bash; sleeps: sleep 600", 12.0, 18.0)

    mock_clock.jump(60)
    work.activity.touch()
    assert rows(play, works)["executor_1"].left_s == 8.0


async def test_a_reviewer_with_several_plans_is_one_row(mock_clock: MockClock) -> None:  # noqa: ASYNC124 - trio's clock is asked
    mock_clock.jump(10)
    play = Play(Made(Settings(number_of_agents=3, benchmark_command="sh b")))
    play.start()
    play.run(hold="judge_plan")
    works = {name: Work(command_id=name, actor="critic_of_it") for name in play.now.outstanding}
    for number, work in enumerate(works.values()):
        work.since = trio.current_time() - number
        work.activity.doing = f"reads, {number}"

    found = actor_rows(play.now, play.now.outstanding, works, trio.current_time())

    (critic,) = [row for row in found if row.role == "critic"]
    assert (critic.id, critic.doing, critic.left_s) == ("critic", "reads, 2 (and 2 more)", 298.0)
