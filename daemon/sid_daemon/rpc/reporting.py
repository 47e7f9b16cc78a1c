"""What methods tell of git and of the chart: diff, apply, plot, and how jobs are contained.

Implements `methods.Reports` on this machine. Applying is the one thing here that changes anything, at the
user's word only.
"""

from __future__ import annotations

import base64

import trio

from sid_actors.git import apply as git_apply
from sid_actors.git.cli import git
from sid_actors.git.master import GitMaster
from sid_actors.git.repository import discover
from sid_daemon.core.state import RunState
from sid_daemon.drawing import draw
from sid_daemon.forecast import of_run
from sid_daemon.layout import CHART
from sid_daemon.runs.runstore import RunStore
from sid_daemon.setup.site import Machine
from sid_daemon.store.files import write_whole
from sid_protocol import ids
from sid_protocol.errors import Refused
from sid_protocol.status import ApplyResult, DiffResult, ForecastRow, PlotResult

DIFF_LIMIT = 4_000_000
"""Characters of a diff that are sent; a longer one is cut at a whole line."""


class LocalReports:
    """Git and charts on this machine.

    Args:
        machine: What it can do.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def diff(self, state: RunState) -> DiffResult:
        """Return what the improvement branch changes against the target branch."""
        master = GitMaster(await discover(state.repo))
        target = state.settings.target_branch
        plan = await git_apply.plan_apply(master, target, state.goal_slug)
        text, truncated = _cut(plan.diff)
        return DiffResult(
            diff=text,
            base=plan.old,
            head=plan.head,
            stat=await _stat(state, plan.old, plan.head),
            branch=ids.improve_branch(state.goal_slug),
            target_branch=target,
            commits=await _wins(state, plan.old, plan.head),
            truncated=truncated,
        )

    async def apply(self, state: RunState, *, confirm: bool) -> ApplyResult:
        """Move the target branch, or tell what would be done."""
        master = GitMaster(await discover(state.repo))
        target = state.settings.target_branch
        plan = await git_apply.plan_apply(master, target, state.goal_slug)
        stat = await _stat(state, plan.old, plan.head)
        text, _ = _cut(plan.diff)
        undo, after = None, ""
        if confirm and plan.kind != "nothing":
            done = await git_apply.apply(master, plan)
            undo, after = done.undo, done.commit
        return ApplyResult(
            applied=bool(after),
            diff=text,
            stat=stat,
            undo=undo,
            target_branch=target,
            before=plan.old,
            after=after,
            fast_forward=plan.kind == "fast_forward",
        )

    async def plot(self, state: RunState, store: RunStore, form: str) -> PlotResult:
        """Draw the step chart."""
        if form not in ("png", "svg"):
            raise Refused(f"no chart format {form}", hint="use png or svg")
        data = await draw(state, store, form)
        path = None
        if form == "png":
            target = store.root / CHART
            await trio.to_thread.run_sync(write_whole, target, data)
            path = str(target)
        return PlotResult(
            format="png" if form == "png" else "svg", data=base64.b64encode(data).decode(), path=path
        )

    def sandbox(self, state: RunState) -> str:
        """Return how the run's jobs are contained, one line."""
        return self._machine.describe(state.settings)

    def forecast(self, state: RunState) -> ForecastRow | None:
        """Return what a round will cost."""
        return of_run(state, self._machine.service.prices)


def _cut(text: str) -> tuple[str, bool]:
    if len(text) <= DIFF_LIMIT:
        return text, False
    return text[: text.rfind("\n", 0, DIFF_LIMIT) + 1], True


async def _stat(state: RunState, old: str, head: str) -> str:
    shown = await git("diff", "--stat", "--no-ext-diff", "--no-color", f"{old}...{head}", cwd=state.repo)
    return shown.line


async def _wins(state: RunState, old: str, head: str) -> int:
    counted = await git("rev-list", "--count", "--first-parent", f"{old}..{head}", cwd=state.repo)
    return int(counted.line or 0)
