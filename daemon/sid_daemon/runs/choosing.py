"""Which run a user means: an id, the beginning of one, or a path. Pure; used by `host`, which knows the runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import NoSuchRun
from sid_protocol.ids import topic_slug

PREFIX_LENGTH = 4
SHOWN = 5
"""Runs that an error lists."""


def run_of_id(runs: Sequence[KnownRun], text: str) -> KnownRun:
    """Return the run of an id, or of the beginning of one.

    Raises:
        NoSuchRun: there is none, or more than one.
    """
    exact = [run for run in runs if run.run_id == text]
    prefixed = [run for run in runs if len(text) >= PREFIX_LENGTH and run.run_id.startswith(text)]
    return _only(exact or prefixed, repr(text))


def run_of_path(runs: Sequence[KnownRun], path: str, topic: str | None, active: Collection[str]) -> KnownRun:
    """Return the run of the innermost repository that a path lies in.

    Args:
        runs: All known runs.
        path: Absolute, without symbolic links.
        topic: Which of several, as the user wrote it; None prefers the active ones, then the topic `default`.
        active: Ids of the active runs.

    Raises:
        NoSuchRun: there is none, or more than one.
    """
    found = [run for run in runs if f"{path}/".startswith((f"{run.repo}/", f"{run.root}/"))]
    deepest = max((len(run.repo) for run in found), default=0)
    found = [run for run in found if len(run.repo) == deepest]
    if topic is not None:
        wanted = topic_slug(topic)
        return _only([run for run in found if run.topic == wanted], f"{path} (topic {wanted})")
    if len(found) > 1:
        at_work = [run for run in found if run.run_id in active]
        found = at_work or [run for run in found if run.topic == "default"]
    return _only(found, path)


def _only(found: Sequence[KnownRun], what: str) -> KnownRun:
    if not found:
        raise NoSuchRun(f"no run matches {what}", hint="'sictl status' lists runs, 'sictl init' sets one up")
    if len(found) > 1:
        names = ", ".join(f"{run.run_id} ({run.topic})" for run in found[:SHOWN])
        raise NoSuchRun(f"several runs match {what}: {names}", hint="name one by its id, or give --topic")
    return found[0]
