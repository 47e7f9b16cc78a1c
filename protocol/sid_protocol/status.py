"""What the daemon tells of itself and of its runs: the results of the RPC methods.

Made by the daemon's methods, read by `sictl` (as plain JSON) and by other programs. Field names are
promises of the interfaces page; new fields are added at the end and have a default, so that an older
reader goes on working. No decision is made here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from sid_protocol.lessons import LessonRecord, TrackLessons
from sid_protocol.records import (
    BenchmarkResult,
    ForceKill,
    IterationHistory,
    MergeReport,
    Plan,
    ResearchBrief,
    RunStatus,
    Step,
)

Interval = tuple[float | None, float | None]
"""Low and high end in score units; an end that is not known is null."""


class Result(BaseModel):
    """Base of all results: frozen, nothing unknown, built when first used."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Empty(Result):
    """Nothing to tell but that it is done."""


class DaemonInfo(Result):
    """The daemon itself."""

    version: str
    protocol: int = Field(description="Grows when a method or a field changes its meaning.")
    pid: int
    uptime_s: float
    runs: int = Field(description="Runs that are active now (running or paused).")
    state_dir: str = ""
    socket: str = ""


# One run


class ActorRow(Result):
    """One actor of a round and what it is doing."""

    id: str
    role: str
    state: str = Field(description="waiting, working, benchmark, done, failed, killed or rejected.")
    doing: str = Field(
        description="The last activity seen, and after a semicolon what it waits in if it is silent; one line."
    )
    idle_s: float | None = Field(description="Since the last activity; null before the first.")
    left_s: float | None = Field(
        description="To the deadline that comes first, its hard or its idle one; null: none."
    )
    family: str | None
    score: float | None


class Counters(Result):
    """The counters that can end a run, each beside its limit."""

    plateau: int = 0
    plateau_window: int
    circuit_breaker: int = 0
    circuit_breaker_threshold: int
    blocked: int = 0
    blocked_limit: int
    force_kills: int = Field(default=0, description="In this round.")
    kill_threshold: int


class Spend(Result):
    """One kind of cost: what is spent (null: not known) and the cap (null: no limit)."""

    spent: float | None = None
    limit: float | None = None


class RoleSpend(Result):
    """What one role has used over the whole run; null is not known."""

    role: str
    calls: int
    input_tokens: int | None = None
    cached_tokens: int | None = Field(default=None, description="Those of `input_tokens` out of a cache.")
    output_tokens: int | None = None
    usd: float | None = None
    wall_s: float = 0.0
    turns: int = 0


class ForecastRow(Result):
    """What a round will cost."""

    basis: Literal["assumed", "measured"] = Field(
        description="Turns as they usually are, or those of this run so far."
    )
    turns: int = Field(description="Turns that it is measured from.")
    round_tokens: int
    round_usd: float | None = Field(description="Null where no price is known.")
    rounds_left: int | None = Field(description="That fit into the budget; null without a cap on either.")
    unpriced: list[str] = Field(
        default_factory=list, description="Roles whose price is not known: tokens only."
    )


class BudgetRow(Result):
    """What the run has cost so far."""

    usd: Spend = Spend()
    tokens: Spend = Spend()
    calls: Spend = Spend()
    wall_s: Spend = Spend()
    roles: list[RoleSpend] = []
    forecast: ForecastRow | None = Field(default=None, description="Null without a model.")


class LadderRow(Result):
    """The step of the escalation ladder that a run without winners is on."""

    step: int = Field(description="From 1.")
    of: int = Field(description="How many steps there are; the last is a report to the user.")
    name: str
    told: str = Field(description="What researcher and planners are told.")
    rounds: int = Field(description="Rounds in a row without a winner.")


class RunRow(Result):
    """One run, as `run.list` and `run.status` tell of it."""

    run_id: str
    repo: str
    topic: str
    root: str
    status: RunStatus
    iteration: int = Field(description="The round under way or last begun; 0 before the first.")
    max_iterations: int
    current_step: Step | None
    best_score: float | None
    baseline: float | None
    interval: Interval | None = Field(description="Of `best_score`; null where it is exact.")
    counters: Counters
    budget: BudgetRow
    actors: list[ActorRow]
    reason: str | None = Field(default=None, description="Why it ended or waits, one line.")
    goal_slug: str = ""
    target_branch: str = ""
    sandbox: str = Field(default="", description="How jobs are contained, or why they are not.")
    notes: list[str] = Field(default_factory=list, description="What the user should know, a line each.")
    metric: str = "primary"
    direction: Literal["higher_is_better", "lower_is_better"] = "higher_is_better"
    target: float | None = None
    audit: str | None = Field(
        default=None, description="What all merges together gained, as measured last, one line."
    )
    ladder: LadderRow | None = Field(
        default=None, description="Null while there is a winner now and then; then what is done otherwise."
    )
    gain: float | None = Field(
        default=None,
        description="By how much the branch is better than the baseline, in score units; of a noisy run what the audit found.",
    )


class RunList(Result):
    """Every run that the daemon knows, active ones first."""

    runs: list[RunRow]


