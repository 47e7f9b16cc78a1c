"""The composition root of one run: picks the concrete classes and wires them to the run's conductor.

The only place that knows which class stands behind `Workbench`, `Bench` and `Backend`. Made by `host` when a
run starts; removed with all that the run made when it ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from sid_actors.backends.base import Answer, Backend, Turn
from sid_actors.backends.command.adapter import CommandBackend
from sid_actors.backends.local.adapter import LocalBackend
from sid_actors.backends.model.anthropic_api import AnthropicBackend
from sid_actors.backends.model.purse import Purse
from sid_actors.git.master import GitMaster
from sid_actors.git.repository import RepoInfo, discover
from sid_actors.roles.architect import Architect
from sid_actors.roles.bench import BenchActor
from sid_actors.roles.critic import Critic
from sid_actors.roles.executor import Executor, collect
from sid_actors.roles.git import GitActor
from sid_actors.roles.planner import Planner
from sid_actors.roles.researcher import Researcher
from sid_actors.supervisor import ChildSpec
from sid_actors.watching.activity import ActivityLog
from sid_actors.workbench.benchmark import LocalBench
from sid_actors.workbench.local import LocalWorkbench
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.shared import Shared
from sid_daemon.core.state import RunState
from sid_daemon.replay.replayer import make_replayer
from sid_daemon.runs.conductor import Conductor, Salvaged
from sid_daemon.runs.ground import RunGround, worktrees_of
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import RunStore
from sid_daemon.runs.steward import Steward
from sid_daemon.runs.trackview import RunTrack
from sid_daemon.setup.site import Machine
from sid_daemon.store.registry import KnownRun
from sid_protocol.commands import (
    AdvanceBranch,
    AdvisePlan,
    AnyCommand,
    BuildMerge,
    CloseRound,
    DraftPlan,
    JudgePlan,
    Measure,
    PrepareRound,
    Research,
    ReturnIdeas,
    RunGuards,
    RunPlan,
    agent_of,
)
from sid_protocol.errors import SidError
from sid_protocol.log_levels import LogLevel
from sid_protocol.purse import Amount, Ledger
from sid_protocol.settings import Settings

CLEANUP_LIMIT_S = 3.0
"""What removing worktrees may take at the end of a run; the next start removes the rest."""


class ChosenBackend:
    """Answers with the back end that the settings of the current round name.

    Args:
        settings: Returns those settings.
        backends: Name → back end.
    """

    def __init__(self, settings: Callable[[], Settings], backends: dict[str, Backend]) -> None:
        self._settings = settings
        self._backends = backends

    async def answer(self, turn: Turn, activity: ActivityLog) -> Answer:
        """See `Backend.answer`."""
        return await self._backends[self._settings().agent_backend].answer(turn, activity)


def ledger_of(state: RunState) -> Ledger:
    """Return what a run has spent on models by now, as the journal has it."""
    spent = state.spent.values()
    return Ledger(
        spent=Amount(
            usd=sum(one.usd or 0.0 for one in spent),
            tokens=sum((one.input_tokens or 0) + (one.output_tokens or 0) for one in spent),
            calls=sum(one.calls for one in spent),
        ),
        round_usd=(state.round.cost.usd or 0.0) if state.round else 0.0,
        iteration=state.iteration,
    )


class RunHands:
    """What one run acts with.

    Args:
        run: The run.
        info: Its repository.
        store: Its database.
        host: The daemon's runs.
        machine: What this machine can do.
    """

    def __init__(self, run: KnownRun, info: RepoInfo, store: RunStore, host: Host, machine: Machine) -> None:
        self._run = run
        self._info = info
        self._store = store
        self._host = host
        self._machine = machine
        self._conductor: Conductor | None = None
        self._git = GitMaster(info)
        self.track = RunTrack(self._state, store)
        self.workbench = LocalWorkbench(
            info,
            run.root,
            run.topic,
            settings=self._settings,
            nursery=host.nursery,
            shared=Shared(info, run.root, lock=machine.lock, sandboxed=machine.sandbox_fault is None),
        )
        self._ground = RunGround(run, info, host, machine, self._git, self.workbench, self._state)
        self._bench: LocalBench | None = None
        self._backend: Backend | None = None
        self._hurry = trio.Event()

    def bind(self, conductor: Conductor) -> None:
        """Give the hands the conductor whose state they read."""
        self._conductor = conductor
        self._machine.standstill.join(conductor.clock)

    def _state(self) -> RunState:
        if self._conductor is None:
            raise LookupError("hands without a conductor")
        return self._conductor.state

    def _settings(self) -> Settings:
        return self._state().settings

    async def make(self) -> None:
        """Find the tools that agents get, and clear what a killed daemon left; a few milliseconds."""
        self._tools = await self._machine.tools.find()
        for lock in await self._git.drop_dead_locks():
            self._ground.tell("lock_removed", why=f"a daemon that was killed left {lock}")

    def _contained(self) -> bool:
        return self._machine.contained(self._settings())

    def _made_bench(self) -> LocalBench:
        if self._bench is None:
            self._bench = LocalBench(
                self._info,
                self._run.root,
                lock=self._machine.lock,
                trusted=self._state().baseline_commit,
                sandboxed=self._contained(),
                standstill=self._machine.standstill,
                clock=self._conductor.clock if self._conductor else None,
            )
        return self._bench

    def _made_backend(self) -> Backend:
        if self._backend is None:
            enclose = Sandbox if self._contained() else None
            command = CommandBackend(
                repo=self._info.top,
                enclose=enclose,
                path=self._tools.path,
                readable=self._tools.readable,
                git_dir=self._info.common_dir,
                on_stderr=self._on_stderr,
                hurry=self._hurry,
                turnstile=self._machine.turnstile,
            )
            local = LocalBackend(enclose=enclose, path=self._tools.path, readable=self._tools.readable)
            model = AnthropicBackend(
                repo=self._info.top,
                enclose=enclose,
                purse=Purse(ledger_of(self._state()), self._on_share),
                service=self._machine.service,
                path=self._tools.path,
                readable=self._tools.readable,
                git_dir=self._info.common_dir,
                tell=self._on_model,
            )
            backends: dict[str, Backend] = {"command": command, "local": local, "anthropic": model}
            self._backend = ChosenBackend(self._settings, backends)
        return self._backend

    def _on_stderr(self, turn: Turn, line: str) -> None:
        self._host.emit(
            "info",
            "agent_stderr",
            run_id=self._run.run_id,
            iteration=turn.iteration,
            actor=turn.agent_id,
            line=line[:1000],
        )

    def _on_model(self, turn: Turn, level: LogLevel, event: str, **fields: Any) -> None:
        self._host.emit(
            level, event, run_id=self._run.run_id, iteration=turn.iteration, actor=turn.agent_id, **fields
        )

    def _on_share(self, key: str, share: float, spent: float, limit: float) -> None:
        self._host.emit(
            "warning",
            "budget_used",
            run_id=self._run.run_id,
            iteration=self._state().iteration,
            budget=key,
            share=share,
            spent=spent,
            limit=limit,
        )

    # Hands

    def spec_for(self, command: AnyCommand) -> ChildSpec:
        """See `Hands.spec_for`."""
        wait = 4 * self._settings().number_of_agents + 8
        match command:
            case PrepareRound() | ReturnIdeas():
                steward = functools.partial(Steward, root=Path(self._run.root), ground=self._ground)
                return ChildSpec(name="steward", factory=steward, mailbox=wait)
            case BuildMerge() | AdvanceBranch() | CloseRound():
                git = functools.partial(
                    GitActor,
                    git=self._git,
                    workbench=self.workbench,
                    track=self.track,
                    goal_slug=self._state().goal_slug,
                )
                return ChildSpec(name="git_master", factory=git, mailbox=wait)
            case Measure():
                bench = functools.partial(
                    BenchActor,
                    bench=self._made_bench(),
                    track=self.track,
                    baseline=self._state().baseline_commit,
                )
                # One of its own for a candidate whose run need not wait for the others'.
                name = f"bench_{command.arm}" if command.slots > 1 and command.stage == "smoke" else "bench"
                return ChildSpec(name=name, factory=bench, mailbox=wait)
            case RunGuards():
                guard = functools.partial(
                    BenchActor,
                    bench=self._made_bench(),
                    track=self.track,
                    baseline=self._state().baseline_commit,
                )
                return ChildSpec(name="guard", factory=guard, mailbox=wait)
            case _:
                return self._role_spec(command)

    def _role_spec(self, command: AnyCommand) -> ChildSpec:
        tools: dict[str, Any] = {
            "backend": self._made_backend(),
            "workbench": self.workbench,
            "track": self.track,
        }
        match command:
            case Research():
                return ChildSpec(name=agent_of(command), factory=functools.partial(Researcher, **tools))
            case DraftPlan():
                return ChildSpec(name=command.planner, factory=functools.partial(Planner, **tools))
            case AdvisePlan():
                name = f"architect_of_{command.plan.planner_id}"
                return ChildSpec(name=name, factory=functools.partial(Architect, **tools))
            case JudgePlan():
                name = f"critic_of_{command.plan.planner_id}"
                return ChildSpec(name=name, factory=functools.partial(Critic, **tools))
            case RunPlan():
                return ChildSpec(name=command.executor, factory=functools.partial(Executor, **tools))
            case _:
                raise LookupError(f"no actor carries out {command.kind}")

    async def salvage(self, command: AnyCommand) -> Salvaged:
        """See `Hands.salvage`."""
        if not isinstance(command, RunPlan):
            return Salvaged()
        try:
            left = await collect(self.workbench, self.track, command)
        except SidError as error:
            self._ground.tell("salvage_failed", why=str(error))
            return Salvaged()
        return Salvaged(left.commit, left.diff_stat or None)

    async def close(self, state: RunState) -> None:
        """See `Hands.close`."""
        if self._conductor is not None:
            self._machine.standstill.leave(self._conductor.clock)
        known = worktrees_of(state)
        with trio.move_on_after(CLEANUP_LIMIT_S) as scope:
            try:
                await self.workbench.worktrees.clean((), state.iteration, known)
                await self.workbench.close()
            except (SidError, OSError) as error:  # a disk that is full or read-only
                self._ground.tell("cleanup_failed", why=str(error))
        if scope.cancelled_caught:
            self._ground.tell("cleanup_cut_short", why="the next start removes the rest")

    def hurry(self) -> None:
        """See `Hands.hurry`."""
        self._hurry.set()


class MakeRunConductor:
    """Makes the conductors of runs on this machine.

    Args:
        machine: What it can do.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def __call__(
        self, run: KnownRun, state: RunState, store: RunStore, host: Host, info: RepoInfo | None
    ) -> Conductor:
        """See `host.MakeConductor`."""
        if info is None or info.top != run.repo:
            info = await discover(run.repo)
        if state.replay_of is not None:
            return await make_replayer(state, store, info, host)
        hands = RunHands(run, info, store, host, self._machine)
        await hands.make()
        conductor = Conductor(state, store, hands, host.emit)
        hands.bind(conductor)
        return conductor
