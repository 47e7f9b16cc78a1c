"""`sictl service` beside a fake `systemctl`: what it writes, what it asks for, and what it says where it cannot."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sid_cli import units
from sid_protocol.errors import SidError

FAKE = """\
#!/bin/sh
echo "$@" >> "$FAKE_SYSTEMCTL_LOG"
case "$*" in
  *--property=Version*) [ -z "$FAKE_NO_BUS" ] || { echo 'Failed to connect to bus: No medium found' >&2; exit 1; }
    echo Version=252 ;;
  *"$FAKE_FAILS"*) [ -z "$FAKE_FAILS" ] || { echo 'Unit is masked.' >&2; exit 1; } ;;
esac
case "$*" in *show*--property=Id*) cat "$FAKE_SHOW" ;; esac
"""
SHOW = """\
Id=sid.service
LoadState=loaded
ActiveState={active}
SubState={sub}
UnitFileState=disabled
MainPID={pid}
NRestarts=1
StatusText=ready

Id=sid.socket
LoadState=loaded
ActiveState=active
SubState=listening
UnitFileState=enabled
"""


class Systemctl:
    """The fake, and what it was asked."""

    def __init__(self, base: Path) -> None:
        self.log = base / "systemctl.log"
        self.show = base / "show"
        self.is_running(running=False)

    def is_running(self, *, running: bool) -> None:
        states = ("active", "running", "77") if running else ("inactive", "dead", "0")
        self.show.write_text(SHOW.format(active=states[0], sub=states[1], pid=states[2]))

    def calls(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        asked = [line.removeprefix("--user --no-pager ") for line in lines]
        assert all(line.startswith("--user ") for line in lines)
        return [line for line in asked if not line.startswith("show")]


@pytest.fixture
def systemctl(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    folder = short_dir / "fake"
    folder.mkdir()
    (folder / "systemctl").write_text(FAKE)
    (folder / "systemctl").chmod(0o755)
    fake = Systemctl(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SYSTEMCTL_LOG", str(fake.log))
    monkeypatch.setenv("FAKE_SHOW", str(fake.show))
    monkeypatch.setenv("FAKE_FAILS", "")
    monkeypatch.setenv("FAKE_NO_BUS", "")
    return fake


def folder() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "systemd/user"


def value(path: Path, key: str) -> str:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read(path)
    return unit["Service"][key]


def test_install_writes_units_that_start_this_installation(sictl, systemctl: Systemctl) -> None:
    done = sictl("service", "install")

    assert (done.code, done.err) == (0, "")
    started = value(folder() / "sid.service", "ExecStart")
    assert Path(started).is_absolute()
    assert Path(started).name == "sid"
    assert subprocess.run([started, "--version"], check=True, capture_output=True).stdout
    assert (folder() / "sid.socket").exists()
    assert systemctl.calls() == ["daemon-reload", "enable --now sid.socket"]
    assert "loginctl enable-linger" in done.out
    assert "[Service]\nDelegate=yes" not in done.out


def test_agents_of_the_service_are_found_where_the_user_finds_them(sictl, systemctl: Systemctl) -> None:
    sictl("service", "install")

    path = value(folder() / "sid.service.d/path.conf", "Environment").strip('"').removeprefix("PATH=")
    home = os.environ["HOME"]
    assert path.split(":")[0] == f"{home}/.local/bin"
    assert str(Path(sys.executable).parent) in path.split(":")


def test_a_dry_run_prints_the_texts_and_needs_no_systemd(sictl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = sictl("service", "install", "--dry-run")
    listed = sictl("service", "install", "--dry-run", "--json").document

    assert done.code == 0
    assert not folder().exists()
    assert [Path(file["path"]).name for file in listed["files"]] == ["sid.service", "sid.socket", "path.conf"]
    for file in listed["files"]:
        assert f"# {file['path']}\n{file['text']}".strip() in done.out


def test_uninstall_takes_away_what_install_put_there_and_no_more(sictl, systemctl: Systemctl) -> None:
    sictl("service", "install")
    own = folder() / "sid.service.d/own.conf"
    own.write_text("[Service]\nNice=5\n")
    done = sictl("service", "uninstall")

    assert done.code == 0
    assert sorted(path.name for path in folder().rglob("*")) == ["own.conf", "sid.service.d"]
    assert systemctl.calls()[-2:] == ["disable --now sid.socket sid.service", "daemon-reload"]
    assert "not installed" in sictl("service", "uninstall").out


def test_status_shows_the_units(sictl, systemctl: Systemctl) -> None:
    systemctl.is_running(running=True)
    done = sictl("service", "status")

    assert done.code == 0
    assert "sid.socket   active (listening), enabled" in done.out
    assert "sid.service  active (running), disabled, pid 77, restarted 1 times, ready" in done.out
    assert "not installed" in done.out
    sictl("service", "install")
    shown = sictl("service", "status", "--json").document["service"]
    assert shown["installed"] is True
    assert [row["Id"] for row in shown["units"]] == ["sid.socket", "sid.service"]


def test_a_running_service_is_not_restarted_behind_the_users_back(sictl, systemctl: Systemctl) -> None:
    systemctl.is_running(running=True)
    done = sictl("service", "install")

    assert done.code == 0
    assert "systemctl --user restart sid.service" in done.out
    assert not [call for call in systemctl.calls() if "restart" in call]


def test_a_daemon_that_systemd_did_not_start_is_not_hidden(sictl, systemctl: Systemctl, daemon) -> None:
    done = sictl("service", "install")

    assert done.code == 5
    assert "sictl daemon shutdown" in done.err
    assert not folder().exists()


@pytest.mark.parametrize("action", ["install", "status"])
def test_no_systemctl_is_told_with_what_to_do(sictl, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = sictl("service", action)

    assert done.code == 1
    assert "no systemctl on PATH; " in done.err
    assert "sictl start" in done.err


@pytest.mark.parametrize("action", ["install", "status"])
def test_no_user_manager_is_told_with_what_to_do(
    sictl, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setenv("FAKE_NO_BUS", "1")
    done = sictl("service", action)

    assert done.code == 1
    assert "No medium found" in done.err
    assert "loginctl enable-linger" in done.err
    assert not folder().exists()


def test_what_systemctl_refuses_is_told_in_its_words(
    sictl, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "enable")
    done = sictl("service", "install", "--json")

    assert done.code == 1
    assert "Unit is masked." in done.document["error"]["message"]


def test_a_socket_elsewhere_is_told(sictl, systemctl: Systemctl) -> None:
    assert "! SID_SOCKET is set here" in sictl("service", "install").out


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_odd_paths_survive_systemds_quoting(short_dir: Path) -> None:
    program = short_dir / "my $HOME 100% ü" / "sid"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for file in units.unit_files(short_dir / "units", [str(program)], "/a b:/50%", "/home/x"):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(file.text)
    check = ["systemd-analyze", "verify", "--user", "--man=no", str(short_dir / "units/sid.service")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)

    ours = [line for line in done.stderr.splitlines() if "sid" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


def test_a_path_that_systemd_would_not_start_is_refused(short_dir: Path) -> None:
    with pytest.raises(SidError, match="quotes in its path"):
        units.unit_files(short_dir, ["/opt/it's/sid"], "/bin", "/home/x")


def test_an_installation_without_units_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "DISTRIBUTION", "no-such-distribution")

    with pytest.raises(SidError, match="has no sid"):
        units.unit_files(Path("/x"), ["/bin/sid"], "/bin", "/home/x")
