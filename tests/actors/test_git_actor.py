"""A closed round leaves tags and lines, no worktree and no branch; a branch that moved is an outcome. Real git."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.actor import WorkRegistry
from sid_actors.git.master import GitMaster
from sid_actors.git.repository import discover
from sid_actors.roles.git import GitActor
from sid_actors.workbench.local import LocalWorkbench
from sid_protocol.commands import AdvanceBranch, BuildMerge, CloseRound
from sid_protocol.events import (
    BranchAdvanced,
    BranchMoved,
    MergeBuilt,
    MergeConflicted,
    RoundClosed,
    WorkFailed,
)
from sid_protocol.settings import Settings
from tests.actors.fakes import FakeTrack
from tests.conftest import MakeRepo, Spawn
from tests.repos import Repo

AT = "2024-05-06T07:08:09.000000+00:00"
Ask = Callable[[Any], Awaitable[Any]]


class Field:
    """One repository with an improvement branch, its workbench and its git-master actor."""

    def __init__(
        self, repo: Repo, workbench: LocalWorkbench, ask: Ask, settings: Settings, head: str
    ) -> None:
        self.repo, self.workbench, self.ask, self.settings, self.head = repo, workbench, ask, settings, head

    async def candidate(self, number: int, text: str) -> str:
        """Let an executor leave `text` in app.py and return its commit."""
        name = f"executor_{number}"
        await trio.Path(await self.workbench.open_worktree(1, name, self.head), "app.py").write_text(text)
        left = await self.workbench.collect(1, name, self.head, "experiment: x\n", self.settings)
        assert left.commit
        return left.commit


@asynccontextmanager
async def field(repo: Repo, settings: Settings) -> AsyncIterator[Field]:
    info = await discover(str(repo.path))
    git = GitMaster(info)
    head = await git.ensure_branch("goal", "main")
    root = str(repo.path / ".sid" / "topics" / "default")
    letters, inbox = trio.open_memory_channel[Any](1)
    outbox, up = trio.open_memory_channel[Any](0)

    async def ask(command: Any) -> Any:
        letters.send_nowait(command)
        return await up.receive()

    async with trio.open_nursery() as nursery:
        workbench = LocalWorkbench(info, root, "default", settings=lambda: settings, nursery=nursery)
        actor = GitActor(
            name="git_master",
            inbox=inbox,
            outbox=outbox,
            works=WorkRegistry(),
            git=git,
            workbench=workbench,
            track=FakeTrack(repo=str(repo.path), root=root, settings=settings),
            goal_slug="goal",
        )
        nursery.start_soon(actor.run)
        with letters, up:
            yield Field(repo, workbench, ask, settings, head)
        await workbench.close()


async def test_a_round_from_merge_to_its_end(repo: MakeRepo, real_process: Spawn) -> None:
    made = repo({"app.py": "x = 1\n"})
    before = made.fingerprint()
    async with field(made, Settings()) as f:
        won, lost = await f.candidate(1, "x = 2\n"), await f.candidate(2, "x = 3\n")
        built = await f.ask(BuildMerge(id="b1", iteration=1, executor="executor_1", commit=won, onto=f.head))
        assert isinstance(built, MergeBuilt)
        assert made.git("rev-parse", "improve/goal") == f.head

        advance = AdvanceBranch(
            id="a1",
            iteration=1,
            executor="executor_1",
            commit=won,
            onto=f.head,
            tree=built.tree,
            message="m",
            at=AT,
        )
        advanced = await f.ask(advance)
        assert isinstance(advanced, BranchAdvanced)
        assert made.git("rev-parse", "improve/goal") == advanced.commit
        assert (await f.ask(advance)).commit == advanced.commit

        conflict = await f.ask(
            BuildMerge(id="b2", iteration=1, executor="executor_2", commit=lost, onto=advanced.commit)
        )
        assert (type(conflict), conflict.paths) == (MergeConflicted, ("app.py",))

        losers = (("executor_2", lost), ("executor_3", None))
        close = CloseRound(
            id="c1", iteration=1, losers=losers, winner="executor_1", head=advanced.commit, merged=True
        )
        for _ in range(2):  # a crash between doing and recording means doing it again
            closed = await f.ask(close)
            assert isinstance(closed, RoundClosed)
            assert closed.tags == {"executor_2": "archive/round_1_executor_2"}
            assert closed.notes == ()  # nothing was asked for, so nothing was done
    assert made.branches() == ["improve/goal", "main"]
    assert made.git("rev-parse", "archive/round_1_executor_2") == lost
    assert made.worktrees() == []
    assert made.fingerprint() == before


async def test_a_branch_that_moved_is_an_outcome_and_stays_where_it_is(
    repo: MakeRepo, real_process: Spawn
) -> None:
    made = repo({"app.py": "x = 1\n"})
    async with field(made, Settings()) as f:
        won = await f.candidate(1, "x = 2\n")
        built = await f.ask(BuildMerge(id="b1", iteration=1, executor="executor_1", commit=won, onto=f.head))
        theirs = made.git("commit-tree", "-p", f.head, "-m", "mine", f"{f.head}^{{tree}}")
        made.git("update-ref", "refs/heads/improve/goal", theirs)
        moved = await f.ask(
            AdvanceBranch(
                id="a1",
                iteration=1,
                executor="executor_1",
                commit=won,
                onto=f.head,
                tree=built.tree,
                message="m",
                at=AT,
            )
        )
    assert (type(moved), moved.expected, moved.actual) == (BranchMoved, f.head, theirs)
    assert made.git("rev-parse", "improve/goal") == theirs


@pytest.mark.parametrize("merged", [True, False])
async def test_a_push_that_fails_is_a_line_and_nothing_won_is_nothing_to_push(
    repo: MakeRepo, real_process: Spawn, merged: bool
) -> None:
    made = repo({"app.py": "x = 1\n"})
    async with field(made, Settings(auto_push=True)) as f:
        closed = await f.ask(
            CloseRound(id="c1", iteration=1, losers=(), winner=None, head=f.head, merged=merged)
        )
    assert len(closed.notes) == (1 if merged else 0)
    if merged:
        assert closed.notes[0].startswith("Push to origin failed: ")


async def test_nothing_is_pushed_unless_the_settings_say_so(
    repo: MakeRepo, real_process: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, origin = repo({"app.py": "x = 1\n"}), repo(name="origin", bare=True)
    made.git("remote", "add", "origin", str(origin.path))
    gh = made.path.parent / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\n: > "$HOME/asked"\n')
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gh.parent}:{os.environ['PATH']}")
    async with field(made, Settings()) as f:
        closed = await f.ask(
            CloseRound(id="c1", iteration=1, losers=(), winner=None, head=f.head, merged=True)
        )
    assert closed.notes == ()
    assert origin.branches() == []
    assert not (Path.home() / "asked").exists()


async def test_a_pull_request_goes_to_the_upstream(
    repo: MakeRepo, real_process: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = repo({"app.py": "x = 1\n"})
    gh = made.path.parent / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text('#!/bin/sh\necho "$@" > "$HOME/asked"\necho https://example.invalid/pull/1\n')
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gh.parent}:{os.environ['PATH']}")
    async with field(made, Settings(auto_pr=True, upstream_url="me/repo")) as f:
        closed = await f.ask(
            CloseRound(id="c1", iteration=1, losers=(), winner=None, head=f.head, merged=True)
        )
    assert closed.notes == ("Opened a pull request: https://example.invalid/pull/1",)
    assert (Path.home() / "asked").read_text().endswith("--repo me/repo\n")


async def test_a_push_goes_to_the_fork(repo: MakeRepo, real_process: Spawn) -> None:
    made, fork = repo({"app.py": "x = 1\n"}), repo(name="fork", bare=True)
    async with field(made, Settings(auto_push=True, fork_url=str(fork.path))) as f:
        closed = await f.ask(
            CloseRound(id="c1", iteration=1, losers=(), winner=None, head=f.head, merged=True)
        )
    assert closed.notes[0] == f"Pushed improve/goal to {fork.path}"
    assert fork.branches() == ["improve/goal"]


async def test_what_git_cannot_do_is_told(repo: MakeRepo, real_process: Spawn) -> None:
    async with field(repo({"app.py": "x = 1\n"}), Settings()) as f:
        failed = await f.ask(
            BuildMerge(id="b", iteration=1, executor="executor_1", commit="0" * 40, onto=f.head)
        )
    assert (type(failed), failed.cause) == (WorkFailed, "b")
    assert failed.why