class RunStatusResult(Result):
    """The status after a request."""

    status: RunStatus


# Set-up and start


class GoalScore(Result):
    """How clear one dimension of the goal is, and what to ask about it."""

    dimension: Literal["objective", "metric", "target", "scope"]
    score: int = Field(ge=0, le=100)
    question: str


class BenchmarkFound(Result):
    """A test or benchmark that the repository already has, and how it would be run."""

    command: str
    format: str
    why: str


class BaselineReport(Result):
    """What three runs of the benchmark gave."""

    score: float
    samples: list[float]
    spread_pct: float = Field(description="(max - min) / mean, in percent.")
    deterministic: bool


class InitResult(Result):
    """Where set-up stands: complete when `run_id` is there and `missing` is empty."""

    run_id: str | None
    root: str
    missing: list[str] = Field(description="Flags still needed, such as `--benchmark`.")
    repo: str = ""
    topic: str = "default"
    sealed: list[str] = Field(default_factory=list, description="Files that no candidate may change.")
    baseline: BaselineReport | None = None
    trusted: bool = False
    trusts: dict[str, JsonValue] = Field(
        default_factory=dict, description="The settings that trust covers, as they would be trusted."
    )
    goal: list[GoalScore] = Field(default_factory=list, description="Weakest first.")
    found: list[BenchmarkFound] = Field(default_factory=list, description="Best first.")
    took_over: bool = Field(default=False, description="An existing track goes on.")
    notes: list[str] = Field(default_factory=list)


class ClarifyResult(Result):
    """What the goal clarifier understood, and what it asks next."""

    question: str = Field(description="Empty once the goal is clear.")
    scores: dict[str, int] = Field(description="Of objective, metric, target and scope, 0 to 100.")
    objective: str
    direction: str = Field(default="", description="higher, lower, or empty.")
    target: float | None = None
    scope: list[str] = Field(default_factory=list)
    usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class BenchmarkDraft(Result):
    """A benchmark that an agent wrote; nothing of it has run."""

    file: str = Field(description="Where it is kept, by its content.")
    text: str = Field(description="The whole of it, for the user to read.")
    command: str = Field(description="For `benchmark_command`: it checks the file's SHA-256 first.")
    paths: list[str] = Field(description="For `benchmark_paths`.")
    format: str
    direction: str
    why: str = ""
    usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class StartResult(Result):
    """A run that is active now, or one that had nothing left to do, as `status` tells."""

    run_id: str
    resumed: bool
    status: RunStatus = "running"


class ReplayResult(StartResult):
    """A replay that is under way, in a track of its own."""

    replay_of: str = Field(description="The recorded run.")
    root: str
    topic: str


# What happened


class RoundSummary(Result):
    """One round as a row of the history."""

    iteration: int
    status: str = Field(description="As in the merge report: merged, no_improvement, no_winner, …")
    baseline_score: float | None = Field(description="The best score before the round.")
    score: float | None = Field(description="The winner's score.")
    delta: float | None = Field(description="`score` minus `baseline_score`.")
    family: str | None = None
    hypothesis: str | None = None
    commit: str | None = None
    candidates: int = 0
    rejected: int = 0
    force_kills: int = 0
    started_at: str = ""
    ended_at: str = ""
    duration_s: float | None = None
    reason: str | None = None
    gain: float | None = Field(
        default=None,
        description="Gain of the winner over the incumbent, else of what noisy scores tested; 0.01 is 1 %, positive is "
        "better, whichever way the metric runs.",
    )
    ci: Interval | None = Field(default=None, description="95 % interval of `gain`; an open end is null.")
    n: int | None = Field(default=None, description="Pairs of runs behind `gain`.")
    p: float | None = Field(default=None, description="Always-valid p-value of `gain`.")
    tokens: int | None = Field(default=None, description="In and out, of all agents; null: not known.")
    usd: float | None = Field(default=None, description="Of all agents; null: not known.")
    input_tokens: int | None = Field(default=None, description="Of all agents, like the two after it.")
    cached_tokens: int | None = None
    output_tokens: int | None = None
    roles: list[RoleSpend] = Field(default_factory=list, description="What each role took.")


class HistoryResult(Result):
    """Rounds in their order, and where to go on reading."""

    rounds: list[RoundSummary]
    next: int | None = Field(description="`since` of the next page; null at the end.")


class MeasuredRun(Result):
    """One benchmark process of a round, in the order in which they were used."""

    stage: str = Field(
        description="smoke, screen, confirm, merge, check, warmup, calibrate, audit or holdout."
    )
    block: int = Field(description="Block of the screen or pair of the confirm stage; 0 elsewhere.")
    arm: str = Field(description="A (the incumbent), executor_<k>, merged or baseline.")
    tree: str = Field(description="The commit or tree that was checked out.")
    score: float | None
    sub_scores: dict[str, float] = Field(default_factory=dict)
    status: str
    exit: int | None = Field(description="Null where it was ended by its deadline or by a signal.")
    cpu_s: float
    wall_s: float
    load1: float = Field(description="The machine's load when it began.")
    at: str = Field(description="When it began.")
    why: str = Field(default="", description="What went wrong, one line.")


