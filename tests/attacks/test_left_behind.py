"""What an agent leaves in its worktree to reach out of it, or to hold up or to fell who looks at it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from sid_actors.git.trees import FILE, LINK
from sid_actors.jobs import overload
from sid_actors.workbench import edits
from sid_actors.workbench.checkouts import deleting, disk
from sid_actors.workbench.checkouts.looking import walk_all
from sid_actors.workbench.checks.seal import may_be_checked_out
from tests.actors.workbench.conftest import OpenBay, open_bay
from tests.conftest import MakeRepo

__all__ = ["open_bay"]
FILES = {
    "app.py": "COST = 10\n",
    "bench.py": "from app import COST\nprint(COST)\n",
    ".gitattributes": "* text=auto\n",
}
ODD_NAMES = (
    *(".git", ".GIT", ".git/x", "lib/.Git/config", "git~1", "GIT~1/x", ".git ", ".git...", ".git::$DATA/x"),
    *("a\\.git", "a\\git~1\\b"),
)
ORDINARY_NAMES = (
    *(
        ".gitignore",
        ".github/x",
        ".gitx",
        "git",
        "git~",
        "x.git",
        "a\\b",
        "~",
        "-rf",
        "...",
        " ",
        "a:b",
        "con",
        "git~11",
    ),
)
MODULES = (".gitmodules", ".GITMODULES", "GITMOD~1", "gi7eba~1", "~1234567", "gitmod~4")


def git_takes(folder: Path, path: str, mode: str) -> bool:
    """The oracle: whether git would write such an entry."""
    env = {**os.environ, "GIT_INDEX_FILE": str(folder / "index")}
    flags = ["git", "-C", str(folder), "-c", "core.protectNTFS=true", "-c", "core.protectHFS=true"]
    done = subprocess.run(
        [*flags, "update-index", "-z", "--index-info"],
        input=f"{mode} {'1' * 40}\t{path}\0".encode(),
        env=env,
        capture_output=True,
        check=True,
    )
    return b"Ignoring path" not in done.stderr


def test_names_that_git_does_not_check_out_are_known(repo: MakeRepo) -> None:
    top = repo(FILES).path
    wrong = [
        (path, mode)
        for mode, number, names in (
            ("100644", FILE, (*ODD_NAMES, *ORDINARY_NAMES, ".g\u200cit/x")),
            ("120000", LINK, (*MODULES, "link", "gitmodules", "x~1")),
        )
        for path in names
        if may_be_checked_out(path, number) != git_takes(top, path, mode)
    ]
    assert wrong == []


async def test_such_a_name_is_refused_and_no_checkout_fails(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES)) as bay:
        for number, name in enumerate((".GIT/config", "git~1"), 1):

            def leave(top: Path, name: str = name) -> None:
                (top / name).parent.mkdir(exist_ok=True)
                (top / name).write_text("x\n")

            found = await bay.attempt(leave, number)
            assert found.refusal == ("sealed_file_violation", f"a name that git does not check out: {name}")


async def test_a_name_in_quotes_is_no_way_to_the_users_files(
    repo: MakeRepo, open_bay: OpenBay, tmp_path: Path
) -> None:
    """Git reads a path that begins with a quote as C reads a string: this name would be `/…/secret`."""
    secret = tmp_path / "secret"
    secret.write_text("of the user\n")
    name = '"' + str(secret).replace("/", "\\057") + '"'
    made = repo(FILES)
    async with open_bay(made) as bay:
        found = await bay.attempt(lambda top: (top / name).write_text("of the agent\r\n"))
    assert found.refusal is None
    assert made.git("show", f"{found.commit}:{name}") == "of the agent"


@pytest.mark.parametrize(("depth", "name"), [(250, "a"), (20, "a" * 200)])
async def test_a_folder_too_deep_is_refused(repo: MakeRepo, open_bay: OpenBay, depth: int, name: str) -> None:
    async with open_bay(repo(FILES)) as bay:
        found = await bay.attempt(lambda top: dig(top, depth, name))
    assert found.refusal
    assert found.refusal[0] == "scope_error"
    assert "too deep or too long" in found.refusal[1]


def dig(top: Path, depth: int, name: str = "a") -> None:
    """Make folders in folders, with a file in the last; no path leads there."""
    script = f"import os\nfor _ in range({depth}):\n    os.mkdir({name!r}); os.chdir({name!r})\nopen('f', 'w').close()"
    subprocess.run(["python3", "-c", script], cwd=top, check=True)


@pytest.mark.slow
def test_what_is_too_deep_for_a_path_is_deleted_all_the_same(tmp_path: Path) -> None:
    top = tmp_path / "left"
    for name, depth, inner in (("one", 1100, "a"), ("two", 30, "b" * 200), ("0", 3, "0")):
        (top / name).mkdir(parents=True)
        dig(top / name, depth, inner)
    (top / "one").chmod(0)
    (tmp_path / "kept").write_text("x")
    (top / "two/link").symlink_to(tmp_path)
    deleting.remove(str(top))
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_what_is_too_deep_for_a_path_counts_as_one_addition(tmp_path: Path) -> None:
    dig(tmp_path, 30, "a" * 200)
    (found,) = walk_all(str(tmp_path), "a" * 200)
    assert set(found) == {"a", "/"}
    deleting.remove(str(tmp_path / ("a" * 200)))


def test_what_is_too_deep_to_be_named_may_hold_all_that_is_missing(tmp_path: Path) -> None:
    begun = time.time() - 1
    assert overload.written(str(tmp_path), begun)[1] is False
    dig(tmp_path, 30, "a" * 200)
    assert overload.written(str(tmp_path), begun)[1] is True
    deleting.remove(str(tmp_path / ("a" * 200)))


def test_a_file_of_another_size_is_not_read(tmp_path: Path) -> None:
    """A sparse file takes no room and would take hours: this one is 8 TiB long."""
    (tmp_path / "app.py").write_text("x")
    manifest = disk.record(str(tmp_path), [("app.py", None)])
    os.truncate(tmp_path / "app.py", 1 << 43)
    assert disk.compare(str(tmp_path), manifest).changed == {"app.py"}


@pytest.mark.slow
async def test_a_large_file_is_not_taken_into_memory(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(
        {"app.py": "x\n", "data.bin": "x\n"}
    )  # without attributes: what git converts it reads in any case
    size = 100 << 20

    def leave(top: Path) -> None:
        (top / "data.bin").write_text("y\n")
        os.truncate(top / "data.bin", size)

    begin_peak()
    before = peak_kb()
    async with open_bay(made) as bay:
        found = await bay.attempt(leave)
    assert found.paths == ("data.bin",)
    assert made.git("cat-file", "-s", f"{found.commit}:data.bin").strip() == str(size)
    assert peak_kb() - before < size >> 10


async def test_what_git_writes_for_its_size_alone_is_not_converted(
    repo: MakeRepo, open_bay: OpenBay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git does: a file that was committed with CR LF stays so."""
    monkeypatch.setattr(edits, "_LARGE_BYTES", 3)
    made = repo({"kept.txt": "a\r\n"})
    made.commit(FILES)
    async with open_bay(made) as bay:
        found = await bay.attempt(lambda top: (top / "kept.txt").write_bytes(b"a\r\nb\r\n"))
    assert (found.refusal, found.paths) == (None, ("kept.txt",))
    assert made.git("cat-file", "-s", f"{found.commit}:kept.txt") == "6"


