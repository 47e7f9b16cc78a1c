"""What the core asks of the actors: frozen messages, each with an id that its answer names.

Made by `sid_daemon.core` only, carried out by actors only. Every command gets exactly one terminal
event, whose `cause` is the command's `id`; a command without one is issued again after a restart, so
each must be safe to repeat. Commands carry ids and small values, never objects; what an agent needs
to know beyond that it reads from the track.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from sid_protocol.records import ArchitectReview, Plan, ReasonName


class Message(BaseModel):
    """Base of commands and events: frozen, nothing unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Command(Message):
    """Base of all commands.

    Attributes:
        id: Unique within the run, for example `r3.plan.planner_a.1`.
        iteration: The round, from 1.
    """

    id: str
    iteration: int


class PrepareRound(Command):
    """Clean up what no round needs, then read settings, goal, harness and ideas again."""

    kind: Literal["prepare_round"] = "prepare_round"
    keep: tuple[str, ...] = ()
    """Executors whose worktrees the round still needs."""
    take_ideas: bool = True
    """Whether this round's ideas are still to be taken."""


class Research(Command):
    """Study the code and write one brief."""

    kind: Literal["research"] = "research"
    head: str
    attempt: int = 1
    angle: str = ""
    """From which side to look, where several researchers look at once."""


class DraftPlan(Command):
    """Write one testable hypothesis."""

    kind: Literal["draft_plan"] = "draft_plan"
    planner: str
    head: str
    attempt: int = 1


class AdvisePlan(Command):
    """Review a plan as the architect: advice only."""

    kind: Literal["advise_plan"] = "advise_plan"
    plan: Plan
    head: str
    attempt: int = 1


class JudgePlan(Command):
    """Review a plan as the critic: it may reject more than the rules do, never less."""

    kind: Literal["judge_plan"] = "judge_plan"
    plan: Plan
    advice: ArchitectReview | None
    head: str
    attempt: int = 1


class RunPlan(Command):
    """Carry out one approved plan in its own worktree and commit what is left there."""

    kind: Literal["run_plan"] = "run_plan"
    executor: str
    plan: Plan
    base: str
    attempt: int = 1
    rework_of: str | None = None
    """The candidate's commit that failed a guard; None for a first try."""
    guard_output: str = ""


class RunGuards(Command):
    """Run the guard commands on a commit."""

    kind: Literal["run_guards"] = "run_guards"
    executor: str
    commit: str


class Measure(Command):
    """Run the benchmark once, on exactly one tree.

    Attributes:
        arm: `A` (head of the improvement branch), `executor_<k>`, `merged` or `baseline`.
        tree: Commit or tree id.
        stage: Why: `smoke`, `screen`, `confirm`, `merge`, `check`, `warmup`, `calibrate`, `audit`, `holdout`.
    """

    kind: Literal["measure"] = "measure"
    arm: str
    tree: str
    stage: str
    block: int = 0
    limit_s: float | None = None
    """How long it may take, where that is shorter than the benchmark's deadline."""
    beside: str | None = None
    """The arm that is to be run at the same time, in a pair of runs; its tree follows."""
    beside_tree: str = ""
    slots: int = 1
    """How many benchmarks may run at once on the machine while this one does; 1 is to be alone."""
    quiet: bool = False
    """Whether the agents of other runs stand still meanwhile."""


class BuildMerge(Command):
    """Merge a candidate with the head of the improvement branch in the object database only."""

    kind: Literal["build_merge"] = "build_merge"
    executor: str
    commit: str
    onto: str


class AdvanceBranch(Command):
    """Commit a confirmed merge and move the improvement branch by compare-and-swap."""

    kind: Literal["advance_branch"] = "advance_branch"
    executor: str
    commit: str
    onto: str
    tree: str
    message: str
    at: str
    """Time of the commit, so that carrying it out again gives the same commit id."""


class CloseRound(Command):
    """Archive the candidates that lost as tags, delete the branches, remove the worktrees."""

    kind: Literal["close_round"] = "close_round"
    losers: tuple[tuple[str, str | None], ...]
    """Executor and the commit to keep under a tag: what it started from where it changed nothing."""
    winner: str | None
    head: str
    """The improvement branch after the round, for push and pull request."""
    merged: bool


class ReturnIdeas(Command):
    """Put the user's ideas back in front of `idea.md`: no planner produced a plan."""

    kind: Literal["return_ideas"] = "return_ideas"
    ideas: tuple[str, ...]


class Halt(Command):
    """End work that nobody needs any more, without a force-kill record."""

    kind: Literal["halt"] = "halt"
    target: str


class Inspect(Command):
    """Take evidence of what a straggler is doing."""

    kind: Literal["inspect"] = "inspect"
    target: str
    clock: Literal["hard", "idle"]


class Kill(Command):
    """End a straggler's whole process tree."""

    kind: Literal["kill"] = "kill"
    target: str
    reason: ReasonName


AnyCommand = Annotated[
    PrepareRound
    | Research
    | DraftPlan
    | AdvisePlan
    | JudgePlan
    | RunPlan
    | RunGuards
    | Measure
    | BuildMerge
    | AdvanceBranch
    | CloseRound
    | ReturnIdeas
    | Halt
    | Inspect
    | Kill,
    Field(discriminator="kind"),
]
AgentCommand = Research | DraftPlan | AdvisePlan | JudgePlan | RunPlan
"""Commands that an agent's turn carries out; they have deadlines, and are retried once."""


def role_of(command: AgentCommand) -> str:
    """Return the role that carries a command out."""
    match command:
        case Research():
            return "researcher"
        case DraftPlan():
            return "planner"
        case AdvisePlan():
            return "architect"
        case JudgePlan():
            return "critic"
        case RunPlan():
            return "executor"


def agent_of(command: AgentCommand) -> str:
    """Return the id of the agent that carries a command out, for example `planner_a`."""
    match command:
        case Research() if command.angle:
            return f"researcher_{command.angle}"
        case DraftPlan():
            return command.planner
        case RunPlan():
            return command.executor
        case _:
            return role_of(command)