class RoundResult(Result):
    """One round whole."""

    summary: RoundSummary
    brief: ResearchBrief | None = None
    plans: list[Plan] = Field(default_factory=list)
    results: list[BenchmarkResult] = Field(default_factory=list)
    history: IterationHistory | None = Field(default=None, description="Null while it is under way.")
    merge_report: MergeReport | None = None
    tags: dict[str, str] = Field(default_factory=dict, description="Executor → tag of a candidate that lost.")
    notes: list[str] = Field(default_factory=list)
    runs: list[MeasuredRun] = Field(
        default_factory=list, description="Every benchmark run of the round: what its verdict rests on."
    )


class SummaryResult(Result):
    """The summary at a run's end: the promised lines, and the same as data."""

    text: str
    fields: dict[str, JsonValue]


class CalibrateResult(Result):
    """What running the same tree again and again says of the benchmark."""

    run_id: str
    mode: Literal["deterministic", "noisy"] = Field(description="How the next rounds are judged.")
    samples: list[float]
    score: float = Field(description="`best_score` from now on.")
    score_before: float
    spread_pct: float = Field(description="(max - min) / mean, in percent.")
    sd_pair: float | None = Field(description="Relative sd of one pair of runs; null where scores are exact.")
    findable: tuple[float, float] | None = Field(
        description="Relative gains found 1 time in 2, and nearly always."
    )
    run_s: float | None = Field(description="Median time of one run.")
    run_timeout_s: float | None = Field(description="Deadline of one run, beside `deadlines.benchmark`.")
    notes: list[str] = Field(default_factory=list, description="Advice, a line each.")


class LessonsResult(Result):
    """What a run has learned, and the force-kills of its newest rounds."""

    run_id: str
    lessons: list[LessonRecord] = Field(description="Those in force first.")
    force_kills: list[ForceKill] = Field(description="Oldest first.")


class AllLessonsResult(Result):
    """What all runs have learned that this daemon knows."""

    tracks: list[TrackLessons] = Field(description="One a run, the newest first.")
    unreadable: list[str] = Field(description="Files that tell nothing, one line each.")


class NodeResult(Result):
    """How one run of a node ended, and what it taught."""

    run_id: str
    node: str
    folder: str = Field(description="Where its seed, state, events and outcome are.")
    status: Literal["passed", "failed", "hard_cap", "aborted"]
    rounds: int
    final_score: float | None = Field(description="Of the last round that was judged.")
    exit_reason: str
    violations_total: dict[str, int] = Field(description="Violation → rounds in which it was seen.")
    promoted: list[str] = Field(description="Violations that became lessons by this run.")


# Settings, diff, apply, views


class SettingRow(Result):
    """One setting and where its value comes from."""

    key: str
    value: JsonValue
    default: JsonValue
    source: str = Field(description="default, settings.json, or where else it was set.")


class SettingChange(Result):
    """What a change of a setting did."""

    key: str
    old: JsonValue
    new: JsonValue
    from_round: int | None = Field(description="The first round it holds for, if a run is active.")


class ConfigResult(Result):
    """The settings asked for, after the change."""

    settings: list[SettingRow]
    changed: SettingChange | None = None
    notes: list[str] = Field(default_factory=list)


class DiffResult(Result):
    """What the improvement branch changes against the target branch."""

    diff: str = Field(description="Unified; cut at a whole line if `truncated`.")
    base: str = Field(description="Commit of the target branch.")
    head: str = Field(description="Commit of the improvement branch.")
    stat: str
    branch: str = ""
    target_branch: str = ""
    commits: int = 0
    truncated: bool = False


class ApplyResult(Result):
    """What `apply` did, or, without confirmation, would do."""

    applied: bool
    diff: str
    stat: str
    undo: str | None = Field(description="The one command that takes it back.")
    target_branch: str = ""
    before: str = Field(default="", description="Commit of the target branch before.")
    after: str = Field(default="", description="Commit of the target branch after; empty if unchanged.")
    fast_forward: bool = False


class PlotResult(Result):
    """The step chart with every candidate."""

    format: Literal["png", "svg"]
    data: str = Field(description="The file's bytes in base64.")
    path: str | None = Field(default=None, description="Where a copy lies among the track's views.")


class ExportResult(Result):
    """Every view was written again."""

    root: str
    files: list[str] = Field(description="Absolute paths.")


class VerifyResult(Result):
    """Whether database, files, branch and tags tell the same."""

    agrees: bool
    disagreements: list[str] = Field(description="One line each; empty when all agree.")
    rounds: int = Field(description="How many recorded rounds were compared.")


# The log


class SubscriptionResult(Result):
    """A subscription to the log."""

    subscription: int
    cursor: int = Field(description="Records after this one follow; without `follow`, the last one sent.")


class LogRecordNotice(Result):
    """`log.record`: one record of the log."""

    subscription: int
    cursor: int
    record: dict[str, JsonValue]


class LogDroppedNotice(Result):
    """`log.dropped`: so many records were lost to this subscriber."""

    subscription: int
    count: int
