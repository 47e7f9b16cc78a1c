"""Whatever happens in whatever order, a run keeps its promises: a random walk over `step`.

The walk answers any command with any event that may end it, lets agents hang, repeats answers, pauses, stops,
crashes and starts again; the invariants are checked after every event.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from pydantic import TypeAdapter

from sid_daemon.core.rounds import review
from sid_daemon.core.run import step
from sid_daemon.core.state import ACTIVE, ENDED, RunState
from sid_protocol.commands import (
    AdvanceBranch,
    AdvisePlan,
    AgentCommand,
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
    ActorCrashed,
    AgentFailed,
    AnyEvent,
    BranchAdvanced,
    BranchMoved,
    CandidateCommitted,
    CandidateRefused,
    DeadlinePassed,
    GuardResult,
    GuardsDone,
    MergeConflicted,
    PlanDrafted,
    PlanJudged,
    RoundClosed,
    RoundPrepared,
    RunMeasured,
    RunPaused,
    RunResumed,
    RunStopped,
    StopRequested,
    WorkFailed,
    parse_event,
)
from sid_protocol.records import PlanStep
from sid_protocol.settings import Measurement, Settings
from tests.core.play import Play, World, measured, plan, sha
from tests.core.play import review as judged

STATES: TypeAdapter[RunState] = TypeAdapter(RunState)
FEW = st.sampled_from(["optimization", "data", "testing", "nonsense"])
SCORES = st.sampled_from([8.0, 9.0, 10.0, 10.5, 11.0, 12.0, 14.0])
HAPPENINGS = [
    *["answer"] * 12,
    *["go_well"] * 8,
    *["hang_for_good"] * 3,
    "hang",
    "repeat",
    "pause",
    "crash",
    "leave",
    "stop",
    "fail",
]


class Runs(RuleBasedStateMachine):
    """A run at the hands of a hostile world."""

    play: Play
    known: set[str]

    @initialize(
        agents=st.integers(1, 4),
        kill_threshold=st.integers(1, 3),
        parallel=st.sampled_from([None, 1, 2]),
        guards=st.booleans(),
        lower=st.booleans(),
        moved=st.sampled_from(["stop", "rebase"]),
        mode=st.sampled_from(["auto", "auto", "noisy"]),
        ideas=st.sampled_from([(), ("use a set",)]),
    )
    def begin(
        self,
        agents: int,
        kill_threshold: int,
        parallel: int | None,
        guards: bool,
        lower: bool,
        moved: Any,
        mode: Any,
        ideas: tuple[str, ...],
    ) -> None:
        settings = Settings(
            number_of_agents=agents,
            kill_threshold=kill_threshold,
            blocked_limit=2,
            max_parallel_executors=parallel,
            guard_command=["make check"] if guards else [],
            benchmark_direction="lower_is_better" if lower else "higher_is_better",
            on_branch_moved=moved,
            max_iterations=6,
            target_value=3.0 if lower else 30.0,
            benchmark_command="python bench.py",
            measurement=Measurement(mode=mode, max_pairs=4, screen_blocks=1),
        )
        self.scores: dict[str, float | None] = {}
        self.merges: Counter[int] = Counter()
        self.known = set()
        self.world = World(settings, ideas=ideas, score=lambda arm, iteration: self.scores.get(arm, 10.0))
        self.play = Play(self.world)
        self.feed_start()

    # ------------------------------------------------------------------------------ what happens

    def feed(self, event: AnyEvent) -> None:
        """Take one event, with the checks that need both sides of a step."""
        before = self.play.now
        outstanding = set(before.outstanding)
        self.play.feed(event)
        after = self.play.now
        for key in set(after.outstanding) - outstanding:
            assert key not in self.known or key.endswith(".ideas"), f"{key} was issued twice"
            self.known.add(key)
        if isinstance(event, BranchAdvanced) and event.cause in outstanding:
            self.merges[before.iteration] += 1
        if after.completed > before.completed:
            self.count_round(before, after)

    def count_round(self, before: RunState, after: RunState) -> None:
        """Recount the counters from the merge report, which was made apart from them."""
        number = before.iteration
        report = self.play.files[f"state/merge_reports/round_{number}.json"]
        status = next(
            name
            for name in ("merged", "no_improvement", "no_winner", "all_rejected", "blocked")
            if f'"status": "{name}"' in report
        )
        plateau, breaker, blocked = before.plateau_count, before.breaker_count, before.blocked_count
        if status == "merged":
            assert after.breaker_count == 0
            assert after.plateau_count in (0, plateau + 1)
        else:
            assert after.breaker_count == breaker + 1
            assert after.plateau_count == plateau
        assert after.blocked_count == (blocked + 1 if status == "blocked" else 0)
        assert (after.status == "blocked") <= (after.blocked_count >= 2)

    def feed_start(self, *, crashed: bool = False, again: bool = False) -> None:
        before = set(self.play.now.outstanding)
        was_begun = self.play.now.round is not None and self.play.now.round.prepared
        self.play.start(crashed=crashed, again=again or crashed, resumed=True)
        after = self.play.now
        self.known |= set(after.outstanding)
        if was_begun and after.status in ACTIVE:
            assert after.held
            new = set(after.outstanding) - before
            assert new == {f"r{after.iteration}.prepare.{after.starts}"}, (new, before)
            for key in before - set(after.outstanding):
                lost = ".prepare." in key or ".inspect." in key or ".kill." in key
                assert lost or after.now_round.blocked

    def due(self) -> list[AnyCommand]:
        """Return what an obedient conductor may have under way."""
        state = self.play.now
        return [
            command
            for command in state.outstanding.values()
            if not state.held or isinstance(command, PrepareRound)
        ]

    @property
    def working(self) -> bool:
        return self.play.now.status == "running" and bool(self.due())

    @rule(data=st.data(), what=st.sampled_from(HAPPENINGS))
    def happen(self, data: st.DataObject, what: str) -> None:
        """One thing happens; what cannot happen now gives way to what brings the run on."""
        status = self.play.now.status
        if what == "repeat":
            self.repeat(data)
        elif status not in ACTIVE:
            self.feed_start()
        elif what == "pause" or status == "paused":
            self.feed(RunResumed() if status == "paused" else RunPaused())
        else:
            getattr(self, what)(data)

    def answer(self, data: st.DataObject) -> None:
        """Any command ends in any way."""
        command = data.draw(st.sampled_from(self.due()), label="command")
        event = self.any_end(data, command)
        self.feed(event if event.cause else event.model_copy(update={"cause": command.id}))
        if isinstance(event, BranchAdvanced):
            self.world.head = event.commit

    def go_well(self, data: st.DataObject) -> None:
        """A while during which nothing goes wrong."""
        for _ in range(data.draw(st.integers(1, 12), label="times")):
            if self.working:
                self.feed(self.world.reply(self.due()[0]))

    def hang(self, data: st.DataObject) -> None:
        """A clock runs out, of an agent or of what has no clock."""
        command = data.draw(st.sampled_from(self.due()), label="straggler")
        before = self.play.now.outstanding
        self.feed(DeadlinePassed(target=command.id, clock=data.draw(st.sampled_from(["hard", "idle"]))))
        if not isinstance(command, AgentCommand):
            assert self.play.now.outstanding == before

    def hang_for_good(self, data: st.DataObject) -> None:
        """An agent is killed at its deadline, if its answer does not come first."""
        agents = [command for command in self.due() if isinstance(command, AgentCommand)]
        if not agents:
            return
        command = data.draw(st.sampled_from(agents), label="straggler")
        self.feed(DeadlinePassed(target=command.id, clock="hard"))
        for _ in range(2):
            for follow in self.due():
                if isinstance(follow, Inspect | Kill) and follow.target == command.id:
                    self.feed(self.world.reply(follow))

    def repeat(self, data: st.DataObject) -> None:
        """An answer that comes twice, or answers nothing, changes nothing."""
        outstanding = self.play.now.outstanding
        old = [event for event in self.play.journal if event.cause and event.cause not in outstanding]
        old.append(AgentFailed(cause="r99.nobody", why="?"))
        event = old[data.draw(st.integers(0, len(old) - 1), label="repeated")]
        before = self.play.now
        after, commands = step(before, event)
        assert (after, commands) == (before, ())

    def crash(self, data: st.DataObject) -> None:
        self.play.clock += timedelta(minutes=data.draw(st.sampled_from([0, 6]), label="minutes"))
        self.feed_start(crashed=True)

    def leave(self, data: st.DataObject) -> None:
        """The daemon leaves in order; the next one goes on."""
        self.feed(StopRequested(suspend=True))
        self.feed_start(again=True)
        assert self.play.now.status in ("running", "max_iterations", "target_reached")

    def stop(self, data: st.DataObject) -> None:
        self.feed(StopRequested())
        before = self.play.now
        self.feed(RunStopped())
        assert self.play.now.status == "user_stopped"
        assert self.play.now.outstanding == before.outstanding

    def fail(self, data: st.DataObject) -> None:
        """Git or the disk fails: the run ends, its work stays on the book."""
        command = data.draw(st.sampled_from(self.due()), label="failed")
        self.feed(WorkFailed(cause=command.id, why="No space left on device"))
        assert self.play.now.status == "failed"
        assert command.id in self.play.now.outstanding

    # -------------------------------------------------------------------------- how commands end

    def any_end(self, data: st.DataObject, command: AnyCommand) -> AnyEvent:
        match command:
            case PrepareRound():
                head = data.draw(st.sampled_from([self.world.head] * 24 + [sha("foreign")]))
                self.world.head = head
                return RoundPrepared(
                    settings=self.world.settings,
                    goal="Faster.",
                    ideas=self.world.ideas if command.take_ideas else (),
                    head=head,
                    sealed=("bench.py",),
                )
            case Research() | AdvisePlan():
                return data.draw(st.sampled_from([self.world.default(command), self.failure()]))
            case DraftPlan():
                return data.draw(st.sampled_from([self.any_plan(data), self.any_plan(data), self.failure()]))
            case JudgePlan():
                contradiction = judged().model_copy(update={"history_aware": "fail"})
                reviews = [judged(), judged(), judged("rejected", "seen before"), contradiction]
                answers: list[AnyEvent] = [*(PlanJudged(review=one) for one in reviews), self.failure()]
                return data.draw(st.sampled_from(answers))
            case RunPlan():
                return self.any_candidate(data, command)
            case _:
                return self.any_work(data, command)

    def failure(self) -> AnyEvent:
        return AgentFailed(why="no JSON in the answer")

    def any_plan(self, data: st.DataObject) -> PlanDrafted:
        drafted = plan(data.draw(FEW, label="family"))
        fault = data.draw(st.sampled_from(["", "", "", "two", "sealed"]), label="fault")
        if fault == "two":
            drafted = drafted.model_copy(update={"hypothesis": "1. Cache it.\n2. Sort it."})
        if fault == "sealed":
            steps = [PlanStep(step=1, file="bench.py", change="print more")]
            drafted = drafted.model_copy(update={"steps": steps})
        return PlanDrafted(plan=drafted)

    def any_candidate(self, data: st.DataObject, command: RunPlan) -> AnyEvent:
        refusals: list[AnyEvent] = [
            CandidateRefused(category="logic_error", what="empty change"),
            CandidateRefused(category="sealed_file_violation", what="bench.py", commit=sha("refused")),
        ]
        commit = sha(f"r{command.iteration}{command.executor}{command.attempt}")
        good = CandidateCommitted(commit=commit, diff_stat="1 file changed", net_lines=2)
        crash = ActorCrashed(actor=command.executor, error="KeyError: 'x'")
        return data.draw(st.sampled_from([good, good, good, *refusals, self.failure(), crash]))

    def any_work(self, data: st.DataObject, command: AnyCommand) -> AnyEvent:
        match command:
            case RunGuards():
                guard = self.world.settings.guard_command[0]
                red = GuardsDone(results=(GuardResult(command=guard, passed=False, output="1 failed"),))
                excused = red.model_copy(update={"baseline_red": (guard,)})
                return data.draw(st.sampled_from([self.world.default(command), red, excused]))
            case Measure():
                self.scores.setdefault(command.arm, 10.0)
                if command.stage == "smoke":
                    self.scores[command.arm] = data.draw(SCORES, label="score")
                failures: list[AnyEvent] = [
                    RunMeasured(score=None, status="timeout", why="past 900 s"),
                    measured(None, category="benchmark_parse_error", why="no number"),
                    measured(data.draw(SCORES)),
                ]
                return data.draw(st.sampled_from([self.world.default(command)] * 6 + failures))
            case BuildMerge():
                conflict = MergeConflicted(paths=("app.py",))
                return data.draw(st.sampled_from([self.world.default(command)] * 3 + [conflict]))
            case AdvanceBranch():
                moved = BranchMoved(expected=command.onto, actual=sha("foreign"))
                return data.draw(st.sampled_from([self.world.default(command)] * 4 + [moved]))
            case Halt() | Inspect() | Kill() | CloseRound() | ReturnIdeas():
                return self.world.default(command)
            case _:
                raise AssertionError(command)

    # ---------------------------------------------------------------------------- what must hold

    @invariant()
    def rounds_are_neither_skipped_nor_repeated(self) -> None:
        state = self.play.now
        assert state.iteration == state.completed + (state.round is not None)
        if state.round is not None:
            assert state.round.iteration == state.iteration

    @invariant()
    def a_running_run_has_work(self) -> None:
        state = self.play.now
        if state.status == "running" and not state.stopping:
            assert self.due(), "nothing is under way, so nothing will ever happen"

    @invariant()
    def approved_plans_pass_the_rules(self) -> None:
        state = self.play.now
        now = state.round
        if now is None:
            return
        plans = [now.slots[planner].plan for planner in now.approved]
        families = [one.approach_family for one in plans if one is not None]
        assert len(set(families)) == len(families) == len(now.approved)
        assert set(now.executions) == {f"executor_{ord(planner[-1]) - 96}" for planner in now.approved}
        for one in plans:
            assert one is not None
            assert one.critic_review is not None
            assert {getattr(one.critic_review, point) for point in review.POINTS} == {"pass"}
            assert review.hypothesis_count(one.hypothesis) == 1
            assert one.approach_family not in (state.streak_family, "nonsense")

    @invariant()
    def a_round_merges_once_at_most(self) -> None:
        assert not self.merges or max(self.merges.values()) == 1

    @invariant()
    def kills_block_the_round(self) -> None:
        state = self.play.now
        if state.round is None:
            return
        killed = sum(one.kill is not None for one in state.round.executions.values())
        assert state.round.blocked == (killed >= state.settings.kill_threshold)
        if state.round.blocked:
            assert state.round.selection is None
            assert state.round.winner_commit is None

    @invariant()
    def executors_keep_to_their_cap(self) -> None:
        state = self.play.now
        cap = state.settings.max_parallel_executors
        if state.round is not None and cap is not None:
            running = sum(one.status == "running" for one in state.round.executions.values())
            assert running <= cap

    @invariant()
    def the_end_names_its_reason(self) -> None:
        state = self.play.now
        if state.status in ENDED:
            assert state.reason

    def teardown(self) -> None:
        """Let it go well from here: it ends, and the journal tells the same story again."""
        if not hasattr(self, "play"):
            return
        self.world.head = self.play.now.head
        for _ in range(40):
            if self.play.now.status == "paused":
                self.feed(RunResumed())
            if self.play.now.status not in ACTIVE:
                if self.play.now.status in ("max_iterations", "target_reached"):
                    break
                self.feed_start()
            for _ in range(400):
                if self.working:
                    self.feed(self.world.reply(self.due()[0]))
        assert self.play.now.status in ("max_iterations", "target_reached"), self.play.now.reason
        assert self.play.now.outstanding == {}
        self.told_again()

    def told_again(self) -> None:
        state = None
        for event in self.play.journal:
            state, _ = step(state, parse_event(event.model_dump_json()))
        assert state == self.play.now
        assert STATES.validate_json(STATES.dump_json(self.play.now)) == self.play.now
        closed = [event for event in self.play.journal if isinstance(event, RoundClosed)]
        reports = [path for path in self.play.files if path.startswith("state/merge_reports/")]
        assert len(reports) == self.play.now.completed == len({event.cause for event in closed})


Runs.TestCase.settings = hypothesis_settings(max_examples=80, stateful_step_count=40, deadline=None)
TestRuns = Runs.TestCase
