"""Keeps runs as golden recordings: `python -m tests.replay.keep STORY`, where a story is new or a rule was changed.

Runs a story of the end-to-end tests with the real daemon, records it, and writes its three files to `recordings/`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sid_daemon.store.journal import Journal
from tests.e2e import test_measuring, test_replay
from tests.e2e.harness import SEALED_BENCHMARK, World, environment
from tests.replay.test_recordings import RECORDINGS, known
from tests.repos import Repo

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "GIT_AUTHOR_DATE": "2025-03-01T12:00:00+00:00",
    "GIT_COMMITTER_DATE": "2025-03-01T12:00:00+00:00",
}
"""What a recording tells of the machine that it was made on, and when its repository began."""
BLOCKING = (
    {
        "role": "executor",
        "agent": "executor_1",
        "stderr": "begun\n",
        "hang": True,
        "edit": {"value.txt": "5\n"},
    },
    {"role": "executor", "agent": "executor_2", "wait": "never"},
)


def noisy(world: World, base: Path) -> Repo:
    """Two candidates under noise, one better."""
    repo, out = test_measuring.noisy_repo(world, made_in(base))
    test_measuring.set_up(world, repo, out, 130.0, 90.0, record=True)
    world.run(repo, "--rounds", "1")
    return repo


def eventful(world: World, base: Path) -> Repo:
    """Three rounds full of incidents."""
    return test_replay.set_up_eventful(world, made_in(base))


def blocked(world: World, base: Path) -> Repo:
    """A round that a force-kill blocks while others are at work."""
    repo, agent = made_in(base)(SEALED_BENCHMARK), world.agent()
    agent.script(*BLOCKING)
    limits = ("--set", "deadlines.executor_idle=1", "--set", "kill_threshold=1", "--set", "blocked_limit=1")
    world.init(repo, agent, *test_replay.RECORD, *limits, agents=3)
    world.run(repo, code=10)
    return repo


def local(world: World, base: Path) -> Repo:
    """Three rounds of the back end that asks no model."""
    return test_replay.set_up_local(world, made_in(base))


STORIES = {story.__name__: story for story in (noisy, eventful, blocked, local)}


def made_in(base: Path) -> Callable[..., Repo]:
    """Return what makes a repository in a folder, as the fixture `repo` does."""

    def make(files: Mapping[str, str | bytes], *, name: str = "repo", bare: bool = False) -> Repo:
        path = base / name
        path.mkdir()
        made = Repo(path)
        made.git("init", "--quiet", "--initial-branch=main", *(["--bare"] if bare else []))
        made.commit(files, "Start")
        return made

    return make


def keep(name: str) -> None:
    """Make a story's run and keep its recording, what it began with, and what was known of it at its end."""
    base = Path(tempfile.mkdtemp(prefix="g"))
    own = environment(base) | ENVIRONMENT
    os.environ.clear()
    os.environ.update(own)
    world = World(base, own)
    try:
        repo = STORIES[name](world, base)
        (recording,) = (world.state / "recordings").glob("*.jsonl")
        shutil.copyfile(recording, RECORDINGS / f"{name}.jsonl")
        (RECORDINGS / f"{name}.base").write_text(repo.git("fast-export", "main") + "\n")
        journal = Journal(repo.path / ".sid/topics/default/state/run.db")
        told = json.dumps(known(journal), indent=1, ensure_ascii=False)
        journal.close()
        (RECORDINGS / f"{name}.json").write_text(told + "\n")
    finally:
        world.end()
        shutil.rmtree(base)


if __name__ == "__main__":
    for story in sys.argv[1:] or STORIES:
        keep(story)
