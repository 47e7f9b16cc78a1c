"""The contracts: every JSON document that agents exchange and that a track's root holds.

One class a contract. A reader accepts extra fields and keeps them; a writer adds fields only at the
end. Field names are promises shared with other self-improve tools, so they change with the
contracts page only. The JSON Schema of an agent's answer is made from these classes.
"""

from __future__ import annotations

import functools
import json
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)

ANSWER_TEXT_LIMIT = 4000
"""Longest text field taken from an agent, in characters: a plan is read by people."""


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


Text = Annotated[str, StringConstraints(max_length=ANSWER_TEXT_LIMIT), AfterValidator(_no_nul)]
Line = Annotated[
    str,
    StringConstraints(min_length=1, max_length=ANSWER_TEXT_LIMIT, strip_whitespace=True),
    AfterValidator(_no_nul),
]


def _as_text(value: object) -> object:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


Said = Annotated[Text, BeforeValidator(_as_text)]
"""Text whose form the contracts leave open: a number, a list or null of an agent is read as text."""
Verdict = Literal["pass", "fail"]


def _as_verdict(value: object) -> object:
    return ("pass" if value == 1 else "fail") if isinstance(value, int) else value


Point = Annotated[Verdict, BeforeValidator(_as_verdict)]
"""A verdict of a critic; true and the count of one hypothesis are a pass."""
Measured = Annotated[dict[str, JsonValue] | None, Field(exclude_if=lambda measured: measured is None)]
"""Samples, n and interval of a noisy score; of an exact one a record has no such key."""
StepStatus = Literal["pending", "in_progress", "completed", "failed", "skipped"]
Step = Literal["research", "planning", "critic_review", "execution", "tournament", "recording", "stop_check"]
RunStatus = Literal[
    "idle",
    "running",
    "paused",
    "user_stopped",
    "target_reached",
    "plateau",
    "max_iterations",
    "circuit_breaker",
    "blocked",
    "budget",
    "failed",
]
Category = Literal[
    "oom",
    "timeout",
    "regression",
    "logic_error",
    "scope_error",
    "infrastructure",
    "benchmark_parse_error",
    "sealed_file_violation",
]
ResultStatus = Literal["success", "regression", "error", "timeout"]
ReasonName = Literal[
    "context_limit", "tool_loop", "stuck_on_permission", "network_timeout", "ambiguous_task", "unknown"
]
FAMILIES = (
    "architecture",
    "training_config",
    "data",
    "infrastructure",
    "optimization",
    "testing",
    "documentation",
    "other",
)
STEPS: tuple[Step, ...] = get_args(Step)


class Record(BaseModel):
    """Base of all contracts: extra fields are kept, values are not changed after reading."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False, defer_build=True)


# 1 Plan


class PlanStep(Record):
    """One change of one file."""

    step: int = Field(ge=0)
    file: Line
    change: Line


class ExpectedOutcome(Record):
    """What the planner expects of the change."""

    metric: Said = ""
    estimated_impact: Said = ""
    rationale: Said = ""
    sub_score_expectations: dict[str, JsonValue] = Field(default_factory=dict)


class HistoryReference(Record):
    """Which earlier rounds a plan builds on and which it avoids."""

    builds_on: Said = "none"
    avoids: Said = "none"


class CriticReview(Record):
    """The critic's review; binds. What the rules decide by code, a critic may leave out."""

    model_config = ConfigDict(json_schema_extra={"required": ["verdict"]})

    h001_hypothesis_count: Point
    h002_family_streak: Point
    h003_intra_round_diversity: Point
    schema_valid: Point
    history_aware: Point
    verdict: Literal["approved", "rejected"]
    rejection_reason: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, data: object) -> object:
        # No defaults of the fields: a recording knows a question by what is not the default.
        return (
            {**dict.fromkeys(list(cls.model_fields)[:5], "pass"), **data} if isinstance(data, dict) else data
        )


class ArchitectChecks(Record):
    """The architect's six points."""

    testability: Verdict
    novelty: Verdict
    scope: Verdict
    target_files: Verdict
    clarity: Verdict
    expected_outcome: Verdict


class ArchitectReview(Record):
    """The architect's review; advice only."""

    verdict: Literal["approve", "reject"]
    feedback: Said = ""
    structural_concerns: list[Said] = Field(default_factory=list, max_length=50)
    checks: ArchitectChecks | None = None


class PlanAnswer(Record):
    """What a planner answers: one testable hypothesis."""

    hypothesis: Annotated[Text, StringConstraints(strip_whitespace=True)] = Field(
        description="One testable hypothesis: what to change, the expected effect, and why."
    )
    approach_family: Line = Field(description="The approach family of the change.")
    target_files: list[Line] = Field(max_length=200)
    steps: list[PlanStep] = Field(min_length=1, max_length=200)
    expected_outcome: ExpectedOutcome = Field(default_factory=ExpectedOutcome)
    history_reference: HistoryReference = Field(default_factory=HistoryReference)


