"""Reads what `core.verify` compares: the journal, the files in the root, and git. Changes nothing.

Called by the method `run.verify`, in a worker thread. What must be of one moment is read while no commit of the run can come
between, and takes a moment: git, the state, the lists; what the git-master does meanwhile is still in the book of outstanding
commands, and so is expected. The rest, which takes long after thousands of rounds, is read beside the run from the database as it
was then, a round at a time; a file that differs from it is looked at again, for it may have been written since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import trio

from sid_actors.git.facts import GitFacts, read_facts
from sid_actors.git.repository import discover
from sid_daemon.core import verify
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.layout import (
    CANDIDATES,
    OF_ROUNDS,
    PLANS,
    RAW_DATA,
    RESULTS,
    history_path,
    of_round,
    report_path,
)
from sid_daemon.runs.runstore import ALWAYS_THERE, RunStore
from sid_daemon.runs.snapshots import dump_state, fold
from sid_daemon.store.documents import LISTS, documents_as, render_pieces
from sid_daemon.store.journal import Journal
from sid_protocol.errors import StoreError
from sid_protocol.events import RoundClosed, RunCreated, parse_event
from sid_protocol.records import BenchmarkResult, IterationHistory, MergeReport, RawEntry

_SEARCHED = (PLANS, CANDIDATES, *OF_ROUNDS)
"""Folders in which each file is of one round, and whoever reads them takes each for one."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """What was read at one moment, and the database as it was then."""

    journal: Journal
    state: RunState
    git: GitFacts
    lists: dict[str, bool | None]


async def disagreements(state: RunState, store: RunStore) -> list[str]:
    """Return what disagrees in a run's records, one line each.

    Raises:
        GitError: the repository cannot be read.
        StoreError: the database cannot be read.
    """
    info = await discover(state.repo)
    moment = await store.look_over(lambda journal: _at_once(journal, store.root, info.common_dir))
    with closing(moment.journal):
        different = await trio.to_thread.run_sync(_different, moment.journal, store.root)
        extra = await trio.to_thread.run_sync(_extra, moment.journal, store.root)
        again: dict[str, bool | None] = {}
        if different or extra:
            again, extra = await store.look_over(
                lambda journal: (
                    _look_again(journal, store.root, different),
                    _unknown(journal, store.root, extra),
                )
            )
        return await trio.to_thread.run_sync(
            lambda: verify.disagreements(_facts(moment, {**again, **moment.lists}, tuple(extra)))
        )


def _at_once(journal: Journal, root: Path, common_dir: str) -> _Moment:
    then = journal.as_it_is()
    try:
        state = fold(then)
        if state is None:
            raise StoreError(f"{journal.path} holds no event", hint="set it up again: sictl init")
        created = (parse_event(body) for body in then.each_of_kind("run_created"))
        start = next(
            event.baseline_commit
            for event in created
            if isinstance(event, RunCreated) and event.goal_slug == state.goal_slug
        )
        lists = {file: _is_as(root / file, render_pieces(file, then.entries(file))) for file in LISTS}
        there = {file: same for file, same in lists.items() if file in ALWAYS_THERE or then.count(file)}
        return _Moment(then, state, read_facts(common_dir, state.goal_slug, start), there)
    except BaseException:
        then.close()
        raise


def _different(journal: Journal, root: Path) -> list[str]:
    return [
        path
        for path, text in journal.each_document()
        if path not in LISTS and not _is_as(root / path, (text,))
    ]


def _look_again(journal: Journal, root: Path, paths: list[str]) -> dict[str, bool | None]:
    texts = ((path, journal.document(path)) for path in paths)
    return {path: _is_as(root / path, (text,)) for path, text in texts if text is not None}


def _extra(journal: Journal, root: Path) -> list[str]:
    """Return the files among the rounds' that the database does not hold."""
    found = (path for folder in _SEARCHED for path in (root / folder).glob("**/*") if path.is_file())
    return _unknown(journal, root, sorted(str(path.relative_to(root)) for path in found))


def _unknown(journal: Journal, root: Path, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if journal.written_at(path) is None and (root / path).is_file()]


def _facts(moment: _Moment, views: dict[str, bool | None], extra: tuple[str, ...]) -> verify.Facts:
    journal = moment.journal
    closed: dict[int, RoundClosed] = {}
    order: list[int] = []
    refolded: RunState | None = None
    for _, body in journal.each_event():
        event = parse_event(body)
        refolded, _ = step(refolded, event)
        if isinstance(event, RoundClosed):
            iteration = int(event.cause.split(".")[0].removeprefix("r"))
            closed[iteration] = event
            order.append(iteration)
    return verify.Facts(
        state=moment.state,
        refolded=refolded is not None and dump_state(moment.state) == dump_state(refolded),
        damage=tuple(journal.damage()),
        gaps=verify.missing_numbers(journal.numbers()),
        closed=tuple(order),
        rounds=(_round(journal, iteration, event) for iteration, event in sorted(closed.items())),
        views=views,
        extra=extra,
        raw=(RawEntry.model_validate_json(text) for text in journal.entries(RAW_DATA)),
        rows=tuple(_rows(journal)),
        git=_branches(moment.git),
    )


def _round(journal: Journal, iteration: int, event: RoundClosed) -> verify.RoundFacts:
    history = journal.document(history_path(iteration))
    report = journal.document(report_path(iteration))
    results = journal.documents(of_round(CANDIDATES, iteration))
    return verify.RoundFacts(
        iteration=iteration,
        history=IterationHistory.model_validate_json(history) if history else None,
        report=MergeReport.model_validate_json(report) if report else None,
        results=tuple(documents_as(BenchmarkResult, results)),
        tags=event.tags,
    )


def _is_as(path: Path, pieces: Iterable[str]) -> bool | None:
    """Say whether a file holds a text; None where there is no file."""
    try:
        with path.open("rb") as file:
            for piece in pieces:
                data = piece.encode()
                if file.read(len(data)) != data:
                    return False
            return not file.read(1)
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
