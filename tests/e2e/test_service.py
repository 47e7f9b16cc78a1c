"""The real unit under a real `systemd --user`: activation, watchdog, a stop that leaves nothing, a resume.

The user manager runs in namespaces of its own (`with-user-systemd.sh`), so the machine's own is never touched.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import HANG_S, World
from tests.repos import Repo

SCRIPT = Path(__file__).with_name("with-user-systemd.sh")
NEEDED = ("systemctl", "unshare", "nsenter", "dbus-daemon")


@functools.cache
def why_not() -> str | None:
    """Return why no user manager can be made here, in a line; None where it can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"not installed: {', '.join(missing) or 'systemd'}"
    done = subprocess.run([SCRIPT, "true"], capture_output=True, text=True, check=False, timeout=HANG_S)
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return None if done.returncode == 0 else f"no user manager here: {said[-1]}"


class ServiceWorld(World):
    """A world whose daemon is systemd's; what it starts is started beside the user manager."""

    manager: int

    @property
    def socket(self) -> Path:
        """The daemon's socket, seen from outside of the manager's namespaces."""
        return Path(f"/proc/{self.manager}/root{self.env['XDG_RUNTIME_DIR']}/sid/sid.sock")

    def spawn(self, argv: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
        """Start a process beside the manager."""
        folder = options.pop("cwd", self.base)
        enter = ["nsenter", f"--target={self.manager}", "--mount", "--pid", "--cgroup", f"--wd={folder}"]
        return super().spawn([*enter, "--", *argv], **options)

    def systemctl(self, *args: str) -> str:
        """Ask the user manager."""
        argv = ["systemctl", "--user", "--no-pager", *args]
        process = self.spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, f"systemctl {args}: {err}"
        return str(out).strip()

    def state_of(self, unit: str, key: str) -> str:
        """Return one property of a unit."""
        return self.systemctl("show", f"--property={key}", "--value", unit)

    def signal(self, name: str, pid: int) -> None:
        """Send a signal to a process by its number beside the manager."""
        self.spawn(["kill", f"-{name}", str(pid)]).wait(HANG_S)

    def members(self) -> list[str]:
        """Return the ids of the processes in the service's cgroup, however deep."""
        group = self.state_of("sid.service", "ControlGroup")
        if not group:
            return []
        find = ["find", f"/sys/fs/cgroup{group}", "-name", "cgroup.procs", "-exec", "cat", "{}", "+"]
        process = self.spawn(find, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return str(process.communicate(timeout=HANG_S)[0]).split()

    def wait_for_pid_after(self, old: int) -> int:
        """Return the pid of the daemon that answers once it is another one than `old`."""
        while True:
            with self.wire() as wire:
                pid: int = wire.call("daemon.info")["pid"]
            if pid != old:
                return pid


@pytest.fixture
def service(short_dir: Path) -> Iterator[ServiceWorld]:
    """A user's machine with the service installed."""
    if reason := why_not():
        pytest.skip(reason)
    env = {name: value for name, value in os.environ.items() if name != "SID_SOCKET"}
    env["XDG_RUNTIME_DIR"] = f"/run/user/{os.getuid()}"
    env["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={env['XDG_RUNTIME_DIR']}/bus"
    script = subprocess.Popen(
        [SCRIPT, "cat"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    made = ServiceWorld(short_dir, env)
    with script:
        assert script.stdout is not None
        found = re.fullmatch(rb"ready ([0-9]+)\n", script.stdout.readline())
        assert found is not None, "the user manager did not come up"
        made.manager = int(found[1])
        try:
            made.sictl("service", "install")
            yield made
        finally:
            assert script.stdin is not None
            script.stdin.close()  # `cat` ends, and the PID namespace with it
            script.wait(HANG_S)
            left = made.end()
    assert left == [], "still running after the user manager has left"


def test_the_first_request_starts_the_daemon_and_systemd_knows_that_it_is_ready(
    service: ServiceWorld,
) -> None:
    assert service.state_of("sid.socket", "ActiveState") == "active"
    assert service.state_of("sid.service", "ActiveState") == "inactive"
    assert service.socket.stat().st_mode & 0o777 == 0o600
    assert service.socket.parent.stat().st_mode & 0o777 == 0o700
    with service.wire() as wire:
        pid = wire.call("daemon.info")["pid"]

    assert service.state_of("sid.service", "ActiveState") == "active"
    assert service.state_of("sid.service", "MainPID") == str(pid)
    assert service.state_of("sid.service", "StatusText") == "ready"
    assert service.sictl("daemon", "status", "--json").json["daemon"]["pid"] == pid
    assert "active (running)" in service.sictl("service", "status").out


def test_stopping_the_service_leaves_nothing_and_uninstalling_no_file(service: ServiceWorld) -> None:
    service.daemon_pid()
    service.systemctl("stop", "sid.service")

    assert service.state_of("sid.service", "Result") == "success"
    assert service.members() == []
    service.sictl("service", "uninstall")
    assert service.state_of("sid.socket", "LoadState") == "not-found"
    assert not service.socket.exists()
    assert service.sictl("status", code=3).code == 3


@pytest.mark.slow
def test_a_daemon_that_was_killed_is_started_again(service: ServiceWorld) -> None:
    pid = service.daemon_pid()
    service.signal("KILL", pid)

    assert service.wait_for_pid_after(pid) != pid
    assert service.state_of("sid.service", "NRestarts") == "1"


@pytest.mark.slow
def test_jobs_have_cgroups_of_their_own(service: ServiceWorld, numbers: Repo) -> None:
    agent = service.agent()
    agent.script({"role": "executor", "stderr": "here\n", "hang": True})
    service.init(numbers, agent)
    run_id = service.sictl("start", numbers.path, "--json").json["run_id"]
    with service.wire() as wire:
        wire.follow(run=run_id).until("agent_stderr", line="here")

    group = service.state_of("sid.service", "ControlGroup")
    find = ["find", f"/sys/fs/cgroup{group}", "-mindepth", "2", "-type", "d", "-printf", "%P\\n"]
    found = service.spawn(find, stdout=subprocess.PIPE, text=True)
    jobs = str(found.communicate(timeout=HANG_S)[0]).splitlines()
    assert len(jobs) == 1, jobs


@pytest.mark.slow
def test_a_stop_in_the_middle_of_a_run_leaves_nothing_and_the_next_daemon_goes_on(
    service: ServiceWorld, numbers: Repo
) -> None:
    agent = service.agent()
    agent.script(
        {
            "role": "executor",
            "round": 1,
            "turn": 1,
            "stderr": "here\n",
            "hang": True,
            "children": ["deaf", "daemon"],
        }
    )
    service.init(numbers, agent)
    run_id = service.sictl("start", numbers.path, "--rounds", "2", "--json").json["run_id"]
    with service.wire() as wire:
        wire.follow(run=run_id).until("agent_stderr", line="here")
    service.systemctl("stop", "sid.service")

    assert service.members() == []
    assert [line for line in service.jobs() if str(agent.folder) in line] == []
    with service.wire() as wire:  # the socket is still there: this starts the next daemon
        ended = wire.follow(run=run_id).until("run_ended")
    assert ended["status"] == "max_iterations"
    assert [row["status"] for row in service.rounds(numbers)] == ["merged", "merged"]


@pytest.mark.slow  # systemd waits out WatchdogSec
def test_a_daemon_that_hangs_is_restarted_and_its_run_goes_on(service: ServiceWorld, numbers: Repo) -> None:
    quick = Path(service.env["XDG_CONFIG_HOME"]) / "systemd/user/sid.service.d/watchdog.conf"
    quick.write_text("[Service]\nWatchdogSec=2\n")
    service.systemctl("daemon-reload")
    agent = service.agent()
    agent.script({"role": "executor", "round": 1, "turn": 1, "stderr": "here\n", "hang": True})
    service.init(numbers, agent)
    run_id = service.sictl("start", numbers.path, "--rounds", "1", "--json").json["run_id"]
    with service.wire() as wire:
        wire.follow(run=run_id).until("agent_stderr", line="here")
    pid = service.daemon_pid()
    service.signal("STOP", pid)

    assert service.wait_for_pid_after(pid) != pid
    assert service.state_of("sid.service", "NRestarts") == "1"
    with service.wire() as wire:
        assert wire.follow(run=run_id).until("run_ended")["status"] == "max_iterations"
