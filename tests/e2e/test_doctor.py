"""`sictl doctor` finds what is wrong with a machine, says how to fix it, and fixes nothing."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


def doctor(**environ: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = subprocess.run(
        ["sictl", "doctor", "--json"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {check["id"]: check for check in checks}


def test_a_sound_machine_passes_without_a_daemon() -> None:
    code, checks = doctor()
    assert code == 0
    assert {"git", "python", "sandbox", "cgroup", "backends", "socket", "state", "settings", "clock"} <= set(
        checks
    )
    assert checks["git"]["verdict"] == "ok"
    assert all(check["mend"] for check in checks.values() if check["verdict"] in ("warn", "FAIL"))
    assert not Path(os.environ["SID_STATE_DIR"], "sid.lock").exists()


def test_broken_settings_fail_with_their_key(tmp_path: Path) -> None:
    broken = tmp_path / "sid.toml"
    broken.write_text("log_levl = 'info'")
    code, checks = doctor(SID_CONFIG=str(broken))
    assert code == 1
    assert checks["settings"]["verdict"] == "FAIL"
    assert "log_level" in checks["settings"]["mend"]


def test_a_socket_path_that_the_kernel_refuses_fails(tmp_path: Path) -> None:
    code, checks = doctor(SID_SOCKET=f"/{'x' * 120}/sid.sock")
    assert code == 1
    assert checks["socket"]["verdict"] == "FAIL"


@pytest.mark.parametrize("where", ["relative/state"])
def test_a_relative_state_folder_fails(where: str) -> None:
    code, checks = doctor(SID_STATE_DIR=where)
    assert (code, checks["state"]["verdict"]) == (1, "FAIL")


def test_a_machine_without_git_fails(tmp_path: Path) -> None:
    here = Path(os.environ["PATH"].split(":")[0])
    for name in ("sictl", "sid"):
        (tmp_path / name).symlink_to(here / name)
    code, checks = doctor(PATH=str(tmp_path))
    assert (code, checks["git"]["verdict"]) == (1, "FAIL")
    assert "install git" in checks["git"]["mend"]
