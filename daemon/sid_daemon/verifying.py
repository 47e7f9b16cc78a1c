"""Reads what `core.verify` compares: the journal, the files in the root, and git. Changes nothing.

Called by the method `run.verify`. All of it is read in one worker thread that no commit of the run can overtake;
what the git-master does meanwhile is still in the book of outstanding commands, and so is expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sid_actors.git_facts import GitFacts, read_facts
from sid_actors.repository import discover
from sid_daemon.core import verify
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.runstore import ALWAYS_THERE, RunStore, documents_as, dump_state, fold
from sid_daemon.store.documents import LISTS, RAW_DATA, RESULTS, render_list
from sid_daemon.store.journal import Journal
from sid_protocol.errors import StoreError
from sid_protocol.events import RoundClosed, RunCreated, parse_event
from sid_protocol.records import BenchmarkResult, IterationHistory, MergeReport, RawEntry


async def disagreements(state: RunState, store: RunStore) -> list[str]:
    """Return what disagrees in a run's records, one line each.

    Raises:
        GitError: the repository cannot be read.
        StoreError: the database cannot be read.
    """
    info = await discover(state.repo)
    facts = await store.look_over(lambda journal: _facts(journal, store.root, info.common_dir))
    return verify.disagreements(facts)


def _facts(journal: Journal, root: Path, common_dir: str) -> verify.Facts:
    numbers: list[int] = []
    closed: dict[int, RoundClosed] = {}
    order: list[int] = []
    created: list[RunCreated] = []
    refolded: RunState | None = None
    for seq, body in journal.each_event():
        numbers.append(seq)
        event = parse_event(body)
        refolded, _ = step(refolded, event)
        if isinstance(event, RoundClosed):
            iteration = int(event.cause.split(".")[0].removeprefix("r"))
            closed[iteration] = event
            order.append(iteration)
        elif isinstance(event, RunCreated):
            created.append(event)
    state = fold(journal)
    if state is None or refolded is None:
        raise StoreError(f"{journal.path} holds no event", hint="set it up again: sictl init")
    start = next(event.baseline_commit for event in created if event.goal_slug == state.goal_slug)
    return verify.Facts(
        state=state,
        refolded=dump_state(state) == dump_state(refolded),
        damage=tuple(journal.damage()),
        gaps=verify.missing_numbers(numbers),
        closed=tuple(order),
        rounds=tuple(_round(journal, iteration, event) for iteration, event in sorted(closed.items())),
        views=dict(_views(journal, root)),
        raw=tuple(RawEntry.model_validate_json(text) for text in journal.entries(RAW_DATA)),
        rows=tuple(_rows(journal)),
        git=_branches(read_facts(common_dir, state.goal_slug, start)),
    )


def _round(journal: Journal, iteration: int, event: RoundClosed) -> verify.RoundFacts:
    history = journal.document(f"state/iteration_history/round_{iteration}.json")
    report = journal.document(f"state/merge_reports/round_{iteration}.json")
    results = journal.documents(f"state/benchmark_results/round_{iteration}/")
    return verify.RoundFacts(
        iteration=iteration,
        history=IterationHistory.model_validate_json(history) if history else None,
        report=MergeReport.model_validate_json(report) if report else None,
        results=tuple(documents_as(BenchmarkResult, results)),
        tags=event.tags,
    )


def _views(journal: Journal, root: Path) -> Iterator[tuple[str, bool | None]]:
    for path, text in journal.each_document():
        if path not in LISTS:
            yield path, _is_as(root / path, text)
    for file in LISTS:
        if (entries := journal.entries(file)) or file in ALWAYS_THERE:
            yield file, _is_as(root / file, render_list(file, entries))


def _is_as(path: Path, text: str) -> bool | None:
    try:
        return path.read_bytes() == text.encode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return False  # a folder stands there, or it may not be read


def _rows(journal: Journal) -> Iterator[tuple[int, str]]:
    for line in journal.entries(RESULTS):
        cells = line.split("\t")
        if len(cells) == 7 and cells[0] != "0":
            yield int(cells[0]), cells[5]


def _branches(found: GitFacts) -> verify.Branches:
    return verify.Branches(
        tip=found.side or found.branch,
        commits=tuple(verify.Merge(one.id, one.parents, one.message) for one in found.commits),
        reached_start=found.reached_start,
        tags=found.tags,
        experiments=found.experiments,
        worktrees=found.worktrees,
        locks=found.locks,
    )
