"""What happened to a run: the only input of the core, and the only thing in its journal.

Events are facts in the past tense with the time at which they were received. Those that answer a
command name it in `cause`. State is a fold over them, so they carry everything that a decision or a
contract file needs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter

from sid_protocol.commands import Message
from sid_protocol.records import (
    ArchitectReview,
    BriefAnswer,
    Category,
    Cost,
    CriticReview,
    PlanAnswer,
    ReasonName,
)
from sid_protocol.settings import Settings


class Event(Message):
    """Base of all events.

    Attributes:
        at: When it was received, ISO 8601 UTC with microseconds; set by the conductor.
        cause: Id of the command that it ends, or empty.
    """

    at: str = ""
    cause: str = ""


# The run as a whole


class CarriedOver(Message):
    """Counters of an earlier track that a new run goes on from."""

    # A journal of 0.1.0 counts starts here, too; nothing reads that any more.
    model_config = ConfigDict(extra="ignore")

    iterations: int = 0
    best_score: float | None = None
    plateau_count: int = 0
    breaker_count: int = 0
    winner_families: tuple[str | None, ...] = ()
    baseline_score: float | None = None
    first_commit: str | None = None
    """Where that score was measured, if the run began before its newest `init`; an audit holds the head against it."""
    merges: int = 0
    summed_gain: float = 0.0
    summed_score: float = 0.0
    audited: dict[str, Any] | None = None
    audited_merges: int = 0
    holdout_looks: int = 0
    theirs: dict[str, JsonValue] = Field(default_factory=dict)
    """Fields of its agent settings that are not ours: kept, and written again."""


class RunCreated(Event):
    """`init` made the run: the baseline is measured, the improvement branch exists."""

    kind: Literal["run_created"] = "run_created"
    run_id: str
    repo: str
    root: str
    topic: str
    goal_slug: str
    settings: Settings
    baseline_commit: str
    baseline_samples: tuple[float, ...]
    baseline_score: float
    baseline_raw: str = ""
    deterministic: bool = True
    calibration: dict[str, Any] = Field(default_factory=dict)
    """Noise figures of set-up (`cv`, `aa`, `mde`), for the measuring core."""
    carried_over: CarriedOver | None = None
    replay_of: str | None = None
    """The recorded run that this one replays; its dice fall as in that one."""


class RunStarted(Event):
    """`start`: first, or again after a stop, a crash or an end."""

    kind: Literal["run_started"] = "run_started"
    settings: Settings
    rounds: int | None = None
    """At most so many more rounds from now, or None."""
    resumed: bool = False
    again: bool = False
    """A daemon goes on by itself with what the one before had active."""
    crashed: bool = False
    """The daemon before died, instead of suspending the run."""


class RoundsAsked(Event):
    """`start --rounds` met a run that its daemon had resumed by itself: so many more rounds from now."""

    kind: Literal["rounds_asked"] = "rounds_asked"
    rounds: int


class StopRequested(Event):
    """The user wants the run to end, or the daemon leaves and suspends it."""

    kind: Literal["stop_requested"] = "stop_requested"
    now: bool = False
    suspend: bool = False
    """The next daemon goes on with it by itself."""


class RunStopped(Event):
    """All work has ended after a stop request; unfinished work is done again at resume."""

    kind: Literal["run_stopped"] = "run_stopped"


class TurnsCut(Event):
    """A stop has ended agents' turns that will be done again; what they had cost by then is spent all the same."""

    kind: Literal["turns_cut"] = "turns_cut"
    costs: dict[str, Cost]
    """By role."""


class TurnPaid(Event):
    """An agent's turn goes on; so much it has cost by now, which counts if the daemon dies before its end."""

    kind: Literal["turn_paid"] = "turn_paid"
    target: str
    """Its command's id."""
    cost: Cost


class RunPaused(Event):
    """No new work until `resume`."""

    kind: Literal["run_paused"] = "run_paused"


class RunResumed(Event):
    """The pause is over."""

    kind: Literal["run_resumed"] = "run_resumed"


class RunFailed(Event):
    """The run cannot go on: the reason is for the user."""

    kind: Literal["run_failed"] = "run_failed"
    reason: str
    hint: str = ""


class ConfigChanged(Event):
    """A setting was changed through `sictl`."""

    kind: Literal["config_changed"] = "config_changed"
    field: str
    old_value: Any = None
    new_value: Any = None
    source: str = "user"


class Recalibrated(Event):
    """The user had the benchmark calibrated again, while the run was not active.

    Attributes:
        commit: The head of the improvement branch, which was measured.
        samples: Its scores, in order.
        score: The one score, or the median.
        calibration: As in `RunCreated`.
    """

    kind: Literal["recalibrated"] = "recalibrated"
    commit: str
    samples: tuple[float, ...]
    score: float
    deterministic: bool
    calibration: dict[str, Any] = Field(default_factory=dict)


