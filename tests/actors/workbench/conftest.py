"""A workbench, a bench and a git-master on a real repository."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.git.master import GitMaster
from sid_actors.git.repository import RepoInfo, discover
from sid_actors.workbench.base import Bench, Collected, Workbench
from sid_actors.workbench.benchmark import LocalBench
from sid_actors.workbench.local import LocalWorkbench
from sid_actors.workbench.machine import MachineLock, lock_path
from sid_actors.workbench.shared import Shared
from sid_protocol.settings import Settings, parse_settings
from tests.repos import Repo

MESSAGE = "experiment(data): try it\n"


def settings_of(**values: Any) -> Settings:
    return parse_settings({"benchmark_command": "python3 bench.py", "benchmark_format": "number", **values})


@dataclass(slots=True, kw_only=True)
class Bay:
    """One run's hands on one repository."""

    repo: Repo
    info: RepoInfo
    master: GitMaster
    workbench: LocalWorkbench
    bench: LocalBench
    base: str
    settings: Settings

    async def open(self, number: int = 1, iteration: int = 1) -> Path:
        return Path(await self.workbench.open_worktree(iteration, f"executor_{number}", self.base))

    async def collect(self, number: int = 1, iteration: int = 1) -> Collected:
        executor = f"executor_{number}"
        return await self.workbench.collect(iteration, executor, self.base, MESSAGE, self.settings)

    async def attempt(self, edit: Callable[[Path], object], number: int = 1) -> Collected:
        edit(await self.open(number))
        return await self.collect(number)


OpenBay = Callable[..., AbstractAsyncContextManager[Bay]]


@pytest.fixture
def open_bay() -> OpenBay:
    """Open a `Bay` on a repository; its worktrees and pool are gone afterwards."""

    @asynccontextmanager
    async def opened(
        repo: Repo,
        *,
        sandboxed: bool = False,
        topic: str = "default",
        **values: Any,
    ) -> AsyncIterator[Bay]:
        settings = settings_of(**values)
        info = await discover(str(repo.path))
        master = GitMaster(info)
        await master.exclude_ours()
        root = f"{info.top}/.sid/topics/{topic}"
        lock = MachineLock(lock_path({}, f"{root}/lock"))
        shared = Shared(info, root, lock=lock, sandboxed=sandboxed)
        async with trio.open_nursery() as nursery:
            workbench = LocalWorkbench(
                info, root, topic, settings=lambda: settings, nursery=nursery, shared=shared
            )
            base = await master.ensure_branch("goal", info.head_branch or "main")
            bench = LocalBench(info, root, lock=lock, trusted=base, sandboxed=sandboxed)
            yield Bay(
                repo=repo,
                info=info,
                master=master,
                workbench=workbench,
                bench=bench,
                base=base,
                settings=settings,
            )
            await workbench.close()

    return opened


def meets_the_protocols(workbench: LocalWorkbench, bench: LocalBench) -> tuple[Workbench, Bench]:
    """The type checker says whether they do."""
    return workbench, bench
