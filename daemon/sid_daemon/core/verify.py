"""Whether everything that tells of a run tells the same: journal, views, improvement branch, tags.

A pure comparison of facts that `verifying` has read; it repairs nothing and asks nobody. Each line it returns names one thing that
disagrees and what was expected instead. The rules are those of the contracts: a merge is a commit with the
incumbent and the candidate as parents, a loser is a tag, a view is what the journal's database holds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sid_daemon.core.state import ACTIVE, RunState
from sid_protocol import ids
from sid_protocol.commands import AdvanceBranch
from sid_protocol.records import BenchmarkResult, IterationHistory, MergeReport, RawEntry

_ROUND = re.compile(r"/round_([0-9]+)(?:/|\.json$)")
_EXPERIMENT = re.compile(r"round_([0-9]+)_executor_[0-9]+$")


@dataclass(frozen=True, slots=True)
class Merge:
    """One commit of the improvement branch: id, parents, message."""

    id: str
    parents: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Branches:
    """What git says.

    Attributes:
        tip: Where the improvement is (the branch, or the ref that stands in for it), or None.
        commits: Its first-parent commits, newest first, down to where the run began.
        reached_start: Whether they lead to where the run began.
        tags: Archive tags.
        experiments: Experiment branches.
        worktrees: Folders of extra worktrees.
        locks: Lock files that were left.
    """

    tip: str | None
    commits: tuple[Merge, ...]
    reached_start: bool
    tags: Mapping[str, str]
    experiments: Mapping[str, str]
    worktrees: tuple[str, ...]
    locks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """One recorded round as the database holds it.

    Attributes:
        iteration: Its number.
        history: Contract 4, or None where it is missing.
        report: Contract 9, or None where it is missing.
        results: Contract 2 of each candidate.
        tags: Executor → tag, from the journal.
    """

    iteration: int
    history: IterationHistory | None
    report: MergeReport | None
    results: tuple[BenchmarkResult, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is compared.

    Attributes:
        state: As loaded: the newest snapshot and what came after it.
        refolded: Whether folding the whole journal gives the same state.
        damage: What the database says is wrong with itself.
        gaps: Numbers of events that are missing.
        closed: The rounds that the journal closed, in order.
        rounds: What the database holds of each; gone through once, for they may be many.
        views: Path → whether the file in the root is as in the database; None: it is missing. Those that are may be left out.
        extra: Files beside those of the rounds that the database does not hold.
        raw: The entries of `raw_data.json`; gone through once, too.
        rows: `(iteration, status)` of each row of `results.tsv`, the baseline's left out.
        git: What git says.
    """

    state: RunState
    refolded: bool
    damage: tuple[str, ...]
    gaps: tuple[int, ...]
    closed: tuple[int, ...]
    rounds: Iterable[RoundFacts]
    views: Mapping[str, bool | None]
    extra: tuple[str, ...]
    raw: Iterable[RawEntry]
    rows: tuple[tuple[int, str], ...]
    git: Branches


def disagreements(facts: Facts) -> list[str]:
    """Return what disagrees, one line each; nothing when all agree."""
    tables, branch = _Tables(facts), _Branch(facts)
    return [
        *_database(facts),
        *_views(facts.views),
        *_extra(facts),
        *_rounds(facts),
        *(
            line
            for one in facts.rounds
            for line in (*_round(one), *tables.of(one), *_tags(one, facts.git.tags), *branch.of(one))
        ),
        *branch.rest(),
        *_leftovers(facts),
    ]


def _database(facts: Facts) -> Iterator[str]:
    yield from (f"run.db: {line}" for line in facts.damage)
    yield from (f"run.db: event {seq} is missing" for seq in facts.gaps)
    if not facts.refolded:
        yield "run.db: folding all events gives another state than the newest snapshot"


def _views(views: Mapping[str, bool | None]) -> Iterator[str]:
    for path, same in sorted(views.items()):
        if same is None:
            yield f"{path}: the file is missing; 'sictl export' writes it again"
        elif not same:
            yield f"{path}: the file differs from the database; 'sictl export' writes it again"


def _extra(facts: Facts) -> Iterator[str]:
    # Those of a track that was taken over have rounds before the first of ours.
    first = min(facts.closed, default=facts.state.completed + 1)
    for path in facts.extra:
        found = _ROUND.search(path)
        if not path.rpartition("/")[2].startswith(".") and (found is None or int(found[1]) >= first):
            yield f"{path}: the run did not write this file; move it away"


