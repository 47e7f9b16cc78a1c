"""A whole run without actors: every command is answered at once by a pure function.

`Play` does what the conductor does (journal the event, `step`, project, dispatch) with lists for disk and actors,
so that a test can tell a run from start to end, stop it anywhere, and look at every file it would have written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.store.views import Projection, project
from sid_protocol import ids
from sid_protocol.commands import (
    AdvanceBranch,
    AdvisePlan,
    AnyCommand,
    BuildMerge,
    CloseRound,
    DraftPlan,
    Halt,
    Inspect,
    JudgePlan,
    Kill,
    Measure,
    PrepareRound,
    Research,
    ReturnIdeas,
    RunGuards,
    RunPlan,
)
from sid_protocol.events import (
    Activity,
    AgentKilled,
    AnyEvent,
    BranchAdvanced,
    BriefDone,
    CandidateCommitted,
    DeadlinePassed,
    EvidenceTaken,
    GuardResult,
    GuardsDone,
    IdeasReturned,
    MergeBuilt,
    PlanAdvised,
    PlanDrafted,
    PlanJudged,
    RoundClosed,
    RoundPrepared,
    RunCreated,
    RunLessons,
    RunMeasured,
    RunStarted,
    WorkHalted,
)
from sid_protocol.records import (
    FAMILIES,
    ArchitectReview,
    BriefAnswer,
    Cost,
    CriticReview,
    Idea,
    PlanAnswer,
    PlanStep,
)
from sid_protocol.settings import Settings

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
BASE = "b" * 40
COST = Cost(input_tokens=100, output_tokens=10, usd=0.01)
Answer = Callable[[AnyCommand], "AnyEvent | None"]
"""A test's own answer to a command; None leaves it to `default_answer`."""


def sha(text: str) -> str:
    """Return 40 hex digits that stand for a commit of that name."""
    return text.encode().hex().ljust(40, "0")[:40]


def brief(families: Iterable[str] = ("optimization", "architecture", "data")) -> BriefAnswer:
    ideas = [Idea(title=f"Try {name}", approach_family=name, confidence="high") for name in families]
    return BriefAnswer(repo_analysis_summary="One hot loop.", ideas=ideas)


def plan(
    family: str = "optimization",
    hypothesis: str = "Cache the table; fewer lookups.",
    change: str = "cache it",
) -> PlanAnswer:
    return PlanAnswer(
        hypothesis=hypothesis,
        approach_family=family,
        target_files=["app.py"],
        steps=[PlanStep(step=1, file="app.py", change=change)],
    )


def review(verdict: str = "approved", reason: str | None = None) -> CriticReview:
    return CriticReview.model_validate(
        {
            "h001_hypothesis_count": "pass",
            "h002_family_streak": "pass",
            "h003_intra_round_diversity": "pass",
            "schema_valid": "pass",
            "history_aware": "pass" if verdict == "approved" else "fail",
            "verdict": verdict,
            "rejection_reason": reason,
        }
    )


def measured(score: float | None, **more: Any) -> RunMeasured:
    status = "success" if score is not None else "error"
    return RunMeasured(score=score, status=status, raw=f"{score}\n", wall_s=1.0, **more)


def created(settings: Settings, **more: Any) -> RunCreated:
    fields: dict[str, Any] = {
        "run_id": "20250301-120000-a1b2",
        "repo": "/home/ada/primes",
        "root": "/home/ada/primes/.sid/topics/default",
        "topic": "default",
        "goal_slug": "faster_sieve",
        "settings": settings,
        "baseline_commit": BASE,
        "baseline_samples": (10.0, 10.0, 10.0),
        "baseline_score": 10.0,
    }
    return RunCreated(**{**fields, **more})


def family_of(iteration: int, planner: str) -> str:
    """Return a family that passes H002 and H003 in every round."""
    others = [name for name in FAMILIES if name != "other"]
    return others[(ids.planner_number(planner) + iteration) % len(others)]


