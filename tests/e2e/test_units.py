"""The systemd user units are well formed, agree with the socket's place, and leave room for the sandbox."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "systemd"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_has_no_complaint() -> None:
    sid = Path.home() / ".local/bin/sid"  # a missing ExecStart= is a complaint of its own
    sid.parent.mkdir(parents=True)
    sid.write_text("#!/bin/sh\n")
    sid.chmod(0o755)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", UNITS / "sid.service", UNITS / "sid.socket"],
        capture_output=True,
        text=True,
        check=False,
    )

    # An unknown key is a warning with exit status 0.
    ours = [line for line in done.stderr.splitlines() if "sid" in line]
    assert (ours, done.returncode) == ([], 0), done.stderr


def test_the_socket_is_where_sictl_looks_and_is_the_users_alone() -> None:
    socket = _read("sid.socket")["Socket"]

    assert socket["ListenStream"] == "%t/sid/sid.sock"
    assert (socket["SocketMode"], socket["DirectoryMode"]) == ("0600", "0700")


def test_the_service_supervises_the_daemon_and_does_not_break_the_sandbox() -> None:
    service = _read("sid.service")["Service"]

    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    assert service["Delegate"] == "yes"
    assert int(service["WatchdogSec"]) > 0
    breaking = ("NoNewPrivileges", "MemoryDenyWriteExecute", "SystemCall", "Restrict", "Private", "Protect")
    assert [key for key in service if key.startswith(breaking)] == []


def _read(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read(UNITS / name)
    return unit
