"""Executors on a real repository, with real agents: what they leave becomes a commit, a refusal, or is salvaged."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from sid_actors.backends.command.adapter import CommandBackend
from sid_actors.backends.command.turnstile import Turnstile
from sid_actors.backends.local.adapter import LocalBackend
from sid_actors.git.repository import discover
from sid_actors.roles.executor import Executor, collect
from sid_actors.roles.planner import Planner
from sid_actors.supervisor import ChildSpec, Supervisor
from sid_actors.workbench.local import LocalWorkbench
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_protocol.commands import DraftPlan, RunPlan
from sid_protocol.events import AgentFailed, CandidateCommitted, CandidateRefused, PlanDrafted
from sid_protocol.records import Plan
from sid_protocol.settings import Settings
from tests.actors.fakes import PLAN, FakeTrack
from tests.conftest import MakeRepo, Spawn
from tests.repos import Repo

FILES = {"app.py": "x = 1\n", "bench.py": "print(1)\n", "docs/ä ö.txt": "text\n"}


class Ground:
    """A run's supervisor with an executor and a planner, on a dirty checkout."""

    def __init__(
        self, repo: Repo, supervisor: Supervisor, up: Any, workbench: LocalWorkbench, track: FakeTrack
    ) -> None:
        self.repo, self.supervisor, self.up = repo, supervisor, up
        self.workbench, self.track = workbench, track
        self.base = repo.git("rev-parse", "main")
        self.count = 0

    def agent(self, body: str) -> None:
        """Let agents do what a shell script says."""
        path = self.repo.path.parent / "agent.sh"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        command = shlex.quote(str(path))
        self.track.settings = self.track.settings.model_copy(update={"agent_command": command})

    def start(self, plan: Plan = PLAN, **values: Any) -> RunPlan:
        self.count += 1
        command = RunPlan(
            id=f"run{self.count}", iteration=1, executor="executor_1", plan=plan, base=self.base, **values
        )
        self.supervisor.tell("executor_1", command)
        return command

    async def run(self, plan: Plan = PLAN, **values: Any) -> Any:
        self.start(plan, **values)
        return await self.up.receive()


@asynccontextmanager
async def ground(repo: Repo, *, local: bool = False) -> AsyncIterator[Ground]:
    repo.write({"app.py": "x = 'dirty'\n", "untracked.txt": "mine"})
    before = repo.fingerprint()
    info = await discover(str(repo.path))
    settings = Settings(agent_backend="command", sealed_files=["bench.py"], grace_s=0.1)
    root = str(repo.path / ".sid" / "topics" / "default")
    track = FakeTrack(repo=info.top, root=root, settings=settings, sealed=("bench.py",))
    backend = (
        LocalBackend(enclose=Sandbox)
        if local
        else CommandBackend(repo=info.top, enclose=Sandbox, git_dir=info.common_dir, turnstile=Turnstile(2))
    )
    outbox, up = trio.open_memory_channel[Any](0)
    async with trio.open_nursery() as nursery:
        workbench = LocalWorkbench(info, root, "default", settings=lambda: track.settings, nursery=nursery)
        tools: Any = {"backend": backend, "workbench": workbench, "track": track}
        specs = [
            ChildSpec(name="executor_1", factory=partial(Executor, **tools)),
            ChildSpec(name="planner_a", factory=partial(Planner, **tools)),
        ]
        supervisor = Supervisor(outbox=outbox, specs=specs)
        nursery.start_soon(supervisor.run)
        await supervisor.started.wait()
        with up:
            yield Ground(repo, supervisor, up, workbench, track)
        supervisor.stop()
        await workbench.close()
    after = repo.fingerprint()
    assert {key: after[key] for key in after if ".sid" not in key} == before


async def test_what_an_agent_edits_is_committed_and_its_words_are_a_summary(
    repo: MakeRepo, real_process: Spawn
) -> None:
    async with ground(repo(FILES, name="späce y")) as g:
        g.agent(
            "cat > /dev/null; echo 'x = 2' > app.py; echo new > 'n ü.txt'; git status --short; echo I did it"
        )
        event = await g.run()

        assert isinstance(event, CandidateCommitted)
        assert g.repo.git("show", f"{event.commit}:app.py") == "x = 2"
        assert g.repo.git("rev-parse", f"{event.commit}^") == g.base
        assert set(event.paths) == {"app.py", "n ü.txt"}
        assert event.summary.endswith("I did it")
        assert "app.py" in event.summary  # git works in there, to read