def _rounds(facts: Facts) -> Iterator[str]:
    seen: set[int] = set()
    for iteration in facts.closed:
        if iteration in seen:
            yield f"round {iteration}: recorded twice"
        seen.add(iteration)
    first = min(seen, default=facts.state.completed + 1)
    for iteration in range(first, facts.state.completed + 1):
        if iteration not in seen:
            yield f"round {iteration}: never recorded"
    for iteration in sorted(seen):
        if iteration > facts.state.completed:
            yield f"round {iteration}: recorded, but only {facts.state.completed} rounds are counted"


def _round(one: RoundFacts) -> Iterator[str]:
    where = f"round {one.iteration}"
    if one.history is None:
        yield f"{where}: its history is missing"
    if one.report is None:
        yield f"{where}: its merge report is missing"
    if one.history is None or one.report is None:
        return
    told, merged = one.history.winner, one.report.winner
    if (told is None) != (merged is None):
        yield f"{where}: history and merge report do not name the same winner"
    if (merged is not None) != (one.report.status == "merged"):
        yield f"{where}: the merge report's status is {one.report.status}, its winner says otherwise"
    if told is not None and merged is not None:
        result = next((r for r in one.results if r.executor_id == merged.executor_id), None)
        if result is None or result.plan_id != told.plan_id:
            yield f"{where}: {merged.executor_id} won, but its result is missing or of another plan"
        if told.score != merged.score_after:
            yield f"{where}: history says {told.score!r}, the merge report {merged.score_after!r}"
    candidates = {told.plan_id} if told else set()
    candidates |= {loser.plan_id for loser in one.history.losers}
    if candidates != {result.plan_id for result in one.results}:
        yield f"{where}: history and benchmark results do not name the same candidates"
    if sorted(one.report.archived) != sorted(one.tags.values()):
        yield f"{where}: the merge report's tags are not those of the journal"


class _Tables:
    """What the tables hold of each round."""

    def __init__(self, facts: Facts) -> None:
        self._raw: dict[int, list[tuple[str, bool]]] = defaultdict(list)
        for entry in facts.raw:
            self._raw[entry.iteration].append((entry.plan_id, entry.is_winner))
        self._rows: dict[int, list[str]] = defaultdict(list)
        for iteration, status in facts.rows:
            self._rows[iteration].append(status)

    def of(self, one: RoundFacts) -> Iterator[str]:
        """Yield where they disagree with a round's history."""
        if one.history is None:
            return
        winner = one.history.winner.plan_id if one.history.winner else None
        expected = sorted([loser.plan_id for loser in one.history.losers] + ([winner] if winner else []))
        raw, rows = self._raw.get(one.iteration, []), self._rows.get(one.iteration, [])
        if sorted(plan for plan, _ in raw) != expected:
            yield f"round {one.iteration}: raw_data.json does not hold each candidate once"
        if [plan for plan, is_winner in raw if is_winner] != ([winner] if winner else []):
            yield f"round {one.iteration}: raw_data.json names another winner"
        if len(rows) != len(expected):
            yield f"round {one.iteration}: results.tsv has {len(rows)} rows for {len(expected)} candidates"
        if sum(status.startswith("keep") for status in rows) != (winner is not None):
            yield f"round {one.iteration}: results.tsv keeps another number of candidates"


def _commit_of(report: MergeReport) -> str:
    return str((report.winner.model_extra or {}).get("commit") or "") if report.winner else ""


