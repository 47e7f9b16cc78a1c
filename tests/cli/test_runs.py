"""Which run is meant: a path, an id, a prefix, or nothing said."""

from __future__ import annotations

from pathlib import Path

import pytest

from sid_cli.places import absolute, existing, own_socket, repository
from sid_cli.runs import choose, of_path
from sid_protocol.errors import NoSuchRun, UsageError
from tests.cli.fake_daemon import run_row

ONE = run_row(run_id="r111aaaa", repo="/src/one", root="/src/one/.sid/topics/default", status="idle")
TWO = run_row(run_id="r111bbbb", repo="/src/two", root="/src/two/.sid/topics/default", status="plateau")
FAST = run_row(
    run_id="r222aaaa", repo="/src/many", root="/src/many/.sid/topics/fast", topic="fast", status="idle"
)
SMALL = run_row(run_id="r222bbbb", repo="/src/many", root="/elsewhere/track", topic="small", status="idle")
ALL = [ONE, TWO, FAST, SMALL]


def chosen(rows, text=None, *, path=None, cwd="/nowhere", topic=None):
    return choose(rows, text=text, path=path, cwd=cwd, topic=topic)["run_id"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ({"text": "r111aaaa"}, "r111aaaa"),
        ({"text": "r111b"}, "r111bbbb"),
        ({"text": ".", "path": "/src/two"}, "r111bbbb"),
        ({"text": "src", "path": "/src/two/src/deep"}, "r111bbbb"),
        ({"text": "many", "path": "/src/many", "topic": "Fast"}, "r222aaaa"),
        ({"text": "t", "path": "/elsewhere/track"}, "r222bbbb"),
        ({"text": None, "cwd": "/src/one/sub"}, "r111aaaa"),
        ({"text": None, "cwd": "/src/many", "topic": "small"}, "r222bbbb"),
        ({"text": "r111a", "path": "/src/elsewhere/r111a"}, "r111aaaa"),
    ],
)
def test_found(words, meant):
    assert chosen(ALL, **words) == meant


def test_nothing_said_means_the_only_active_run_before_the_folder():
    active = {**TWO, "status": "paused"}
    assert chosen([ONE, active], cwd="/src/one") == "r111bbbb"
    assert chosen([{**ONE, "status": "running"}, active], cwd="/src/two") == "r111bbbb"


def test_of_several_in_a_repository_the_only_active_one_is_meant():
    assert chosen([FAST, {**SMALL, "status": "running"}], "many", path="/src/many") == "r222bbbb"


@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ({"text": "r111"}, "r111aaaa"),
        ({"text": "many", "path": "/src/many"}, "r222bbbb (small, idle)"),
        ({"text": None, "cwd": "/src/many"}, "--topic"),
    ],
)
def test_ambiguous_lists_the_candidates(words, listed):
    with pytest.raises(UsageError) as caught:
        chosen(ALL, **words)
    assert listed in caught.value.hint


def test_several_active_and_nothing_said_lists_them():
    with pytest.raises(UsageError, match="several runs are active"):
        chosen([{**ONE, "status": "running"}, {**TWO, "status": "running"}])


@pytest.mark.parametrize(
    "words",
    [
        {"text": "r11"},
        {"text": "zzzzz"},
        {"text": "x", "path": "/src/none"},
        {"text": None},
        {"text": "r111a", "topic": "fast"},
        {"text": "", "path": None, "cwd": "/src/one"},
    ],
)
def test_no_such_run(words):
    with pytest.raises(NoSuchRun) as caught:
        chosen(ALL, **words)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("words", "there"),
    [
        ({"text": ".", "path": "/src/many"}, "fast (r222aaaa), small (r222bbbb)"),
        ({"text": None, "cwd": "/src/many"}, "fast (r222aaaa), small (r222bbbb)"),
        ({"text": "r111a"}, "default (r111aaaa)"),
    ],
)
def test_another_topic_than_there_is_lists_those_that_there_are(words, there):
    with pytest.raises(NoSuchRun, match="topic nosuch") as caught:
        chosen(ALL, **words, topic="nosuch")
    assert caught.value.hint.endswith(there)


def test_a_folder_with_a_similar_name_is_another_repository():
    assert of_path([run_row(repo="/src/one")], "/src/one-more") == []


def test_the_innermost_repository_counts():
    inner = run_row(run_id="inner", repo="/src/one/vendor/lib", root="/x")
    assert of_path([ONE, inner], "/src/one/vendor/lib/a") == [inner]


def test_places_are_absolute_and_resolved(short_dir: Path, repo, monkeypatch):
    made = repo({"a/b.txt": "x"}, name="späce y")
    (short_dir / "link").symlink_to(made.path)
    monkeypatch.chdir(made.path / "a")

    assert existing("..") == existing(str(short_dir / "link")) == str(made.path)
    assert repository(str(short_dir / "link" / "a")) == str(made.path)
    assert existing("nothing") is None
    assert existing("") is None
    with pytest.raises(UsageError, match="empty"):
        own_socket("")
    assert repository("/") is None
    assert own_socket("s.sock") == str(made.path / "a" / "s.sock")


def test_a_folder_that_is_gone_and_a_socket_that_is_too_long_are_told(short_dir: Path, monkeypatch):
    (short_dir / "gone").mkdir()
    monkeypatch.chdir(short_dir / "gone")
    (short_dir / "gone").rmdir()
    with pytest.raises(UsageError, match="no longer exists"):
        absolute(".")
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match="bytes long"):
        own_socket("/" + "x" * 200)