# A round


class RunLessons(Message):
    """What another run has seen: keys of faults, and of the lessons that stand there on several runs' evidence."""

    run_id: str
    seen: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()


class LessonForgotten(Event):
    """The user ends a lesson by hand."""

    kind: Literal["lesson_forgotten"] = "lesson_forgotten"
    lesson: str


class RoundPrepared(Event):
    """Everything that a round starts from."""

    kind: Literal["round_prepared"] = "round_prepared"
    settings: Settings
    goal: str
    rules: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    """Custom approach families."""
    ideas: tuple[str, ...] = ()
    head: str
    sealed: tuple[str, ...] = ()
    """The sealed paths, as they are for this round."""
    on_side_ref: bool = False
    """The improvement branch is checked out by the user; wins wait on a ref of ours."""
    others: tuple[RunLessons, ...] | None = None
    """Other runs of this daemon, the newest first; None in journals of versions without lessons."""


class AgentFailed(Event):
    """An agent crashed, answered junk or did not answer; the core retries once, unless that is no use."""

    kind: Literal["agent_failed"] = "agent_failed"
    why: str
    cost: Cost = Cost()
    duration_s: float = 0.0
    budget: str | None = None
    """The limit under `budget` that hindered it: asking again is no use."""
    final: bool = False
    """The same question would get the same answer."""


class WorkFailed(Event):
    """Git, the disk or the benchmark's surroundings failed: the run cannot go on as it is."""

    kind: Literal["work_failed"] = "work_failed"
    why: str
    hint: str = ""


class ActorCrashed(Event):
    """An actor died of a fault of its own while at a command; it has been restarted."""

    kind: Literal["actor_crashed"] = "actor_crashed"
    actor: str
    error: str


class BriefDone(Event):
    """The researcher's answer."""

    kind: Literal["brief_done"] = "brief_done"
    brief: BriefAnswer
    cost: Cost = Cost()
    duration_s: float = 0.0


class PlanDrafted(Event):
    """A planner's answer."""

    kind: Literal["plan_drafted"] = "plan_drafted"
    plan: PlanAnswer
    cost: Cost = Cost()
    duration_s: float = 0.0


class PlanAdvised(Event):
    """The architect's answer."""

    kind: Literal["plan_advised"] = "plan_advised"
    review: ArchitectReview
    cost: Cost = Cost()
    duration_s: float = 0.0


class PlanJudged(Event):
    """The critic's answer."""

    kind: Literal["plan_judged"] = "plan_judged"
    review: CriticReview
    cost: Cost = Cost()
    duration_s: float = 0.0


# A candidate


class CandidateCommitted(Event):
    """The executor's edits are committed; seal and scope hold."""

    kind: Literal["candidate_committed"] = "candidate_committed"
    commit: str
    diff_stat: str
    net_lines: int = 0
    """Lines added less lines removed."""
    paths: tuple[str, ...] = ()
    summary: str = ""
    findings: tuple[str, ...] = ()
    """Warnings of detectors and of a scope that only warns."""
    patch: str = ""
    """Digest of the normalised change, by which a repetition is known."""
    tree: str = ""
    """The commit's git tree."""
    cost: Cost = Cost()
    duration_s: float = 0.0


class CandidateRefused(Event):
    """The executor's edits cannot be measured: empty, sealed or out of scope."""

    kind: Literal["candidate_refused"] = "candidate_refused"
    category: Category
    what: str
    paths: tuple[str, ...] = ()
    """Paths that no candidate may change, whatever the change: a lesson may bar plans from them."""
    commit: str | None = None
    """Where the refused edits are kept, if anything could be committed."""
    diff_stat: str | None = None
    cost: Cost = Cost()
    duration_s: float = 0.0
    findings: tuple[str, ...] = ()
    """As in `CandidateCommitted`, and those that reject."""


class GuardResult(Message):
    """One guard command's end."""

    command: str
    passed: bool
    output: str = ""


class GuardsDone(Event):
    """All guards have run, or the first red one ended them."""

    kind: Literal["guards_done"] = "guards_done"
    results: tuple[GuardResult, ...]
    baseline_red: tuple[str, ...] = ()
    """Guards that are red on the baseline, too, and so blame no candidate."""
    duration_s: float = 0.0


class RunMeasured(Event):
    """One benchmark process has ended; with all that a decision's story needs, before anything uses it.

    Attributes:
        iteration: The round; 0 between rounds.
        arm: As in `Measure`, like `tree`, `stage` and `block`.
        load1: The machine's load when it began.
    """

    kind: Literal["run_measured"] = "run_measured"
    iteration: int = 0
    arm: str = ""
    tree: str = ""
    stage: str = ""
    block: int = 0
    score: float | None
    status: Literal["success", "error", "timeout"]
    category: Category | None = None
    why: str = ""
    sub_scores: dict[str, float] = Field(default_factory=dict)
    raw: str = ""
    exit_code: int | None = None
    started_at: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    load1: float = 0.0
    beside: RunMeasured | None = None
    """The run that was made at the same time; it is used after this one."""


