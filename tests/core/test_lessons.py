"""What is learned: promotion by runs and rounds, idempotence, ends on evidence, caps, coins, and a run that learns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sid_daemon.core.longterm import learning, lessons
from sid_daemon.core.longterm.lessons import IN_FORCE_LIMIT, Book, Key, Sighting, parse_key
from sid_daemon.runs.snapshots import dump_state, load_state
from sid_protocol.commands import AnyCommand, RunPlan
from sid_protocol.events import (
    AnyEvent,
    CandidateRefused,
    LessonForgotten,
    PlanDrafted,
    RunCreated,
    RunLessons,
    parse_event,
)
from sid_protocol.settings import Settings
from tests.core.play import Play, World, family_of, plan, played

LOOP = "timeout/tool_loop/executor"
AT_WORK = frozenset({"researcher", "planner", "executor"})


def seen(book: Book, iteration: int, *keys: str, held: tuple[str, ...] = (), at_work: Any = AT_WORK) -> Book:
    """Return the book after a round with these faults."""
    faults = [Sighting(key, lessons.subject_of(key), f"it did {key}") for key in keys]
    return lessons.observe(book, iteration, faults, at_work, held)


def settled(book: Book, iteration: int, *others: RunLessons, window: int = 5, threshold: int = 2) -> Book:
    return lessons.settle(book, iteration, others, window=window, threshold=threshold)


def in_force(rounds: int = 3, key: str = LOOP) -> Book:
    """Return a book with one lesson."""
    book = Book()
    for iteration in range(1, rounds + 1):
        book = settled(seen(book, iteration, key), iteration)
    return book


def test_three_rounds_make_a_lesson_and_two_do_not() -> None:
    assert in_force(rounds=2).in_force == ()
    book = in_force(rounds=3)
    assert book.in_force == (LOOP,)
    assert book.lessons[LOOP].since == 4
    assert book.traces[LOOP].rounds == (1, 2, 3)


def test_the_same_fault_twice_in_a_round_is_one_round() -> None:
    book = settled(seen(Book(), 1, LOOP, LOOP, LOOP), 1)
    assert book.in_force == ()
    assert book.traces[LOOP].count == 1


def test_two_runs_of_the_window_make_a_lesson() -> None:
    other = RunLessons(run_id="a", seen=(LOOP,))
    book = settled(seen(Book(), 1, LOOP), 1, other)
    assert book.in_force == (LOOP,)
    assert book.lessons[LOOP].runs == ("a",)


def test_two_other_runs_make_a_lesson_before_the_fault_is_seen_here() -> None:
    others = [RunLessons(run_id=name, seen=(LOOP,)) for name in "ab"]
    assert settled(Book(), 0, *others).lessons[LOOP].since == 1
    assert settled(Book(), 0, *others, threshold=3).in_force == ()


def test_runs_beyond_the_window_do_not_count() -> None:
    clean = [RunLessons(run_id=f"clean-{number}") for number in range(4)]
    old = RunLessons(run_id="old", seen=(LOOP,))
    assert settled(seen(Book(), 1, LOOP), 1, *clean, old).in_force == ()
    assert settled(seen(Book(), 1, LOOP), 1, *clean, old, window=6).in_force == (LOOP,)


def test_a_lesson_that_stands_elsewhere_is_not_forgotten_with_the_window() -> None:
    clean = [RunLessons(run_id=f"clean-{number}") for number in range(9)]
    old = RunLessons(run_id="old", standing=(LOOP,))
    told = lessons.worth_telling([*clean, old], 5, alien=frozenset())
    assert [run.run_id for run in told] == ["clean-0", "clean-1", "clean-2", "clean-3", "old"]
    assert settled(Book(), 0, *told).in_force == (LOOP,)


def test_only_runs_that_saw_a_fault_are_its_evidence_however_long_ago() -> None:
    heirs = [RunLessons(run_id=f"heir-{number}", standing=(LOOP,)) for number in range(6)]
    old = RunLessons(run_id="old", seen=(LOOP, "oom/-/-"), standing=(LOOP,))
    told = lessons.worth_telling([*heirs, old], 5, alien=frozenset())
    assert settled(Book(), 0, *told).lessons[LOOP].runs == ("old",)
    told = lessons.worth_telling(heirs[:2], 5, alien=frozenset())
    assert settled(Book(), 0, *told).lessons[LOOP].runs == ("heir-0", "heir-1"), (
        "the lesson outlives its witness"
    )


def test_what_tells_of_one_program_does_not_cross_repositories() -> None:
    run = RunLessons(run_id="a", seen=(LOOP, "regression/-/data"), standing=("oom/-/-",))
    (told,) = lessons.worth_telling([run], 5, alien=frozenset({"a"}))
    assert (told.seen, told.standing) == ((LOOP,), ())
    assert lessons.worth_telling([run], 5, alien=frozenset()) == (run,)


def test_promotion_is_idempotent() -> None:
    book = in_force()
    assert settled(book, 3) == book
    more = settled(seen(book, 4, LOOP), 4)
    assert more.lessons[LOOP].promotions == 1
    assert more.lessons[LOOP].since == 4
    assert (more.lessons[LOOP].told, more.lessons[LOOP].told_again) == (1, 1)


def probe(book: Book, rounds: int, first: int, *, again: bool, held: bool) -> Book:
    """Return the book after more rounds, with or without the lesson."""
    for iteration in range(first, first + rounds):
        faults = (LOOP,) if again else ()
        book = settled(seen(book, iteration, *faults, held=(LOOP,) if held else ()), iteration)
    return book


def test_a_lesson_without_which_nothing_happens_is_retired() -> None:
    book = probe(in_force(), 4, 4, again=False, held=True)
    assert book.in_force == (LOOP,)
    book = probe(book, 1, 8, again=False, held=True)
    assert book.lessons[LOOP].status == "retired"
    assert "none of 5 rounds without it" in book.lessons[LOOP].why


def test_a_lesson_that_does_not_help_is_retired() -> None:
    book = probe(in_force(), 5, 4, again=True, held=False)
    book = probe(book, 4, 9, again=True, held=True)
    assert book.in_force == (LOOP,)
    book = probe(book, 1, 13, again=True, held=True)
    assert book.lessons[LOOP].status == "retired"
    assert "5 of 5 rounds with it, in 5 of 5 without" in book.lessons[LOOP].why


def test_a_lesson_that_helps_stays() -> None:
    book = probe(in_force(), 20, 4, again=False, held=False)
    book = probe(book, 20, 24, again=True, held=True)
    assert book.in_force == (LOOP,)


def test_a_round_without_an_occasion_says_nothing_of_a_lesson() -> None:
    book = in_force()
    for iteration in range(4, 20):
        book = settled(seen(book, iteration, held=(LOOP,), at_work=frozenset({"researcher"})), iteration)
    assert book.lessons[LOOP].held == 0


def test_what_was_retired_comes_back_by_new_sightings_only_and_is_then_harder_to_end() -> None:
    others = [RunLessons(run_id=name, seen=(LOOP,), standing=(LOOP,)) for name in "ab"]
    book = probe(in_force(), 5, 4, again=False, held=True)
    assert settled(book, 9, *others).in_force == ()
    book = settled(seen(book, 10, LOOP), 10, *others)
    assert book.in_force == (LOOP,)
    assert book.lessons[LOOP].promotions == 2
    book = probe(book, 9, 11, again=False, held=True)
    assert book.in_force == (LOOP,)
    assert probe(book, 1, 20, again=False, held=True).in_force == ()


def test_at_the_cap_the_least_useful_leaves_and_is_on_record() -> None:
    book = Book()
    keys = [f"timeout/unknown/role{number}" for number in range(IN_FORCE_LIMIT)]
    for iteration in range(1, 5):
        book = settled(seen(book, iteration, *keys), iteration)
    late = "timeout/tool_loop/late"
    for iteration in range(5, 8):
        book = settled(seen(book, iteration, late), iteration)
    assert len(book.in_force) == IN_FORCE_LIMIT
    assert book.lessons[late].status == "dropped"  # seen three times, all others four
    assert "least useful" in book.lessons[late].why


def test_a_coin_of_its_own_holds_each_lesson_out() -> None:
    book = settled(seen(in_force(), 4, "oom/-/-"), 4)
    for iteration in (5, 6):
        book = settled(seen(book, iteration, "oom/-/-"), iteration)
    assert set(book.in_force) == {LOOP, "oom/-/-"}
    assert lessons.held_out(book, 0.0, 7, 1) == ()
    assert set(lessons.held_out(book, 1.0, 7, 1)) == set(book.in_force)
    out = [lessons.held_out(book, 0.1, 7, iteration) for iteration in range(2000)]
    assert out == [lessons.held_out(book, 0.1, 7, iteration) for iteration in range(2000)]
    for key in book.in_force:
        assert 140 < sum(key in one for one in out) < 260


def test_a_key_reads_back() -> None:
    for key in (Key("timeout", "tool_loop", "executor"), Key("oom"), Key("regression", "", "a/b")):
        assert parse_key(str(key)) == key


# A run that learns


def one_agent(**more: Any) -> Settings:
    values = {
        "number_of_agents": 1,
        "max_iterations": 12,
        "circuit_breaker_threshold": 50,
        "lesson_probe": 0.0,
    }
    return Settings(**{**values, "benchmark_command": "x", "plateau_window": 99, **more})


def always_refused(command: AnyCommand) -> AnyEvent | None:
    if isinstance(command, RunPlan):
        return CandidateRefused(
            category="sealed_file_violation", what="sealed files were changed", paths=("conftest.py",)
        )
    return None


def told_in(play: Play) -> dict[int, tuple[str, ...]]:
    """Return the lessons that stood in each round's prompts."""
    found = {}
    for _, _, state in play.steps:
        if state.round is not None and state.round.prepared:
            found[state.round.iteration] = state.round.lessons_told
    return found


