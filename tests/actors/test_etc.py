"""The part of /etc that jobs see: the same with copies and without, and never an old one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sid_actors.jobs.job import JobResult
from sid_actors.jobs.process import run_job
from sid_actors.workbench.sandbox import etc
from sid_actors.workbench.sandbox.etc import EtcCopies
from tests.actors.job_cases import make_sandbox, make_spec, need_sandbox

LOOK = "cd /etc && find . | sort && find -L . -type f -readable | sort | xargs -d '\\n' sha256sum"


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep copies as a daemon does, and return the folder for them."""
    monkeypatch.setattr(etc, "_copies", None)
    etc.keep_copies(tmp_path / "copies")
    return tmp_path / "copies"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """An /etc of its own: a file, a link to one, a folder, and what is nobody's business."""
    folder = tmp_path / "etc"
    for name, text in {
        "hosts": "here\n",
        "zone": "UTC\n",
        "ssl/certs/one.pem": "A\n",
        "shadow": "secret\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "localtime").symlink_to("zone")
    return folder


def copied(flags: list[str], host: Path) -> dict[str, str]:
    """Return the files of the copy that flags bind at the place of `host`."""
    assert flags[0] == "--ro-bind"
    assert flags[2] == str(host)
    folder = Path(flags[1])
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(path: Path) -> str:
    return path.read_text()


async def look(folder: Path, command: str = LOOK, **described: object) -> JobResult:
    return await run_job(make_spec(folder, command, sandbox=make_sandbox(folder, **described)))


@pytest.mark.usefixtures("real_process")
@pytest.mark.parametrize("network", [False, True])
async def test_a_job_sees_the_same_with_copies_as_without(
    short_dir: Path, copies: Path, monkeypatch: pytest.MonkeyPatch, network: bool
) -> None:
    need_sandbox()
    with_copies = await look(short_dir, network=network)
    assert names_in(copies) != []
    monkeypatch.setattr(etc, "_copies", None)
    assert with_copies.stdout.head == (await look(short_dir, network=network)).stdout.head != b""
    assert with_copies.exit_code == 0


@pytest.mark.usefixtures("real_process", "copies")
async def test_what_is_shared_below_etc_is_there(short_dir: Path) -> None:
    need_sandbox()
    shared = "/etc/profile"
    seen = await look(
        short_dir, f"cmp {shared} /proc/self/fd/0 < {shared} && cat /etc/passwd", readable=(shared,)
    )
    assert seen.exit_code == 0


@pytest.mark.usefixtures("real_process", "copies")
async def test_nobody_writes_into_a_copy(short_dir: Path, copies: Path) -> None:
    need_sandbox()
    await look(short_dir, "true")
    names = names_in(copies / "1")
    seen = await look(short_dir, "echo evil >> /etc/passwd; rm -f /etc/group; touch /etc/new; ls /etc/group")
    assert seen.exit_code == 0
    (number,) = names_in(copies)
    assert names_in(copies / number) == names
    assert contents(copies / number / "passwd") == contents(Path("/etc/passwd"))


def test_nothing_else_is_copied(tmp_path: Path, host: Path) -> None:
    flags = EtcCopies(tmp_path / "copies", str(host)).flags(network=False)
    assert copied(flags, host) == {"hosts": "here\n", "localtime": "UTC\n"}
    certs = str(host / "ssl/certs")
    assert flags[3:] == ["--ro-bind-try", certs, certs]


@pytest.mark.parametrize("change", ["rewritten", "replaced", "new", "gone", "link turned"])
def test_the_next_job_sees_a_change_and_a_running_one_keeps_what_it_had(
    tmp_path: Path, host: Path, change: str
) -> None:
    keeper = EtcCopies(tmp_path / "copies", str(host))
    before = keeper.flags(network=False)
    old = copied(before, host)
    if change == "rewritten":
        (host / "hosts").write_text("now there\n")
    elif change == "replaced":
        (tmp_path / "new").write_text("HERE\n")
        (tmp_path / "new").replace(host / "hosts")
    elif change == "new":
        (host / "passwd").write_text("root\n")
    elif change == "gone":
        (host / "hosts").unlink()
    else:
        (host / "CET").write_text("CET\n")
        (host / "localtime").unlink()
        (host / "localtime").symlink_to("CET")
    after = copied(keeper.flags(network=False), host)
    assert after != old
    assert after == {
        name: (host / name).read_text() for name in ("hosts", "localtime", "passwd") if (host / name).exists()
    }
    assert copied(before, host) == old


def test_without_a_change_there_is_one_copy_and_with_many_only_the_last_stay(
    tmp_path: Path, host: Path
) -> None:
    keeper = EtcCopies(tmp_path / "copies", str(host))
    assert keeper.flags(network=False) == keeper.flags(network=False)
    assert len(list((tmp_path / "copies").iterdir())) == 1
    for number in range(50):
        (host / "hosts").write_text(f"{number:100}\n" * (number + 1))
        newest = keeper.flags(network=False)
    assert copied(newest, host)["hosts"].startswith(f"{49:100}")
    assert len(list((tmp_path / "copies").iterdir())) <= 16


def test_a_copy_outlives_the_changes_of_what_it_has_not(tmp_path: Path, host: Path) -> None:
    """The resolver's file changes with each network that a machine joins; jobs without a network do not see it."""
    keeper = EtcCopies(tmp_path / "copies", str(host))
    before = copied(keeper.flags(network=False), host)
    for number in range(20):
        (host / "resolv.conf").write_text(f"{number:100}\n" * (number + 1))
        keeper.flags(network=True)
    assert copied(keeper.flags(network=False), host) == before != {}


def test_copies_that_are_deleted_are_made_again(tmp_path: Path, host: Path) -> None:
    keeper = EtcCopies(tmp_path / "copies", str(host))
    before = copied(keeper.flags(network=False), host)
    shutil.rmtree(tmp_path / "copies")
    assert copied(keeper.flags(network=False), host) == before != {}


def test_where_there_is_no_room_each_entry_is_bound_by_itself(tmp_path: Path, host: Path) -> None:
    (tmp_path / "file").write_text("")
    flags = EtcCopies(tmp_path / "file" / "copies", str(host)).flags(network=False)
    assert flags[::3] == ["--ro-bind-try"] * 3
    assert flags[1::3] == [str(host / name) for name in ("hosts", "localtime", "ssl/certs")]


def test_what_a_dead_daemon_left_is_removed(tmp_path: Path, host: Path) -> None:
    EtcCopies(tmp_path / "copies", str(host)).flags(network=False)
    EtcCopies(tmp_path / "copies", str(host))
    assert not (tmp_path / "copies").exists()