async def test_an_agent_that_leaves_nothing_or_fails_is_told_apart(
    repo: MakeRepo, real_process: Spawn
) -> None:
    async with ground(repo(FILES)) as g:
        g.agent("echo I did it")
        nothing = await g.run()
        assert (type(nothing), nothing.category) == (CandidateRefused, "logic_error")

        g.agent("echo 'x = 3' > app.py; echo no quota >&2; exit 1")
        failed = await g.run()
        assert (type(failed), "no quota" in failed.why) == (AgentFailed, True)


async def test_neither_seal_nor_git_can_be_written(repo: MakeRepo, real_process: Spawn) -> None:
    async with ground(repo(FILES)) as g:
        g.agent(
            "for try in 'echo 0 > bench.py' 'rm bench.py' 'mv bench.py b.py' 'git commit -qam x' 'rm .git' 'git branch y';\n"
            'do sh -c "$try" 2>/dev/null && echo "did: $try"; done; echo 4 > app.py; true'
        )
        event = await g.run()

        assert isinstance(event, CandidateCommitted)
        assert event.summary == ""
        assert event.paths == ("app.py",)
        assert "y" not in g.repo.branches()


async def test_a_rework_goes_on_from_the_candidate(repo: MakeRepo, real_process: Spawn) -> None:
    async with ground(repo(FILES)) as g:
        g.agent("echo 'x = 2' > app.py")
        first = await g.run()
        g.agent("grep -q 'test_x failed' && echo 'y = 1' >> app.py")
        second = await g.run(rework_of=first.commit, guard_output="test_x failed")

        assert g.repo.git("show", f"{second.commit}:app.py") == "x = 2\ny = 1"
        assert g.repo.git("rev-parse", f"{second.commit}^") == g.base


async def test_a_killed_stragglers_edits_are_salvaged(repo: MakeRepo, real_process: Spawn) -> None:
    async with ground(repo(FILES)) as g:
        g.agent("echo 'x = 9' > app.py; trap '' TERM; echo up; while :; do sleep 1; done")
        command = g.start()
        work = g.supervisor.works.works[command.id]
        with trio.fail_after(30):
            while not work.activity.outputs:  # noqa: ASYNC110 - an activity log has no event to wait for
                await trio.sleep(0.01)
        g.supervisor.cancel(command.id)
        await work.done.wait()

        assert not work.answered
        assert work.activity.processes_killed >= 1
        left = await collect(g.workbench, g.track, command)
        assert left.commit
        assert g.repo.git("show", f"{left.commit}:app.py") == "x = 9"


async def test_a_planner_reads_the_branch_and_not_the_dirty_checkout(
    repo: MakeRepo, real_process: Spawn
) -> None:
    answer = json.dumps(PLAN.model_dump(include={"approach_family", "target_files", "steps"}))
    async with ground(repo(FILES)) as g:
        g.agent(f"""printf '{{"hypothesis": "saw %s", %s' "$(cat app.py)" '{answer[1:]}'""")
        g.supervisor.tell("planner_a", DraftPlan(id="p1", iteration=1, planner="planner_a", head=g.base))
        event = await g.up.receive()

        assert isinstance(event, PlanDrafted)
        assert event.plan.hypothesis == "saw x = 1"


@pytest.mark.parametrize("sealed", [False, True])
async def test_the_local_back_end_plans_and_edits_in_its_own_worktree(
    repo: MakeRepo, real_process: Spawn, sealed: bool
) -> None:
    async with ground(repo({"app.py": "CACHE_SIZE = 64\n", "bench.py": "print(1)\n"}), local=True) as g:
        if sealed:
            g.track.sealed = ("app.py", "bench.py")
        g.supervisor.tell("planner_a", DraftPlan(id="p1", iteration=1, planner="planner_a", head=g.base))
        drafted = await g.up.receive()
        if sealed:
            assert isinstance(drafted, AgentFailed)
            return
        plan = Plan(plan_id="p", planner_id="planner_a", round=1, **drafted.plan.model_dump())
        event = await g.run(plan)

        assert isinstance(event, CandidateCommitted)
        assert g.repo.git("show", f"{event.commit}:app.py") == "CACHE_SIZE = 128"