SEALED = "sealed_file_violation/-/-"


def test_a_run_is_told_from_the_fourth_round_on_and_writes_it_down() -> None:
    play = played(one_agent(max_iterations=5), answer=always_refused)
    assert told_in(play) == {1: (), 2: (), 3: (), 4: (SEALED,), 5: (SEALED,)}
    page = play.files["state/lessons.md"]
    assert f"`{SEALED}`" in page
    assert "Never touch a sealed file" in page
    assert "conftest.py" in page
    assert learning.told_to(SEALED, "executor")
    assert learning.told_to(SEALED, "planner")
    assert not learning.told_to(SEALED, "critic")


def test_a_lesson_bars_the_refused_path_from_plans() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        if command.kind == "draft_plan":
            draft = plan(family_of(command.iteration, "planner_a"))
            return PlanDrafted(plan=draft.model_copy(update={"target_files": ["conftest.py"]}))
        return always_refused(command)

    play = played(one_agent(max_iterations=4), answer=answer)
    reports = [play.files[f"state/merge_reports/round_{number}.json"] for number in (3, 4)]
    assert "all_rejected" not in reports[0]
    assert "all_rejected" in reports[1]
    assert f"was refused before (lesson {SEALED})" in reports[1]


def test_a_journal_of_a_version_without_lessons_bars_and_tells_nothing() -> None:
    play = played(one_agent(max_iterations=6), answer=always_refused, others=None)
    assert set(told_in(play).values()) == {()}


