"""The blocking client and starting a daemon: deadlines, broken peers, readiness, races."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sid_cli import fast_wire
from sid_cli.client import Client, error_of
from sid_cli.fast_wire import Wire
from sid_cli.spawn import start_daemon
from sid_cli.stream import Record, notice_of
from sid_protocol.errors import NoDaemon, Refused, SettingsInvalid, SidError, WireError
from sid_protocol.jsonrpc import ErrorObject, encode_error
from tests.cli.fake_daemon import NOBODY, run_row


def test_replies_of_any_size_and_records_before_the_reply(daemon):
    daemon.answers["run.diff"] = {"diff": "x" * 5_000_000, "base": "b", "head": "h", "stat": ""}
    daemon.push("one", run_id="r")
    seen: list[object] = []
    with Client(str(daemon.path)) as client:
        assert len(client.call("run.diff", {"run": "abcd"})["diff"]) == 5_000_000
        client.call(
            "log.subscribe",
            {"follow": False},
            each=lambda message: seen.append(notice_of(message)),
        )
        assert client.call("daemon.info")["pid"] == NOBODY
    assert [notice.record["event"] for notice in seen if isinstance(notice, Record)] == ["one"]


def test_an_error_becomes_the_class_that_it_was():
    error = error_of(
        ErrorObject(-32005, "setting a.b: is bad", {"key": "a.b", "why": "is bad", "hint": "try 3"})
    )
    assert isinstance(error, SettingsInvalid)
    assert (error.key, str(error)) == ("a.b", "setting a.b: is bad; try 3")
    assert type(error_of(ErrorObject(-32603, "a fault", "junk"))) is SidError


def test_a_daemon_that_does_not_answer_is_given_up_on(short_dir: Path):
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(short_dir / "s"))
        mute.listen()
        with Client(str(short_dir / "s")) as client, pytest.raises(WireError, match="did not answer in time"):
            client.call("daemon.info", timeout_s=0.05)


@pytest.mark.parametrize("how", ["other verbs", "status"])
def test_a_daemon_with_too_many_before_the_door_is_there(short_dir: Path, how):
    path = str(short_dir / "s")
    with contextlib.ExitStack() as stack:
        mute = stack.enter_context(socket.socket(socket.AF_UNIX))
        mute.bind(path)
        mute.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        with pytest.raises(WireError, match="did not answer in time"):
            Client(path) if how == "other verbs" else Wire(path)


def test_status_gives_up_on_a_daemon_that_does_not_answer(short_dir: Path, monkeypatch):
    monkeypatch.setattr(fast_wire, "_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(short_dir / "s"))
        mute.listen()
        with Wire(str(short_dir / "s")) as wire, pytest.raises(WireError, match="did not answer in time"):
            wire.call([("daemon.info", {})])


@pytest.mark.parametrize("how", ["other verbs", "status"])
def test_why_a_daemon_closed_is_read_though_it_closed_first(short_dir: Path, how):
    path = str(short_dir / "s")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        caller: Any = Client(path) if how == "other verbs" else Wire(path)
        with caller, pytest.raises(SidError, match="too many clients"):
            connection, _ = door.accept()
            with connection:
                connection.sendall(encode_error(None, -32000, "too many clients (2)"))
            caller.call("daemon.info") if how == "other verbs" else caller.call([("daemon.info", {})])


def test_a_daemon_that_dies_in_mid_call_is_told(daemon):
    def die(_params):
        daemon._run(daemon.stop)
        return Refused("too late") if daemon.stopping.wait(10) else None

    daemon.answers["run.init"] = die
    with Client(str(daemon.path)) as client, pytest.raises(WireError, match="lost the daemon"):
        client.call("run.init", {"repo": "/x"}, timeout_s=None)


@pytest.mark.parametrize("what", ["missing", "file", "under a file"])
def test_no_daemon(short_dir: Path, what):
    path = {"missing": short_dir / "no/s", "file": short_dir / "f", "under a file": short_dir / "f/s"}[what]
    (short_dir / "f").write_text("")
    with pytest.raises(NoDaemon, match="no daemon at"):
        Client(str(path))


@pytest.fixture
def started(short_dir: Path, monkeypatch):
    """Kills the daemons that a test has started, by the ids that they have."""
    from sid_cli import spawn

    before = len(spawn._children)
    yield
    for process in spawn._children[before:]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_started_daemon_answers_when_the_call_returns(installed: Path, short_dir: Path, started):
    process = start_daemon(short_dir / "state", command=[str(installed / "sid")])

    with Client(os.environ["SID_SOCKET"]) as client:
        assert client.call("daemon.info")["pid"] == NOBODY
        client.call("daemon.shutdown")
    assert process.wait(10) == 0
    assert (short_dir / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fault": "another daemon is there; stop it"}, "another daemon is there; stop it"),
        ({"crash": "no disk"}, "no disk"),
    ],
)
def test_a_daemon_that_does_not_come_up_says_why(
    installed: Path, short_dir: Path, monkeypatch, started, given, told
):
    monkeypatch.setenv("FAKE_SID", json.dumps(given))
    with pytest.raises(SidError, match=told) as caught:
        start_daemon(short_dir / "state", command=[str(installed / "sid")])
    assert str(short_dir / "state") in caught.value.hint


def test_a_state_directory_that_cannot_be_made_is_told(short_dir: Path):
    (short_dir / "file").touch()
    for name in ("file", "file/below"):
        with pytest.raises(SidError, match="cannot be used: ") as caught:
            start_daemon(short_dir / name, command=["true"])
        assert "SID_STATE_DIR" in caught.value.hint


def test_a_daemon_of_ones_own_ends_with_an_interrupted_start(short_dir: Path):
    left = short_dir / "pid"
    waits = "grep -q '^State:.S' /proc/$PPID/status"  # for the line that a daemon says once it is up
    script = f"echo $$ > {left}; until {waits}; do :; done; kill -INT $PPID; exec sleep 1000"
    with pytest.raises(KeyboardInterrupt):
        start_daemon(short_dir / "state", command=["sh", "-c", script, "sid"], own=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(left.read_text()), 0)


def test_a_daemon_that_is_not_installed(short_dir: Path):
    with pytest.raises(SidError, match="cannot start the daemon"):
        start_daemon(short_dir / "state", command=[str(short_dir / "sid")])


def sictl(installed: Path, *args: str, **given) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "FAKE_SID": json.dumps(given)}
    return subprocess.run(
        [installed / "sictl", *args], capture_output=True, text=True, check=False, env=environ
    )


def test_a_verb_that_may_start_a_daemon_starts_the_sid_beside_it(installed: Path):
    done = sictl(installed, "history", "r7f3", rows=[run_row()])
    assert (done.returncode, done.stdout, done.stderr) == (0, "no round has ended yet\n", "")
    assert sictl(installed, "status", "--json").returncode == 0
    assert sictl(installed, "daemon", "shutdown").stdout == "the daemon has shut down\n"


@pytest.mark.parametrize("verb", ["status", "stop", "cancel", "pause", "resume", "attach", "daemon"])
def test_the_others_do_not(installed: Path, verb):
    done = sictl(installed, verb, *(["status"] if verb == "daemon" else []))
    assert done.returncode == 3
    assert not Path(os.environ["SID_SOCKET"]).exists()


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_nothing_is_started_where_that_is_forbidden(installed: Path, monkeypatch, way):
    if way == "variable":
        monkeypatch.setenv("SID_NO_SPAWN", "1")
    done = sictl(installed, "history", *(["--no-spawn"] if way == "flag" else []))
    assert done.returncode == 3


def test_why_the_daemon_did_not_come_up_is_one_line(installed: Path):
    done = sictl(installed, "history", "--json", fault="the state directory is not ours")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["message"] == "the state directory is not ours"
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("code", "error"), [(1, "failed"), (2, "settings_invalid"), (5, "refused")])
def test_a_daemon_that_did_not_come_up_leaves_its_exit_code(installed: Path, code: int, error: str):
    done = sictl(installed, "history", "--json", fault="why; what to do", code=code)
    assert done.returncode == code
    assert json.loads(done.stdout)["error"]["code"] == error


def test_an_unexpected_error_is_one_line_with_an_id(daemon, installed: Path, monkeypatch):
    # A reply that the method table does not know, which only a faulty daemon sends.
    monkeypatch.setattr(type(daemon), "_result", lambda _self, _request: {"rows": []})
    done, again = (sictl(installed, "pause", "--json") for _ in range(2))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "unexpected error" in done.stderr
    assert "SID_DEBUG=1" in done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "failed"
    assert done.stderr == again.stderr
    monkeypatch.setenv("SID_DEBUG", "1")
    assert "Traceback" in sictl(installed, "pause").stderr