class Plan(PlanAnswer):
    """Contract 1: a plan with its identity and reviews."""

    plan_id: str
    planner_id: str
    round: int
    critic_approved: bool = False
    critic_review: CriticReview | None = None
    architect_review: ArchitectReview | None = None


# 7 Failure analysis, 13 Force-kill record, 2 Benchmark result


class FailureAnalysis(Record):
    """Contract 7: why a candidate is not a success, and what follows for later rounds."""

    what: str
    why: str
    category: Category
    lesson: str


class ForceKill(Record):
    """Contract 13: one agent that was killed, and the evidence for its reason."""

    agent_id: str
    role: str
    iteration: int
    reason: ReasonName
    last_activity: str | None = None
    last_tool: str | None = None
    repeats: int = 0
    waiting_in: str | None = None
    snippet: str = Field(default="", max_length=200)
    deadline_s: float
    elapsed_s: float
    processes_killed: int
    at: str


class Cost(Record):
    """Tokens and money of one turn or the sum of several; None is unknown, never zero.

    `cached_tokens` are those of `input_tokens` that came out of a cache; `calls` are calls of a model.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    cached_tokens: int | None = None
    calls: int | None = None

    def __add__(self, other: Cost) -> Cost:
        """Add two costs; unknown stays unknown only where both are."""

        def both(one: float | None, two: float | None) -> float | None:
            return one if two is None else two if one is None else one + two

        names = Cost.model_fields
        return Cost.model_validate({name: both(getattr(self, name), getattr(other, name)) for name in names})


class Durations(Record):
    """Wall time of a candidate's two parts, in seconds."""

    agent_s: float | None = None
    benchmark_s: float | None = None


class BenchmarkResult(Record):
    """Contract 2: one a candidate."""

    executor_id: str
    plan_id: str
    benchmark_score: float | None
    benchmark_raw: str
    status: ResultStatus
    sub_scores: dict[str, float] = Field(default_factory=dict)
    failure_analysis: FailureAnalysis | None = None
    timestamp: str
    measurement: Measured = None
    force_kill: ForceKill | None = None
    commit: str | None = None
    diff_stat: str | None = None
    cost: Cost = Field(default_factory=Cost)
    durations: Durations = Field(default_factory=Durations)
    findings: list[str] = Field(default_factory=list)
    """What detectors, and a scope that only warns, saw in its changes, one line each."""
    summary: str = ""
    """What the executor said at its end, capped; nothing is decided by it."""


# 3 Research brief


class Idea(Record):
    """One idea of a brief."""

    title: Line
    source: Said = ""
    evidence: Said = ""
    approach_family: Line
    confidence: Literal["high", "medium", "low"]
    estimated_impact: Said = ""


class BriefAnswer(Record):
    """What the researcher answers."""

    repo_analysis_summary: Line
    ideas: list[Idea] = Field(min_length=3, max_length=10)


class ResearchBrief(BriefAnswer):
    """Contract 3: a brief with its identity."""

    iteration: int
    researcher_id: str = "researcher"


# 4 Iteration history


class Entrant(Record):
    """A candidate as history tells of it."""

    plan_id: str
    score: float | None
    approach_family: str
    hypothesis: str
    sub_scores: dict[str, float] = Field(default_factory=dict)


class Loser(Entrant):
    """A candidate that did not win, and why."""

    failure_analysis: FailureAnalysis | None = None


class RejectedPlan(Record):
    """A plan that was not executed, and why."""

    plan_id: str
    approach_family: str
    hypothesis: str
    rejection_reason: str


class AgentFailure(Record):
    """An agent's turn that failed: what it was, which attempt, and what came of it.

    `budget` names the limit that left no money for it; `final`, that asking again is no use.
    """

    agent_id: str
    role: str
    attempt: int
    why: str
    at: str
    budget: str | None = None
    final: bool = False


class Evidence(Record):
    """Claim, command, output and verdict: what a reader can run again."""

    claim: str
    command: str
    output: str
    verdict: str


class RoleCost(Record):
    """What one role's turns took; None is unknown."""

    role: str
    turns: int
    calls: int
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    wall_s: float = 0.0


class IterationHistory(Record):
    """Contract 4: one round, for good."""

    iteration: int
    baseline_score: float | None
    winner: Entrant | None
    losers: list[Loser]
    research_brief_id: str
    rejected_plans: list[RejectedPlan] = Field(default_factory=list)
    force_kills: list[ForceKill] = Field(default_factory=list)
    agent_failures: list[AgentFailure] = Field(default_factory=list)
    evidence: list[Evidence] = Field(default_factory=list)
    started_at: str = ""
    ended_at: str = ""
    cost: Cost = Cost()
    """Of all agents' turns of the round."""
    ladder: str | None = None
    """The step of the escalation ladder that the round was on."""
    costs: list[RoleCost] = Field(default_factory=list)
    """`cost` by role."""