@pytest.mark.parametrize(
    ("more", "told"),
    [({}, (SEALED,)), ({"lesson_threshold": 3}, ()), ({"lesson_threshold": 1, "lessons_window": 1}, ())],
)
def test_other_runs_sightings_count_from_the_first_round_on_as_far_as_the_settings_say(
    more: dict[str, Any], told: tuple[str, ...]
) -> None:
    others = tuple(RunLessons(run_id=name, seen=(SEALED,)) for name in "ab")
    play = played(one_agent(max_iterations=1, **more), answer=always_refused, others=others)
    assert told_in(play) == {1: told}


def test_a_lesson_is_held_out_by_coin_and_retired_in_the_end() -> None:
    def answer(command: AnyCommand) -> AnyEvent | None:
        return always_refused(command) if command.iteration <= 3 else None

    play = played(one_agent(lesson_probe=1.0), answer=answer)
    lesson = play.now.lessons.lessons[SEALED]
    assert (lesson.status, lesson.held, lesson.held_again, lesson.ended) == ("retired", 5, 0, 8)
    assert "No longer in force" in play.files["state/lessons.md"]


def test_the_user_can_end_a_lesson_by_hand() -> None:
    play = Play(World(one_agent(max_iterations=9), answer=always_refused))
    play.start()
    play.run(until=lambda play: play.now.iteration == 4 and bool(play.now.round and play.now.round.prepared))
    play.feed(LessonForgotten(lesson=SEALED))
    assert play.now.round is not None
    assert play.now.round.lessons_told == ()
    play.run(until=lambda play: play.now.iteration == 6)
    assert play.now.lessons.in_force == ()
    play.run()
    assert told_in(play)[9] == (SEALED,)  # seen in three more rounds: 4, 5, 6