class MergeBuilt(Event):
    """The merged tree exists in the object database."""

    kind: Literal["merge_built"] = "merge_built"
    tree: str


class MergeConflicted(Event):
    """The candidate does not merge."""

    kind: Literal["merge_conflicted"] = "merge_conflicted"
    paths: tuple[str, ...]


class BranchAdvanced(Event):
    """The improvement branch (or, while the user has it checked out, our ref) holds the merge."""

    kind: Literal["branch_advanced"] = "branch_advanced"
    commit: str
    ref: str


class BranchMoved(Event):
    """The improvement branch is not where the run left it: somebody else moved it."""

    kind: Literal["branch_moved"] = "branch_moved"
    expected: str
    actual: str | None


class RoundClosed(Event):
    """Losers are archived, worktrees removed."""

    kind: Literal["round_closed"] = "round_closed"
    tags: dict[str, str]
    """Executor → tag."""
    notes: tuple[str, ...] = ()
    """Push and pull request: what was done or skipped."""


class IdeasReturned(Event):
    """The user's ideas stand in `idea.md` again."""

    kind: Literal["ideas_returned"] = "ideas_returned"


class WorkHalted(Event):
    """The work of `cause` has ended unfinished, because nobody needs it."""

    kind: Literal["work_halted"] = "work_halted"
    cost: Cost = Cost()


# Stragglers


class Activity(Message):
    """What was seen of an agent, and what its processes do: the evidence for a reason."""

    elapsed_s: float
    idle_s: float
    deadline_s: float
    last_activity: str | None = None
    last_tool: str | None = None
    tools: tuple[str, ...] = ()
    """The last tool calls, `name#hash of arguments`, oldest first."""
    repeats: int = 0
    outputs: tuple[str, ...] = ()
    """The last output lines, oldest first."""
    snippet: str = ""
    stop_reason: str | None = None
    error: str | None = None
    open_request_s: float | None = None
    permission_asked: str | None = None
    asked_question: bool = False
    edits: int = 0
    recent_edits: int | None = None
    """Whether files changed since the last three tool calls began; None where nobody looked."""
    claimed_done: bool = False
    process_states: tuple[str, ...] = ()
    """`pid state wchan command`, one a process."""
    sockets: tuple[str, ...] = ()
    """`state remote`, one a socket."""
    cpu_s: float = 0.0


class DeadlinePassed(Event):
    """A command is past one of its clocks."""

    kind: Literal["deadline_passed"] = "deadline_passed"
    target: str
    clock: Literal["hard", "idle"]


class EvidenceTaken(Event):
    """The answer to `Inspect`."""

    kind: Literal["evidence_taken"] = "evidence_taken"
    target: str
    clock: Literal["hard", "idle"]
    activity: Activity


class AgentKilled(Event):
    """A straggler's process tree is dead; `cause` is the command it was at."""

    kind: Literal["agent_killed"] = "agent_killed"
    reason: ReasonName
    processes_killed: int
    commit: str | None = None
    """Where an executor's unfinished edits are kept."""
    diff_stat: str | None = None
    cost: Cost = Cost()


AnyEvent = Annotated[
    RunCreated
    | RunStarted
    | RoundsAsked
    | StopRequested
    | RunStopped
    | TurnsCut
    | TurnPaid
    | RunPaused
    | RunResumed
    | RunFailed
    | ConfigChanged
    | Recalibrated
    | LessonForgotten
    | RoundPrepared
    | AgentFailed
    | WorkFailed
    | ActorCrashed
    | BriefDone
    | PlanDrafted
    | PlanAdvised
    | PlanJudged
    | CandidateCommitted
    | CandidateRefused
    | GuardsDone
    | RunMeasured
    | MergeBuilt
    | MergeConflicted
    | BranchAdvanced
    | BranchMoved
    | RoundClosed
    | IdeasReturned
    | WorkHalted
    | DeadlinePassed
    | EvidenceTaken
    | AgentKilled,
    Field(discriminator="kind"),
]

_adapter: TypeAdapter[AnyEvent] | None = None


def parse_event(text: str | bytes) -> AnyEvent:
    """Read one event of the journal.

    Raises:
        pydantic.ValidationError: the text is no event of this version.
    """
    global _adapter  # noqa: PLW0603 - building the adapter costs 50 ms, so it waits for first use
    if _adapter is None:
        _adapter = TypeAdapter(AnyEvent)
    return _adapter.validate_json(text)
