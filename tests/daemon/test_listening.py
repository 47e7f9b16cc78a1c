"""One daemon a state directory, one a socket: locks, stale sockets, activation, and who may look in."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sid_daemon.rpc import listening
from sid_daemon.rpc.listening import activated, bind
from sid_daemon.store.lock import StateLock
from sid_protocol.errors import Refused, StoreError, UsageError


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture
def lock(short_dir: Path):
    with StateLock(str(short_dir / "state")) as lock:
        yield lock


def test_a_second_daemon_of_a_state_directory_is_refused_by_pid(short_dir: Path) -> None:
    state = str(short_dir / "a" / "state")
    with StateLock(state):
        with pytest.raises(Refused, match=f"pid {os.getpid()}"):
            StateLock(state)
        with StateLock(str(short_dir / "other")):
            pass
    with StateLock(state):
        assert mode(state) == 0o700


def test_a_dead_daemons_lock_is_free(short_dir: Path) -> None:
    code = (
        "import os, signal, sys; from sid_daemon.store.lock import StateLock\n"
        "lock = StateLock(sys.argv[1]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    child = subprocess.run([sys.executable, "-c", code, str(short_dir / "state")], check=False)
    assert child.returncode == -9
    StateLock(str(short_dir / "state")).release()


def test_children_do_not_inherit_the_lock(short_dir: Path, real_process) -> None:
    with StateLock(str(short_dir / "state")):
        child = real_process(["sleep", "60"], close_fds=False)
    with StateLock(str(short_dir / "state")):
        assert child.poll() is None


def test_a_state_directory_that_cannot_be_used_is_one_clear_error(short_dir: Path) -> None:
    (short_dir / "file").touch()
    with pytest.raises(StoreError, match="cannot be used") as caught:
        StateLock(str(short_dir / "file" / "state"))
    assert "SID_STATE_DIR" in caught.value.hint


def test_socket_and_folder_are_the_owners_alone(short_dir: Path, lock: StateLock) -> None:
    old = os.umask(0)
    try:
        made = bind(str(short_dir / "new" / "sid.sock"), lock)
    finally:
        os.umask(old)
    assert (mode(made.path), mode(short_dir / "new")) == (0o600, 0o700)
    made.close()
    assert not Path(made.path).exists()


def test_our_own_folder_is_closed_and_anothers_left_as_it_is(short_dir: Path, lock: StateLock) -> None:
    for name, expected in (("sid", 0o700), ("shared", 0o755)):
        (short_dir / name).mkdir()
        (short_dir / name).chmod(0o755)
        bind(str(short_dir / name / "sid.sock"), lock).close()
        assert mode(short_dir / name) == expected


def test_a_stale_socket_is_replaced(short_dir: Path, lock: StateLock) -> None:
    path = str(short_dir / "sid.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    made = bind(path, lock)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    made.close()


@pytest.mark.parametrize("backlog", [5, 0], ids=["answers", "busy"])
def test_a_living_daemons_socket_is_left_alone(short_dir: Path, lock: StateLock, backlog: int) -> None:
    path = str(short_dir / "sid.sock")
    with socket.socket(socket.AF_UNIX) as living, socket.socket(socket.AF_UNIX) as first:
        living.bind(path)
        living.listen(backlog)
        first.connect(path)
        with pytest.raises(Refused, match="another daemon answers"):
            bind(path, lock)
        assert Path(path).is_socket()


def test_a_file_in_the_way_is_left_alone(short_dir: Path, lock: StateLock) -> None:
    path = short_dir / "sid.sock"
    path.write_text("mine")
    with pytest.raises(Refused, match="is not a socket"):
        bind(str(path), lock)
    assert path.read_text() == "mine"


def test_what_the_kernel_does_not_take_is_one_clear_error(short_dir: Path, lock: StateLock) -> None:
    with pytest.raises(UsageError, match="at most 107"):
        bind(str(short_dir / ("x" * 120)), lock)
    (short_dir / "file").touch()
    with pytest.raises(StoreError, match="cannot listen"):
        bind(str(short_dir / "file" / "sid.sock"), lock)


def test_a_path_that_is_somebody_elses_by_now_is_not_removed(short_dir: Path, lock: StateLock) -> None:
    made = bind(str(short_dir / "sid.sock"), lock)
    Path(made.path).unlink()
    other = bind(made.path, lock)
    made.close()
    assert Path(made.path).is_socket()
    other.close()


ACTIVATED = """
import os, sys
from sid_daemon.rpc.listening import activated
got = activated(os.environ, os.getpid())
left = [n for n in os.environ if n.startswith("LISTEN_")]
print(got.path if got else None, left, os.get_inheritable(3) if got else "")
got and got.close()
"""


def run_activated(path: Path, real_process, *, count: int = 1, kind: int = socket.SOCK_STREAM) -> str:
    """As systemd does it: the socket is descriptor 3 and LISTEN_PID names the process."""
    launcher = (
        "import os, socket, sys\n"
        f"s = socket.socket(socket.AF_UNIX, {kind}); s.bind({str(path)!r})\n"
        f"s.listen() if {kind} == socket.SOCK_STREAM else None\n"
        "os.dup2(s.fileno(), 3) if s.fileno() != 3 else os.set_inheritable(3, True)\n"
        f"os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='{count}', LISTEN_FDNAMES='sid')\n"
        f"os.execv(sys.executable, [sys.executable, '-c', {ACTIVATED!r}])"
    )
    child = real_process([sys.executable, "-c", launcher], stdout=-1, stderr=-1, text=True)
    out, err = child.communicate()
    return (out or err.strip().splitlines()[-1]).strip()


def test_systemds_socket_is_taken_and_left_in_place(short_dir: Path, real_process) -> None:
    path = short_dir / "s"
    assert run_activated(path, real_process) == f"{path} [] False"
    assert path.is_socket()


def test_what_systemd_hands_over_is_checked(short_dir: Path, real_process) -> None:
    assert "handed over 2 sockets" in run_activated(short_dir / "s", real_process, count=2)
    refused = run_activated(short_dir / "t", real_process, kind=socket.SOCK_DGRAM)
    assert "something else than a listening Unix socket" in refused


def test_a_socket_for_another_process_is_not_ours() -> None:
    env = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "OTHER": "stays"}
    assert activated(env, os.getpid()) is None
    assert env == {"OTHER": "stays"}
    assert activated({}, os.getpid()) is None


def test_the_kernel_tells_who_connects(short_dir: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert listening.peer_of(ours) == listening.Peer(os.getpid(), os.geteuid(), os.getegid())