def test_the_journal_gives_the_same_lessons_again() -> None:
    play = played(one_agent(lesson_probe=0.5, max_iterations=40), answer=always_refused)
    created = play.journal[0]
    assert isinstance(created, RunCreated)
    again = Play(World(one_agent()), created)
    for event in play.journal[1:]:
        again.clock = type(again.clock).fromisoformat(event.at)
        again.feed(parse_event(event.model_dump_json()))
    assert again.now.lessons == play.now.lessons
    assert load_state(dump_state(play.now)) == play.now  # what a resume begins with
    assert play.now.lessons.lessons[SEALED].held > 0


def test_a_spent_budget_and_a_blocked_rounds_leftovers_teach_nothing() -> None:
    play = played(one_agent(max_iterations=3), answer=always_refused)
    closed = [before for before, event, _ in play.steps if event.kind == "round_closed" and before]
    (one,) = closed[0].now_round.executions.values()
    assert one.failure is not None
    blameless = one.failure.model_copy(update={"category": "infrastructure"})
    now = closed[0].now_round
    execution = type(one)(executor=one.executor, plan=one.plan, base=one.base, failure=blameless)
    changed = type(now)(
        iteration=1, started_at="", head="", baseline_score=None, executions={one.executor: execution}
    )
    assert list(learning.sightings(changed)) == []


class Learning(RuleBasedStateMachine):
    """Any course of rounds, with other runs coming and going."""

    keys = (
        LOOP,
        "oom/-/-",
        "plan_rejected/-/H001",
        "regression/-/data",
        *(f"timeout/unknown/r{n}" for n in range(14)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.book = Book()
        self.iteration = 0
        self.others: tuple[RunLessons, ...] = ()

    @rule(
        faults=st.sets(st.sampled_from(keys), max_size=16),
        probe=st.sampled_from((0.0, 0.3, 1.0)),
        window=st.integers(1, 6),
        threshold=st.integers(1, 4),
    )
    def round(self, faults: set[str], probe: float, window: int, threshold: int) -> None:
        self.iteration += 1
        before = self.book
        held = lessons.held_out(before, probe, 11, self.iteration)
        at_work = AT_WORK | {lessons.subject_of(key) for key in self.keys}
        book = seen(before, self.iteration, *sorted(faults), held=held, at_work=at_work)
        self.book = settled(book, self.iteration, *self.others, window=window, threshold=threshold)
        again = settled(self.book, self.iteration, *self.others, window=window, threshold=threshold)
        assert again == self.book
        for key in before.in_force:
            lesson = self.book.lessons[key]
            assert lesson.told + lesson.held == before.lessons[key].told + before.lessons[key].held + 1
            if lesson.status == "retired":
                assert lesson.held >= lessons.probes_needed(lesson)

    @rule(
        runs=st.lists(st.tuples(st.sets(st.sampled_from(keys)), st.sets(st.sampled_from(keys))), max_size=4)
    )
    def other_runs(self, runs: list[tuple[set[str], set[str]]]) -> None:
        self.others = tuple(
            RunLessons(run_id=str(number), seen=tuple(sorted(one)), standing=tuple(sorted(two)))
            for number, (one, two) in enumerate(runs)
        )

    @precondition(lambda self: self.book.in_force)
    @rule(number=st.integers(0, 99))
    def forget(self, number: int) -> None:
        key = self.book.in_force[number % len(self.book.in_force)]
        self.book = lessons.forget(self.book, key, self.iteration)
        assert self.book.lessons[key].status == "forgotten"
        assert lessons.forget(self.book, key, self.iteration) == self.book

    @invariant()
    def is_sound(self) -> None:
        assert len(self.book.in_force) <= IN_FORCE_LIMIT
        for key, lesson in self.book.lessons.items():
            assert lesson.key == key
            assert lesson.told_again <= lesson.told
            assert lesson.held_again <= lesson.held
            assert bool(lesson.why) == (lesson.status != "in_force")
        for trace in self.book.traces.values():
            assert len(trace.rounds) <= lessons.ROUNDS_KEPT
            assert len(trace.snippets) <= lessons.SNIPPETS_KEPT
            assert all(len(one) <= lessons.SNIPPET_LIMIT + 20 for one in trace.snippets)


TestLearning = Learning.TestCase
TestLearning.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)