@dataclass
class World:
    """What the made-up repository answers.

    Attributes:
        score: Score of a tree, by the name of the arm and the round.
        head: The improvement branch.
        others: What other runs have seen.
    """

    settings: Settings
    score: Callable[[str, int], float | None] = lambda arm, iteration: 10.0
    head: str = BASE
    ideas: tuple[str, ...] = ()
    others: tuple[RunLessons, ...] | None = ()
    answer: Answer = lambda command: None
    merged_as: dict[str, str] = field(default_factory=dict)

    def reply(self, command: AnyCommand) -> AnyEvent:
        """Return the event that ends a command."""
        event = self.answer(command) or self.default(command)
        if not event.cause:
            event = event.model_copy(update={"cause": command.id})
        if isinstance(event, BranchAdvanced):
            self.head = event.commit
        return event

    def default(self, command: AnyCommand) -> AnyEvent:
        """Return how a command ends when all goes well."""
        match command:
            case PrepareRound():
                return RoundPrepared(
                    settings=self.settings,
                    goal="Faster.",
                    ideas=self.ideas,
                    head=self.head,
                    others=self.others,
                )
            case Research():
                return BriefDone(brief=brief(), cost=COST, duration_s=2.0)
            case DraftPlan():
                family = family_of(command.iteration, command.planner)
                drafted = plan(family, change=f"cache it, way {command.iteration}")
                return PlanDrafted(plan=drafted, cost=COST, duration_s=2.0)
            case AdvisePlan():
                return PlanAdvised(review=ArchitectReview(verdict="approve"), cost=COST, duration_s=1.0)
            case JudgePlan():
                return PlanJudged(review=review(), cost=COST, duration_s=1.0)
            case RunPlan():
                commit = sha(f"r{command.iteration}{command.executor}")
                return CandidateCommitted(
                    commit=commit, diff_stat="1 file changed", net_lines=3, cost=COST, duration_s=9.0
                )
            case _:
                return self._of_git(command)

    def _of_git(self, command: AnyCommand) -> AnyEvent:
        match command:
            case RunGuards():
                guards = self.settings.guard_command
                return GuardsDone(results=tuple(GuardResult(command=one, passed=True) for one in guards))
            case Measure():
                arm = self.merged_as["arm"] if command.arm == "merged" else command.arm
                return measured(self.score(arm, command.iteration))
            case BuildMerge():
                self.merged_as["arm"] = command.executor
                return MergeBuilt(tree=sha(f"t{command.iteration}{command.executor}"))
            case AdvanceBranch():
                return BranchAdvanced(commit=sha(f"m{command.iteration}"), ref="refs/heads/improve/x")
            case CloseRound():
                return RoundClosed(
                    tags={
                        executor: ids.archive_tag("default", command.iteration, executor)
                        for executor, commit in command.losers
                        if commit
                    }
                )
            case ReturnIdeas():
                return IdeasReturned()
            case _:
                return self._of_stragglers(command)

    def _of_stragglers(self, command: AnyCommand) -> AnyEvent:
        match command:
            case Halt():
                return WorkHalted(cause=command.target)
            case Inspect():
                activity = Activity(elapsed_s=1800.0, idle_s=5.0, deadline_s=1800.0, snippet="…", edits=1)
                return EvidenceTaken(target=command.target, clock=command.clock, activity=activity)
            case Kill():
                return AgentKilled(cause=command.target, reason=command.reason, processes_killed=2)
            case _:
                raise AssertionError(command)


class Play:
    """A run, its journal and its files.

    Args:
        world: What answers.
        event: The first event; made from the world's settings if left out.
    """

    def __init__(self, world: World, event: RunCreated | None = None) -> None:
        self.world = world
        self.clock = START
        self.journal: list[AnyEvent] = []
        self.state: RunState | None = None
        self.steps: list[tuple[RunState | None, AnyEvent, RunState]] = []
        self.files: dict[str, str] = {}
        self.entries: dict[str, list[str]] = {}
        self.queue: deque[AnyCommand] = deque()
        self.dispatched: list[AnyCommand] = []
        self.hung: set[str] = set()
        self.feed(event or created(world.settings))

    @property
    def now(self) -> RunState:
        """The state, which there is from the first event on."""
        assert self.state is not None
        return self.state

    @property
    def status(self) -> str:
        """The run's status."""
        return self.now.status

    def feed(self, event: AnyEvent) -> Projection:
        """Journal one event and take what follows from it."""
        self.clock += timedelta(seconds=1)
        event = event.model_copy(update={"at": self.clock.isoformat(timespec="microseconds")})
        before = self.state
        self.journal.append(event)
        self.state, commands = step(before, event)
        self.steps.append((before, event, self.state))
        projection = project(before, event, self.state)
        self.files.update(projection.documents)
        for file, text in projection.entries:
            self.entries.setdefault(file, []).append(text)
        self.queue.extend(commands)
        self.dispatched.extend(commands)
        return projection

    def start(self, **more: Any) -> None:
        """Start the run, or start it again; what was under way is lost, as with a dead daemon."""
        self.queue.clear()
        self.feed(RunStarted(settings=self.world.settings, **more))

    def turn(self, *, hold: str = "") -> bool:
        """Answer the oldest command that does not hang and is not of the kind `hold`; False without one."""
        self.queue = deque(one for one in self.queue if one.id in self.now.outstanding)
        ready = [one for one in self.queue if one.id not in self.hung and one.kind != hold]
        if ready:
            self.queue.remove(ready[0])
            self.feed(self.world.reply(ready[0]))
        return bool(ready)

    def run(
        self, *, until: Callable[[Play], bool] = lambda play: False, hold: str = "", most: int = 20_000
    ) -> None:
        """Answer commands until there are none, or `until` says so."""
        for _ in range(most):
            if until(self) or not self.turn(hold=hold):
                return
        raise AssertionError(f"not at rest after {most} answers")

    def hang(self, command_id: str) -> None:
        """Let a command never be answered, and one of its clocks run out."""
        self.hung.add(command_id)
        self.feed(DeadlinePassed(target=command_id, clock="hard"))


def played(settings: Settings, event: RunCreated | None = None, **world: Any) -> Play:
    """Return a run from its start to its end."""
    play = Play(World(settings, **world), event)
    play.start()
    play.run()
    return play


def scripted(script: dict[str, list[AnyEvent]]) -> Answer:
    """Return an answer that takes, for a command whose id holds a key, the key's next event."""
    left = {key: deque(events) for key, events in script.items()}

    def answer(command: AnyCommand) -> AnyEvent | None:
        for key, events in left.items():
            if key in command.id and events:
                return events.popleft()
        return None

    return answer
