"""What a run's steward stands on: the run's repository and the daemon's rules, on this machine.

Made by `hands` for one run. Implements `steward.Ground`; decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from sid_actors.git.master import GitMaster, Head
from sid_actors.git.repository import RepoInfo
from sid_actors.workbench.checks.sealed_commit import seal_of
from sid_actors.workbench.local import LocalWorkbench
from sid_daemon.core.state import RunState
from sid_daemon.runs.host import Host
from sid_daemon.setup.site import Machine
from sid_daemon.store.registry import KnownRun
from sid_protocol import ids
from sid_protocol.errors import SidError
from sid_protocol.events import RunLessons
from sid_protocol.settings import Settings, trust_digest


class RunGround:
    """The repository and the rules of one run.

    Args:
        run: The run.
        info: Its repository.
        host: The daemon's runs.
        machine: What this machine can do.
        git: Its improvement branch.
        workbench: Its worktrees.
        state: Returns its present state.
    """

    def __init__(
        self,
        run: KnownRun,
        info: RepoInfo,
        host: Host,
        machine: Machine,
        git: GitMaster,
        workbench: LocalWorkbench,
        state: Callable[[], RunState],
    ) -> None:
        self._run = run
        self._info = info
        self._host = host
        self._machine = machine
        self._git = git
        self._workbench = workbench
        self._state = state

    async def clean(self, keep: tuple[str, ...], iteration: int) -> list[str]:
        """See `steward.Ground.clean`."""
        return await self._workbench.worktrees.clean(keep, iteration, worktrees_of(self._state()))

    async def check_free(self, iteration: int, agents: int) -> None:
        """See `steward.Ground.check_free`."""
        executors = [ids.executor_id(number) for number in range(1, agents + 1)]
        await self._workbench.worktrees.check_free(iteration, executors)

    async def head(self) -> Head:
        """See `steward.Ground.head`."""
        return await self._git.head(self._state().goal_slug)

    async def sealed(self, settings: Settings) -> tuple[str, ...]:
        """See `steward.Ground.sealed`."""
        return (await seal_of(self._info.common_dir, self._state().baseline_commit, settings)).shown

    async def check(self, settings: Settings) -> None:
        """See `steward.Ground.check`."""
        self._machine.check(settings)
        if not await self._host.is_trusted(self._info.top, trust_digest(settings)):
            raise SidError(
                "a setting that trust covers was changed",
                hint=f"look at it and confirm: {self._run.command('init', '--trust')}",
            )

    async def other_runs(self, window: int) -> tuple[RunLessons, ...]:
        """See `steward.Ground.other_runs`."""
        files, run = self._host.lessons, self._run
        others, unreadable = await trio.to_thread.run_sync(files.others, run.run_id, run.repo, window)
        for why in unreadable:
            self.tell("lessons_unreadable", why)
        return others

    def tell(self, event: str, why: str) -> None:
        """See `steward.Ground.tell`."""
        self._host.emit("warning", event, run_id=self._run.run_id, why=why)


def worktrees_of(state: RunState) -> list[str]:
    """Return the worktrees of the round under way, by their names."""
    if state.round is None:
        return []
    return [
        ids.worktree_name(state.topic, state.round.iteration, executor) for executor in state.round.executions
    ]