def begin_peak() -> None:
    """Forget the most memory there was: that of an earlier test would hide this one's."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_kb() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_NAMES_MB"])
async def test_more_files_than_a_tree_can_have_are_refused(
    repo: MakeRepo, open_bay: OpenBay, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(edits, limit, {"_MOST_FILES": 5, "_MOST_NAMES_MB": 0}[limit])

    def leave(top: Path, count: int) -> None:
        for number in range(count):
            (top / f"{number}{'x' * 250}").touch()

    async with open_bay(repo(FILES)) as bay:
        fine = await bay.attempt(lambda top: leave(top, 5), 1)
        found = await bay.attempt(lambda top: leave(top, 6 if limit == "_MOST_FILES" else 4500), 2)
    assert (fine.refusal, found.commit) == (None, None)
    assert found.refusal
    assert found.refusal[0] == "scope_error"
    assert "new files" in found.refusal[1]


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
async def test_rules_that_git_is_never_done_with_are_refused(
    repo: MakeRepo, open_bay: OpenBay, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(edits, "LOOK_LIMIT_S", 0.2)

    def leave(top: Path) -> None:
        folder = top / "/".join(["aaa"] * 100)
        folder.mkdir(parents=True)
        (folder / "f").touch()
        (top / name).write_text("**/a*/" * 8 + "**/b" + (" text" if name == ".gitattributes" else "") + "\n")

    async with open_bay(repo(FILES)) as bay:
        found = await bay.attempt(leave)
    assert found.refusal
    assert found.refusal[0] == "scope_error"
    assert "cannot be looked at: git" in found.refusal[1]