# 5 Visualization


class RawEntry(Record):
    """Contract 5: one candidate of `tracking/raw_data.json`."""

    iteration: int
    plan_id: str
    benchmark_score: float | None
    is_winner: bool
    approach_family: str
    sub_scores: dict[str, float] = Field(default_factory=dict)
    measurement: Measured = None


# 8 Iteration state


class ResearchState(Record):
    """The research step."""

    status: StepStatus = "pending"
    output_path: str | None = None
    completed_at: str | None = None


class PlannerState(Record):
    """One planner's part of the planning step."""

    status: StepStatus = "pending"
    output_path: str | None = None
    critic_approved: bool | None = None


class PlanningState(Record):
    """The planning step."""

    status: StepStatus = "pending"
    plans: dict[str, PlannerState] = Field(default_factory=dict)
    approved_count: int = 0
    completed_at: str | None = None


class ExecutorState(Record):
    """One executor's part of the execution step."""

    status: StepStatus = "pending"
    plan_id: str = ""
    output_path: str | None = None
    benchmark_score: float | None = None


class ExecutionState(Record):
    """The execution step."""

    status: StepStatus = "pending"
    executors: dict[str, ExecutorState] = Field(default_factory=dict)
    completed_at: str | None = None


class TournamentState(Record):
    """The tournament step."""

    status: StepStatus = "pending"
    winner: str | None = None
    winner_score: float | None = None
    completed_at: str | None = None


class RecordingState(Record):
    """The recording step."""

    status: StepStatus = "pending"
    history_path: str | None = None
    visualization_updated: bool = False
    cleanup_done: bool = False


class IterationState(Record):
    """Contract 8: where the current round is."""

    iteration: int
    status: Literal["in_progress", "completed", "failed", "interrupted"]
    current_step: Step
    started_at: str
    updated_at: str
    research: ResearchState = Field(default_factory=ResearchState)
    planning: PlanningState = Field(default_factory=PlanningState)
    execution: ExecutionState = Field(default_factory=ExecutionState)
    tournament: TournamentState = Field(default_factory=TournamentState)
    recording: RecordingState = Field(default_factory=RecordingState)
    user_ideas_consumed: list[str] = Field(default_factory=list)


# 9 Merge report


class MergedWinner(Record):
    """The winner of a round, as merged."""

    executor_id: str
    branch: str
    hypothesis: str
    score_before: float | None
    score_after: float | None
    sub_scores: dict[str, float] = Field(default_factory=dict)


class MergeReport(Record):
    """Contract 9: what a round's tournament did."""

    iteration: int
    goal_slug: str
    winner: MergedWinner | None
    archived: list[str]
    regressions_detected: bool = False
    re_benchmark_score: float | None = None
    status: Literal["merged", "no_improvement", "no_winner", "all_rejected", "blocked"]
    reason: str | None = None
    measurement: Measured = None


# 10 Agent settings, 12 Events, 16 Baseline


class AgentSettings(Record):
    """Contract 10: a run's counters and status, as other tools read them."""

    trust_confirmed: bool = False
    si_setting_goal: bool = False
    si_setting_benchmark: bool = False
    si_setting_harness: bool = False
    iterations: int = 0
    best_score: float | None = None
    current_milestone: str | None = None
    current_phase: str | None = None
    plateau_consecutive_count: int = 0
    circuit_breaker_count: int = 0
    status: RunStatus = "idle"
    goal_slug: str = ""
    measurement: Measured = None


class TrackEvent(Record):
    """Contract 12: one entry of `tracking/events.json`."""

    timestamp: str
    event_type: Literal["config_change", "phase_transition", "audit"]
    iteration: int
    details: dict[str, Any]


class Baseline(Record):
    """Contract 16: the score that everything is held against."""

    baseline_score: float
    recorded_at: str
    samples: list[float] = Field(default_factory=list)
    commit: str = ""
    benchmark_command: str = ""


class ResultRow(Record):
    """Contract 14: one row of `tracking/results.tsv`."""

    iteration: int
    commit: str
    metric: float | None
    delta: float | None
    guard: Literal["pass", "fail", "-"]
    status: Literal["baseline", "keep", "keep (reworked)", "discard", "crash", "no-op", "metric-error"]
    description: str


@functools.cache  # made anew for every turn it was a fifth of the daemon's time
def agent_schema(role: str) -> dict[str, Any] | None:
    """Return the JSON Schema that a role's answer must meet; None for an executor (free text).

    Args:
        role: `researcher`, `planner`, `architect`, `critic` or `executor`.

    Returns:
        One object for all callers, to be read only.

    Raises:
        KeyError: there is no such role.
    """
    models: dict[str, type[Record] | None] = {
        "researcher": BriefAnswer,
        "planner": PlanAnswer,
        "architect": ArchitectReview,
        "critic": CriticReview,
        "executor": None,
    }
    model = models[role]
    return model.model_json_schema() if model is not None else None