class _Branch:
    """The improvement branch beside the rounds that say they went there."""

    def __init__(self, facts: Facts) -> None:
        self._state, self._git = facts.state, facts.git
        self._name = ids.improve_branch(facts.state.goal_slug)
        self._places = {commit.id: place for place, commit in enumerate(reversed(facts.git.commits))}
        self._merged: list[str] = []

    def of(self, one: RoundFacts) -> Iterator[str]:
        """Yield where a round's merge is not on it as the round says."""
        report = one.report
        # Rounds of an earlier goal went to a branch of their own.
        if report is None or report.winner is None or report.goal_slug != self._state.goal_slug:
            return
        commit = _commit_of(report)
        self._merged.append(commit)
        place = self._places.get(commit)
        if self._git.tip is None:
            return
        if place is None:
            yield f"round {one.iteration}: its merge {commit[:12]} is not on {self._name}"
        else:
            yield from _merge(one, self._git.commits[len(self._places) - 1 - place])

    def rest(self) -> Iterator[str]:
        """Yield what is wrong with it as a whole, once every round was looked at."""
        state, git = self._state, self._git
        if git.tip is None:
            yield f"{self._name}: the branch is missing; the run left it at {state.head[:12]}"
            return
        if git.tip != state.head and not _may_be_ahead(state, git):
            yield f"{self._name}: is at {git.tip[:12]}, the run left it at {state.head[:12]}"
        if not git.reached_start:
            yield f"{self._name}: does not lead back to where the run began"
        places = [self._places[commit] for commit in self._merged if commit in self._places]
        if places != sorted(places):
            yield f"{self._name}: holds the merges in another order than the rounds"
        known = {*self._merged} | _under_way(state, git)
        for found in git.commits:
            if found.message.startswith("Iteration ") and found.id not in known:
                yield f"{self._name}: {found.id[:12]} looks like a merge of the run, but no merge report names it"


def _may_be_ahead(state: RunState, git: Branches) -> bool:
    """Say whether the branch holds a confirmed merge whose end was not recorded yet: it is done again, harmlessly."""
    return git.tip in _under_way(state, git)


def _under_way(state: RunState, git: Branches) -> set[str]:
    known = {state.round.winner_commit} if state.round and state.round.winner_commit else set()
    for command in state.outstanding.values():
        if isinstance(command, AdvanceBranch):
            parents = (command.onto, command.commit)
            known |= {commit.id for commit in git.commits if commit.parents == parents}
    return known


def _merge(one: RoundFacts, commit: Merge) -> Iterator[str]:
    report = one.report
    if report is None or report.winner is None:
        return
    winner = report.winner
    result = next((result for result in one.results if result.executor_id == winner.executor_id), None)
    candidate = result.commit if result else None
    if len(commit.parents) != 2 or commit.parents[1] != candidate:
        yield f"round {one.iteration}: the merge's second parent is not the candidate {str(candidate)[:12]}"
    scores = f"(score: {winner.score_before!r} → {winner.score_after!r})"
    subject = commit.message.split("\n", 1)[0]
    if not subject.startswith(f"Iteration {one.iteration}: ") or not subject.endswith(scores):
        yield f"round {one.iteration}: the merge's message is {subject!r}, not of this round with {scores}"


def _tags(one: RoundFacts, tags: Mapping[str, str]) -> Iterator[str]:
    commits = {result.executor_id: result.commit for result in one.results}
    for executor, tag in one.tags.items():
        at = tags.get(tag)
        if at is None:
            yield f"round {one.iteration}: the tag {tag} is missing"
        elif commits.get(executor) not in (None, at):
            yield f"round {one.iteration}: the tag {tag} is not at its candidate {str(commits[executor])[:12]}"
    winner = one.report.winner.executor_id if one.report and one.report.winner else None
    for executor, commit in commits.items():
        if commit is not None and executor != winner and executor not in one.tags:
            yield f"round {one.iteration}: {executor} lost, but its commit is kept under no tag"


def _leftovers(facts: Facts) -> Iterator[str]:
    state = facts.state
    under_way = state.round.iteration if state.round else None
    prefix = ids.experiment_branch(state.topic, 0, "").removesuffix("round_0_")
    for branch in facts.git.experiments:
        found = _EXPERIMENT.fullmatch(branch.removeprefix(prefix))
        if branch.startswith(prefix) and found and int(found[1]) != under_way:
            yield f"the branch {branch} was left behind"
    if state.status in ACTIVE:
        return
    yield from (f"{lock} was left behind" for lock in facts.git.locks)
    ours = f"{state.repo}/worktrees/{ids.worktree_name(state.topic, 0, '').removesuffix('round_0_')}"
    for path in facts.git.worktrees:
        if path.startswith(ours) and _EXPERIMENT.fullmatch(path.removeprefix(ours)):
            yield f"the worktree {path} was left behind"


def missing_numbers(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return the first numbers that are missing from 1 to the last, of numbers in order; at most ten."""
    missing: list[int] = []
    due = 1
    for number in numbers:
        missing += range(due, min(number, due + 10))
        due = number + 1
    return tuple(missing[:10])
