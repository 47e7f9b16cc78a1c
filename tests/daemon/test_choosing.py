"""Which run a user means by an id, the beginning of one, or a path."""

from __future__ import annotations

import pytest

from sid_daemon.runs.choosing import run_of_id, run_of_path
from sid_daemon.store.registry import KnownRun
from sid_protocol.errors import NoSuchRun


def run(run_id: str, repo: str, topic: str = "default", root: str | None = None) -> KnownRun:
    root = root or f"{repo}/.sid/topics/{topic}"
    return KnownRun(run_id, repo, f"{repo}/.git", topic, root, active=False, created_at="")


RUNS = (
    run("abcd1", "/src/primes"),
    run("abcd2", "/src/primes", "speed"),
    run("wxyz1", "/src/primes/inner"),
    run("ghij1", "/src/aside", "size", "/data/size"),
)


@pytest.mark.parametrize(("text", "meant"), [("abcd1", "abcd1"), ("wxyz", "wxyz1"), ("ghij1", "ghij1")])
def test_an_id_or_the_beginning_of_one(text: str, meant: str) -> None:
    assert run_of_id(RUNS, text).run_id == meant


@pytest.mark.parametrize("text", ["wxy", "none1", ""])
def test_an_id_of_no_run(text: str) -> None:
    with pytest.raises(NoSuchRun, match="no run matches"):
        run_of_id(RUNS, text)


def test_the_beginning_of_several_ids_names_them() -> None:
    with pytest.raises(NoSuchRun, match=r"several runs match 'abcd': abcd1 \(default\), abcd2 \(speed\)"):
        run_of_id(RUNS, "abcd")


@pytest.mark.parametrize(
    ("path", "topic", "active", "meant"),
    [
        ("/src/primes", None, (), "abcd1"),
        ("/src/primes/lib", None, ("abcd2",), "abcd2"),
        ("/src/primes", "Speed", (), "abcd2"),
        ("/src/primes/inner/lib", None, (), "wxyz1"),
        ("/data/size/config", None, (), "ghij1"),
    ],
)
def test_a_path_means_the_innermost_repository(
    path: str, topic: str | None, active: tuple[str, ...], meant: str
) -> None:
    assert run_of_path(RUNS, path, topic, active).run_id == meant


@pytest.mark.parametrize(("path", "topic"), [("/src/primesx", None), ("/src", None), ("/src/primes", "size")])
def test_a_path_of_no_run(path: str, topic: str | None) -> None:
    with pytest.raises(NoSuchRun, match=f"no run matches {path}"):
        run_of_path(RUNS, path, topic, ())
