"""Whether records that agree are found to agree, and each kind of disagreement is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sid_daemon.core.verify import Branches, Facts, Merge, RoundFacts, disagreements, missing_numbers
from sid_daemon.layout import RAW_DATA, RESULTS
from sid_protocol.commands import AdvanceBranch
from sid_protocol.events import RoundClosed
from sid_protocol.records import BenchmarkResult, IterationHistory, MergeReport, RawEntry
from sid_protocol.settings import Settings
from tests.core.play import BASE, Play, played, sha


def finished() -> Play:
    settings = Settings(number_of_agents=2, max_iterations=3, benchmark_command="b", agent_backend="command")
    return played(
        settings, score=lambda arm, n: 10.0 + 10 * n - (arm == "executor_2") if arm != "A" else 10.0 * n
    )


def facts_of(play: Play) -> Facts:
    closed = [event for event in play.journal if isinstance(event, RoundClosed)]
    rounds, commits, parent = [], [], BASE
    tags: dict[str, str] = {}
    for n, event in enumerate(closed, 1):
        report = MergeReport.model_validate_json(play.files[f"state/merge_reports/round_{n}.json"])
        results = [
            BenchmarkResult.model_validate_json(text)
            for path, text in play.files.items()
            if path.startswith(f"state/benchmark_results/round_{n}/")
        ]
        history = IterationHistory.model_validate_json(play.files[f"state/iteration_history/round_{n}.json"])
        rounds.append(RoundFacts(n, history, report, tuple(results), event.tags))
        tags |= {tag: sha(f"r{n}{executor}") for executor, tag in event.tags.items()}
        assert report.winner is not None
        scores = f"(score: {report.winner.score_before!r} → {report.winner.score_after!r})"
        parents = (parent, sha(f"r{n}{report.winner.executor_id}"))
        commits.append(Merge(sha(f"m{n}"), parents, f"Iteration {n}: Cache {scores}"))
        parent = sha(f"m{n}")
    rows = [line.split("\t") for line in play.entries[RESULTS] if "\t" in line]
    return Facts(
        state=play.now,
        refolded=True,
        damage=(),
        gaps=(),
        closed=tuple(range(1, len(closed) + 1)),
        rounds=tuple(rounds),
        extra=(),
        views=dict.fromkeys(play.files, True),
        raw=tuple(RawEntry.model_validate_json(text) for text in play.entries[RAW_DATA]),
        rows=tuple((int(row[0]), row[5]) for row in rows if row[0] != "0"),
        git=Branches(parent, tuple(reversed(commits)), True, tags, {}, (), ()),
    )


def rounds_of(facts: Facts) -> tuple[RoundFacts, ...]:
    return tuple(facts.rounds)


def raw_of(facts: Facts) -> tuple[RawEntry, ...]:
    return tuple(facts.raw)


@pytest.fixture(scope="module")
def facts() -> Facts:
    return facts_of(finished())


def git(facts: Facts, **changes: object) -> Facts:
    return replace(facts, git=replace(facts.git, **changes))  # type: ignore[arg-type]  # a test names the fields it changes


def first(facts: Facts, **changes: object) -> Facts:
    return replace(facts, rounds=(replace(rounds_of(facts)[0], **changes), *rounds_of(facts)[1:]))  # type: ignore[arg-type]  # a test names the fields it changes


def merge(facts: Facts, **changes: object) -> Facts:
    return git(facts, commits=(*facts.git.commits[:-1], replace(facts.git.commits[-1], **changes)))  # type: ignore[arg-type]  # a test names the fields it changes


def report(facts: Facts, **changes: object) -> Facts:
    told = rounds_of(facts)[0].report
    assert told
    return first(facts, report=told.model_copy(update=changes))


def test_a_finished_run_agrees(facts: Facts) -> None:
    assert len(rounds_of(facts)) == 3
    assert disagreements(facts) == []


def test_files_of_rounds_before_a_track_was_taken_over_are_anothers(facts: Facts) -> None:
    later = replace(facts, closed=(2, 3), extra=("plans/round_1/plan_planner_a.json", "plans/.notes.swp"))
    assert not [line for line in disagreements(later) if "plans/" in line]


LOST = "archive/round_1_executor_2"
STRAY = Merge("e" * 40, ("d" * 40,), "Iteration 9: forged (score: 1 → 2)")
HARM: dict[str, Callable[[Facts], Facts]] = {
    "run.db: page 3 is never used": lambda f: replace(f, damage=("page 3 is never used",)),
    "run.db: event 7 is missing": lambda f: replace(f, gaps=(7,)),
    "run.db: folding all events": lambda f: replace(f, refolded=False),
    "tracking/baseline.json: the file is missing": lambda f: replace(
        f, views={"tracking/baseline.json": None}
    ),
    "tracking/baseline.json: the file differs": lambda f: replace(f, views={"tracking/baseline.json": False}),
    "plans/notes.md: the run did not write": lambda f: replace(f, extra=("plans/notes.md",)),
    "state/iteration_history/round_4.json: the run did not": lambda f: replace(
        f, extra=("state/iteration_history/round_4.json",)
    ),
    "round 2: recorded twice": lambda f: replace(f, closed=(1, 2, 2, 3)),
    "round 2: never recorded": lambda f: replace(f, closed=(1, 3)),
    "round 4: recorded, but only 3": lambda f: replace(f, closed=(1, 2, 3, 4)),
    "round 1: its history is missing": lambda f: first(f, history=None),
    "round 1: its merge report is missing": lambda f: first(f, report=None),
    "round 1: history and merge report do not": lambda f: report(f, winner=None, status="no_winner"),
    "round 1: the merge report's status is": lambda f: report(f, status="no_winner"),
    "round 1: history and benchmark results": lambda f: first(f, results=rounds_of(f)[0].results[:1]),
    "round 1: executor_1 won, but its result": lambda f: first(f, results=rounds_of(f)[0].results[1:]),
    "round 1: the merge report's tags": lambda f: report(f, archived=[]),
    "round 3: raw_data.json does not hold": lambda f: replace(f, raw=raw_of(f)[:-1]),
    "round 1: raw_data.json names another": lambda f: replace(
        f, raw=(raw_of(f)[0].model_copy(update={"is_winner": False}), *raw_of(f)[1:])
    ),
    "round 3: results.tsv has 1 rows for 2": lambda f: replace(f, rows=f.rows[:-1]),
    "round 1: results.tsv keeps another": lambda f: replace(f, rows=((1, "discard"), *f.rows[1:])),
    "improve/faster_sieve: the branch is missing": lambda f: git(f, tip=None),
    "improve/faster_sieve: is at aaaaaaaaaaaa": lambda f: git(f, tip="a" * 40),
    "improve/faster_sieve: does not lead back": lambda f: git(f, reached_start=False),
    "improve/faster_sieve: holds the merges in another": lambda f: git(f, commits=f.git.commits[::-1]),
    "improve/faster_sieve: eeeeeeeeeeee looks like": lambda f: git(f, commits=(STRAY, *f.git.commits)),
    f"round 1: its merge {sha('m1')[:12]} is not on": lambda f: git(f, commits=f.git.commits[:-1]),
    "round 1: the merge's second parent": lambda f: merge(f, parents=(BASE, BASE)),
    "round 1: the merge's message is": lambda f: merge(f, message="Iteration 2: x (score: 1.0 → 2.0)"),
    f"round 1: the tag {LOST} is missing": lambda f: git(f, tags={}),
    f"round 1: the tag {LOST} is not at": lambda f: git(f, tags={**f.git.tags, LOST: BASE}),
    "round 1: executor_2 lost, but": lambda f: first(f, tags={}),
    "the branch experiment/round_1_executor_2 was left": lambda f: git(
        f, experiments={"experiment/round_1_executor_2": BASE}
    ),
    "the worktree /home/ada/primes/worktrees/round_1_executor_2 was left": lambda f: git(
        f, worktrees=("/home/ada/primes/worktrees/round_1_executor_2",)
    ),
    "/x.lock was left behind": lambda f: git(f, locks=("/x.lock",)),
}


@pytest.mark.parametrize("told", HARM)
def test_each_disagreement_is_named(facts: Facts, told: str) -> None:
    lines = disagreements(HARM[told](facts))
    assert any(line.startswith(told) for line in lines), lines


def test_history_and_report_tell_one_score(facts: Facts) -> None:
    told = rounds_of(facts)[0].report
    assert told
    assert told.winner
    other = told.winner.model_copy(update={"score_after": 99.0})
    assert "round 1: history says 20.0, the merge report 99.0" in disagreements(report(facts, winner=other))


def test_others_branches_and_worktrees_are_none_of_its_business(facts: Facts) -> None:
    told = git(
        facts,
        experiments={"experiment/mine": BASE, "experiment/other/round_1_executor_1": BASE},
        worktrees=("/elsewhere/round_1_executor_1", "/home/ada/primes/worktrees/mine"),
    )
    assert disagreements(told) == []


def test_a_merge_of_which_the_end_is_not_recorded_yet_is_expected(facts: Facts) -> None:
    command = AdvanceBranch(
        id="r4.advance", iteration=4, executor="executor_1", commit="c" * 40, onto=facts.state.head, tree="",
        message="Iteration 4: x (score: 1.0 → 2.0)", at="",
    )  # fmt: skip
    state = replace(facts.state, outstanding={command.id: command})
    done = Merge("f" * 40, (command.onto, command.commit), command.message)
    ahead = git(replace(facts, state=state), tip=done.id, commits=(done, *facts.git.commits))

    assert disagreements(ahead) == []
    assert disagreements(replace(ahead, state=facts.state))


def test_missing_numbers_are_found() -> None:
    assert missing_numbers([1, 2, 4, 5, 7]) == (3, 6)
    assert missing_numbers([]) == ()
