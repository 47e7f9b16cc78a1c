"""Runs a node: prompt to its model, answer to its judge, until it passes or its turns are used up; then its lessons.

Called by the RPC method `node.run`. Every run leaves an `outcome.json`, one that failed or was cancelled, too. The
rules are `core.node`'s, the files `folder`'s, the processes `jobs`'s.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from sid_actors.jobs.job import JobResult, JobStartError
from sid_daemon.core import node as rules
from sid_daemon.nodes.folder import NodeFolder, RunFolder
from sid_daemon.nodes.jobs import NodeJobs, node_jobs
from sid_protocol.params import NodeParams
from sid_protocol.status import NodeResult

_LEARNING = trio.Lock()
"""One run at a time adds lessons, so that none stands twice."""


class _Ended(Exception):
    """A run has ended before its judge let it pass."""

    def __init__(self, status: rules.NodeStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(slots=True)
class _Course:
    """How a run stands."""

    status: rules.NodeStatus = "aborted"
    why: str = "cancelled"
    rounds: int = 0
    score: float | None = None
    violations: Counter[str] = field(default_factory=Counter)


async def run_node(
    params: NodeParams, *, contained: bool, environ: Mapping[str, str] = os.environ
) -> NodeResult:
    """Run a node once, to its end, and learn from it.

    Args:
        params: What was asked for.
        contained: Whether model and judge run in the sandbox.
        environ: Where PATH, HOME and what the model is given are looked up.

    Raises:
        Refused: the folder is no node, or its model cannot be started.
        StoreError: the node's folder cannot be written.
    """
    node = NodeFolder(Path(params.node))
    await trio.to_thread.run_sync(node.check)
    cap = await trio.to_thread.run_sync(node.hard_cap)
    prepare = functools.partial(node_jobs, node, params, contained=contained, environ=environ)
    jobs = await trio.to_thread.run_sync(prepare)
    run = await trio.to_thread.run_sync(node.new_run, Path(params.seed))
    course = _Course()
    try:
        await _go_on(jobs, run, course, cap)
    finally:
        outcome = {
            "run_id": run.run_id,
            "node": run.node,
            "status": course.status,
            "rounds": course.rounds,
            "final_score": course.score,
            "exit_reason": course.why,
            "violations_total": dict(course.violations),
        }
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(run.end, outcome)
    async with _LEARNING:
        learned = await trio.to_thread.run_sync(_learn, node, params)
    return NodeResult.model_validate(
        {**outcome, "folder": str(run.path), "promoted": [ban.key for ban in learned]}
    )


async def _go_on(jobs: NodeJobs, run: RunFolder, course: _Course, cap: int) -> None:
    """Take turns until the run ends."""
    try:
        for number in range(1, cap + 1):
            course.rounds = number
            judged = await _turn(jobs, run, course, number)
            if judged.passed:
                course.status, course.why = "passed", f"score {judged.score:g} without violations"
                return
    except _Ended as ended:
        course.status, course.why = ended.status, ended.why
    except JobStartError as error:
        course.status, course.why = "failed", f"could not be started: {error.message}"
    else:
        course.status, course.why = "hard_cap", f"{cap} rounds are used up"


async def _turn(jobs: NodeJobs, run: RunFolder, course: _Course, number: int) -> rules.Judged:
    """Ask the model once and let the judge look at what it answered."""
    prompt = await trio.to_thread.run_sync(_prompt, jobs.node, run, number)
    output = _answer(await jobs.model(run, number, prompt))
    offset = await trio.to_thread.run_sync(run.answer, number, output)
    done = await jobs.judge(run, number)
    lines = await trio.to_thread.run_sync(run.events_from, offset)
    try:
        judged = rules.read_judged(lines)
    except ValueError as error:
        raise _Ended("failed", f"{error}; it {_ending(done)}") from None
    course.score = judged.score
    course.violations.update(judged.violations)
    await trio.to_thread.run_sync(run.end_round, number, judged.passed, judged.score)
    if judged.passed:
        return judged  # whatever the judge's exit status: what it wrote says more
    if done.timed_out or done.exit_code != 0:
        raise _Ended("failed", f"the judge {_ending(done)}")
    if (line := rules.blocked(output)) is not None:
        raise _Ended("aborted", line)
    return judged


def _prompt(node: NodeFolder, run: RunFolder, number: int) -> bytes:
    text = rules.prompt_of(node.prompt, node.bans, run.seed, run.state, number)
    return text.encode("utf-8", "replace")


def _answer(done: JobResult) -> str:
    """Return what the model printed.

    Raises:
        _Ended: it failed, was too slow, or printed nothing.
    """
    output = done.stdout.text().strip("\n")
    if done.timed_out or done.exit_code != 0:
        raise _Ended("failed", f"the model {_ending(done)}")
    if not output.strip():
        raise _Ended("failed", "the model printed nothing")
    return output


def _ending(done: JobResult) -> str:
    said = " ".join(done.stderr.text().split())[-200:]
    words = f" and said: {said}" if said else ""
    if done.timed_out:
        return f"was ended at its deadline{words}"
    if done.signal is not None:
        return f"was ended by signal {done.signal}{words}"
    return f"left with exit status {done.exit_code}{words}"


def _learn(node: NodeFolder, params: NodeParams) -> list[rules.Ban]:
    known = rules.bans_in(node.bans)
    found = rules.promoted(node.runs(), known, window=params.window, threshold=params.threshold)
    if found:
        node.add_bans([rules.ban_line(ban, params.window) for ban in found])
    return found
