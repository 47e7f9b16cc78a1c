"""What a hostile repository brings along to lead the run's own files, or the user's, elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sid_actors.git.repository import tracked_links
from tests.conftest import MakeRepo
from tests.e2e.conftest import world
from tests.e2e.harness import SEALED_BENCHMARK, World
from tests.repos import Repo

__all__ = ["world"]
ROOT = ".sid/topics/default"
SECRET = "s3cret-of-the-user"


def link(path: str, to: str = "") -> Callable[[Path, Path], None]:
    def make(top: Path, safe: Path) -> None:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).symlink_to(safe / to)

    return make


LINKS = {
    path: link(path, to)
    for path, to in {
        ".sid": "",
        ".sid/topics": "",
        ROOT: "",
        f"{ROOT}/config": "",
        f"{ROOT}/tracking": "",
        f"{ROOT}/state/run.db": "new.db",
        f"{ROOT}/config/idea.md": "key",
    }.items()
}


def committed(repo: Repo) -> Repo:
    repo.git("add", "-Af")
    repo.git("commit", "-qm", "Links")
    return repo


def test_links_on_the_way_to_a_root_and_below_it_are_found(repo: MakeRepo, tmp_path: Path) -> None:
    for number, (path, make) in enumerate(LINKS.items()):
        target = repo({"a": "1\n", "other/x": "1\n"}, name=f"r{number}")
        make(target.path, tmp_path)
        top = str(target.path)
        assert tracked_links(top, f"{top}/{ROOT}") == [], "the user's own links are the user's"
        (target.path / "other/link").symlink_to("x")
        committed(target)
        assert tracked_links(top, f"{top}/{ROOT}") == [path]
        assert tracked_links(top, str(tmp_path)) == tracked_links(top, f"{top}/elsewhere") == []


def test_a_root_that_begins_with_two_dots_lies_in_the_repository(repo: MakeRepo, tmp_path: Path) -> None:
    target = repo({"a": "1\n"})
    link("..mine/config")(target.path, tmp_path)
    top = str(committed(target).path)
    assert tracked_links(top, f"{top}/..mine") == ["..mine/config"]
    target.git("checkout", "-q", "--orphan", "new")
    assert tracked_links(top, f"{top}/..mine") == [], "nothing is checked out"


@pytest.mark.slow
@pytest.mark.parametrize("path", [".sid", f"{ROOT}/tracking", f"{ROOT}/config/idea.md"])
def test_nothing_is_written_or_read_through_a_link_of_the_repository(
    repo: MakeRepo, world: World, path: str
) -> None:
    safe = world.base / "safe"
    safe.mkdir()
    (safe / "key").write_text(f"- {SECRET}\n")
    target = repo(SEALED_BENCHMARK)
    LINKS[path](target.path, safe)
    agent = world.agent()
    done = world.init(committed(target), agent, code=5)
    assert "holds a link in the place of the run's files" in done.err
    assert world.sictl("start", target.path, code=5).err == done.err
    with world.wire() as wire:
        asked = wire.answer(
            "setup.clarify", repo=str(target.path), backend="command", agent_command="true", confirmed=True
        )
    assert asked["error"]["message"] in done.err
    assert [entry.name for entry in safe.iterdir()] == ["key"]
    elsewhere = world.base / "mine"
    world.init(target, agent, "--root", elsewhere)
    assert (elsewhere / "config/settings.json").is_file()
