"""The state of a run: plain frozen data, a fold over its events.

Only `step` makes new ones, only the conductor holds one. All of it is values that pydantic can write
to a snapshot and read back; nothing here has behaviour beyond looking itself up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sid_daemon.core.longterm.audit import Audit, Audited
from sid_daemon.core.longterm.lessons import Book
from sid_daemon.core.longterm.milestones import Standing
from sid_daemon.core.measuring.words import RunResult, Selection, SelectionHistory, Verdict
from sid_daemon.core.rounds.fanout import Angle
from sid_daemon.core.rounds.novelty import Tried
from sid_protocol.commands import AnyCommand
from sid_protocol.events import RunLessons
from sid_protocol.records import (
    AgentFailure,
    ArchitectReview,
    Cost,
    FailureAnalysis,
    ForceKill,
    Plan,
    RejectedPlan,
    ResearchBrief,
    ResultStatus,
    RunStatus,
    StepStatus,
)
from sid_protocol.settings import Settings

SlotStatus = Literal["drafting", "drafted", "advised", "approved", "rejected", "failed"]
ExecutionStatus = Literal["waiting", "running", "guarding", "measuring", "done"]
ENDED: frozenset[RunStatus] = frozenset(
    {"target_reached", "plateau", "max_iterations", "circuit_breaker", "blocked", "budget", "failed"}
)
ACTIVE: frozenset[RunStatus] = frozenset({"running", "paused"})


@dataclass(frozen=True, slots=True)
class Slot:
    """One planner's plan on its way through the pipeline."""

    planner: str
    status: SlotStatus = "drafting"
    plan: Plan | None = None
    advice: ArchitectReview | None = None


@dataclass(frozen=True, slots=True)
class Execution:
    """One approved plan, from worktree to score.

    Attributes:
        guard: What results.tsv tells of the guards: pass, fail or `-` where there are none.
        smoke: The candidate's one first run.
        guard_output: Of the red guard that the next rework is to mend.
        patch: Digest of the normalised change; empty where it is not known.
        tree: The commit's git tree; empty where it is not known.
        repeats: The earlier candidate that it only repeats: it is not measured.
        result: Once it has ended; a `success` may still be judged a regression.
        no_op: The executor left nothing changed.
        refused: The paths for which its edits were not measured.
    """

    executor: str
    plan: Plan
    base: str
    status: ExecutionStatus = "waiting"
    commit: str | None = None
    diff_stat: str | None = None
    net_lines: int = 0
    summary: str = ""
    findings: tuple[str, ...] = ()
    patch: str = ""
    tree: str = ""
    repeats: Tried | None = None
    reworks: int = 0
    guard_output: str = ""
    guard: Literal["pass", "fail", "-"] = "-"
    smoke: RunResult | None = None
    raw: str = ""
    result: ResultStatus | None = None
    failure: FailureAnalysis | None = None
    no_op: bool = False
    refused: tuple[str, ...] = ()
    score: float | None = None
    kill: ForceKill | None = None
    cost: Cost = field(default_factory=Cost)
    agent_s: float | None = None
    benchmark_s: float | None = None
    measured_at: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """What one role has used, over the whole run or in a round; None is unknown."""

    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    wall_s: float = 0.0
    cached_tokens: int | None = None
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """The round under way."""

    iteration: int
    started_at: str
    head: str
    baseline_score: float | None
    prepared: bool = False
    ideas: tuple[str, ...] = ()
    brief: ResearchBrief | None = None
    angles: dict[str, Angle] = field(default_factory=dict)
    """What each researcher found, where there are several."""
    research: StepStatus = "pending"
    research_done_at: str | None = None
    slots: dict[str, Slot] = field(default_factory=dict)
    planning_done_at: str | None = None
    advising: tuple[str, ...] = ()
    """Planners whose plan the architect has."""
    judging: tuple[str, ...] = ()
    """Planners whose plan the critic has; no two of one family."""
    approved: tuple[str, ...] = ()
    rejected: tuple[RejectedPlan, ...] = ()
    executions: dict[str, Execution] = field(default_factory=dict)
    execution_done_at: str | None = None
    blocked: bool = False
    kills: tuple[ForceKill, ...] = ()
    killing: dict[str, ForceKill] = field(default_factory=dict)
    """By command id: kills under way, on record only once they are done."""
    failures: tuple[AgentFailure, ...] = ()
    selection: Selection | None = None
    merge_tree: str | None = None
    verdict: Verdict | None = None
    verdict_at: str | None = None
    winner_commit: str | None = None
    cost: Cost = field(default_factory=Cost)
    """What its agents' turns have taken so far."""
    spent: dict[str, Spent] = field(default_factory=dict)
    """The same by role."""
    runs: int = 0
    """Benchmark runs so far, for the story line of the round."""
    lessons_told: tuple[str, ...] = ()
    lessons_held: tuple[str, ...] = ()
    """Lessons in force that a coin held out of this round, to see whether they make a difference."""

    @property
    def incumbent_score(self) -> float | None:
        """What its candidates are to be compared with: the incumbent as this round measured it, if it did."""
        measured = self.verdict.score_before if self.verdict else None
        return self.baseline_score if measured is None else measured


@dataclass(frozen=True, slots=True)
class RunState:
    """One run.

    Attributes:
        iteration: The last round that was begun; 0 before the first.
        rounds_until: With `start --rounds`, the iteration at which the run ends.
        waived: Limits that held already when the user asked for these rounds.
        winner_families: The winning family of the last two rounds; None is a round without.
        tried: The candidates of recorded rounds that did not win, oldest first; the newest are kept.
        dry_rounds: Rounds in a row without a winner; unlike `breaker_count` no start puts it back.
        baseline_commit: The head at the newest `init`, whose sealed files are trusted.
        first_commit: The commit that `baseline_score` is of: what an audit holds the head against.
        head: The improvement branch's commit as the run left it.
        outstanding: Commands without a terminal event, by id: what a restart issues again.
        suspended: The stop under way is the daemon's, not the user's.
        replay_of: The recorded run that this one replays, or None.
        held: Nothing but `PrepareRound` may be dispatched (a resume cleans up first).
    """

    run_id: str
    repo: str
    root: str
    topic: str
    goal_slug: str
    settings: Settings
    created_at: str
    baseline_score: float
    baseline_commit: str
    first_commit: str
    head: str
    best_score: float
    best_interval: tuple[float | None, float | None] | None = None
    status: RunStatus = "idle"
    reason: str | None = None
    hint: str = ""
    stopping: bool = False
    suspended: bool = False
    goal: str = ""
    standing: Standing = field(default_factory=Standing)
    """Where it stands in its goal's milestones and phases."""
    sub_scores: dict[str, float] = field(default_factory=dict)
    """The incumbent's, since the first merge."""
    announced: dict[str, Any] = field(default_factory=dict)
    """Settings that were changed through `sictl` and are not yet in `settings`: dotted key → value."""
    ideas_left: tuple[str, ...] = ()
    """Ideas that a round had taken which another `init` took back."""
    rules: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()
    on_side_ref: bool = False
    iteration: int = 0
    completed: int = 0
    rounds_until: int | None = None
    waived: tuple[RunStatus, ...] = ()
    plateau_count: int = 0
    breaker_count: int = 0
    blocked_count: int = 0
    winner_families: tuple[str | None, ...] = ()
    tried: tuple[Tried, ...] = ()
    dry_rounds: int = 0
    noisy: bool = False
    run_timeout_s: float | None = None
    history: SelectionHistory = field(default_factory=SelectionHistory)
    audit: Audit | None = None
    audited: Audited | None = None
    """The newest audit that is done."""
    audited_merges: int = 0
    summed_gain: float = 0.0
    """Of all merges, each as measured in its own round: what the audit holds against the whole."""
    summed_score: float = 0.0
    """The same in score units."""
    lessons: Book = field(default_factory=Book)
    other_runs: tuple[RunLessons, ...] | None = None
    """What other runs had seen when the last round began; None before any round that asked."""
    round: Round | None = None
    held: bool = False
    outstanding: dict[str, AnyCommand] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)
    paid: dict[str, Cost] = field(default_factory=dict)
    """What turns that are under way have cost by now, by command; not in `spent` yet."""
    unpaid: str = ""
    """Why a model was not called: which limit of the budget it would have passed."""
    wall_s: float = 0.0
    running_since: str | None = None
    """From when on time is not yet in `wall_s`; None while the run is not running."""
    starts: int = 0
    crashes: tuple[str, ...] = ()
    """Times at which a daemon died with this run active, the last few."""
    replay_of: str | None = None
    theirs: dict[str, Any] = field(default_factory=dict)
    """Fields of the agent settings that the tool which began the track knows, and this one does not."""

    @property
    def seed(self) -> int:
        """Of all coins and shuffles; those of a replay fall as in the run that it replays."""
        return int.from_bytes((self.replay_of or self.run_id).encode()[-8:], "big")

    @property
    def now_round(self) -> Round:
        """The round under way; a caller that asks knows there is one."""
        if self.round is None:
            raise LookupError(f"run {self.run_id} has no round under way")
        return self.round

    @property
    def is_noisy(self) -> bool:
        """Whether scores are compared by evidence instead of by value: for good, once one tree had two scores."""
        mode = self.settings.measurement.mode
        return mode == "noisy" or self.history.forced_noisy or (mode == "auto" and self.noisy)

    @property
    def streak_family(self) -> str | None:
        """The family that H002 bars: it won both of the last two rounds."""
        last = self.winner_families[-2:]
        return last[0] if len(last) == 2 and last[0] == last[1] else None
