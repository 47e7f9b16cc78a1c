"""Jobs: a command's end is the end of all its processes, its output is bounded, its limits hold."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio

from sid_actors.jobs import containment, procfs
from sid_actors.jobs.job import JobHandle, JobLimits, JobStartError
from sid_actors.jobs.marks import JOB_VARIABLE
from sid_actors.jobs.process import run_job
from tests.actors.job_cases import BOXES, alive_in, make_sandbox, make_spec, need_sandbox
from tests.conftest import Spawn

pytestmark = pytest.mark.usefixtures("real_process")
both = pytest.mark.parametrize("box", BOXES)

# Each prints "up" when the tree stands.
TREES = {
    "child": "sleep 600 & echo up; sleep 600",
    "deep": "sh -c 'sh -c \"sleep 600 & echo up; wait\" & wait' & wait",
    "setsid": "setsid sleep 600 & echo up; sleep 600",
    "double fork": "(setsid sh -c 'sleep 600 & sleep 601' &); echo up; sleep 600",
    "scrubbed": "(env -i setsid sleep 600 &); echo up; sleep 600",
    "disguised": "(prlimit --locks=5:5 env -i setsid sh -c 'sleep 600 & sleep 601' &); sleep 0.2; echo up; sleep 600",
    "under a false name": "(SID_JOB=sid-1.0 prlimit --locks=7:7 setsid sleep 600 &); sleep 0.2; echo up; sleep 600",
    "deaf": "trap '' TERM HUP INT; sleep 600 & echo up; while :; do sleep 600; done",
    "stopped": "sleep 600 & kill -STOP $!; echo up; kill -STOP $$",
    "racing": "echo 'setsid sh ./race & exit' > race; sh ./race & echo up; sleep 600",
}


@pytest.fixture(autouse=True)
def nothing_left(short_dir: Path) -> Iterator[None]:
    """No test here leaves a process alive, a zombie or a descriptor."""
    children, descriptors = procfs.children_of(os.getpid()), psutil.Process().num_fds()
    yield
    assert alive_in(short_dir) == []
    assert procfs.children_of(os.getpid()) == children
    assert psutil.Process().num_fds() == descriptors


@both
@pytest.mark.parametrize(
    ("command", "exit_code", "number"),
    [
        ("echo out; echo err >&2", 0, None),
        ("exit 3", 3, None),
        ("kill -9 $$", None, 9),
        ("no-such", 127, None),
    ],
)
async def test_how_a_job_ended(
    short_dir: Path, box: str, command: str, exit_code: int | None, number: int | None
) -> None:
    done = await run_job(make_spec(short_dir, command, box=box))

    assert (done.exit_code, done.signal, done.timed_out) == (exit_code, number, False)
    if exit_code == 0:
        assert (done.stdout.text(), done.stderr.text()) == ("out\n", "err\n")
    assert done.wall_s > 0


@both
async def test_cpu_time_of_what_it_started_is_counted(short_dir: Path, box: str) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    done = await run_job(make_spec(short_dir, f"python3 -c '{burn}'; exit 0", box=box))

    assert done.exit_code == 0
    assert done.cpu_s >= 0.3


@both
async def test_its_environment_is_what_was_said_and_no_descriptor_is_inherited(
    short_dir: Path, box: str
) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    env = {"PATH": "/usr/bin:/bin", "SAID": "so"}
    done = await run_job(make_spec(short_dir, "env; ls /proc/$$/fd", box=box, env=env))
    os.close(read)
    os.close(write)

    lines = done.stdout.text().splitlines()
    assert [line for line in lines if line.isdecimal()] == ["0", "1", "2"]
    own = {"PWD"} if box == "sandboxed" else {JOB_VARIABLE, "PWD"}  # the shell under test adds PWD
    assert {line.partition("=")[0] for line in lines if "=" in line} == {"PATH", "SAID"} | own


@both
async def test_stdin_arrives_whole_or_is_ignored_without_harm(short_dir: Path, box: str) -> None:
    much = b"x" * 3_000_000

    read = await run_job(make_spec(short_dir, "wc -c", box=box, stdin=much))
    ignored = await run_job(make_spec(short_dir, "exec <&-; echo done", box=box, stdin=much))
    unread = await run_job(make_spec(short_dir, "sleep 600", box=box, stdin=much, deadline_s=0.2))

    assert read.stdout.text().strip() == "3000000"
    assert (ignored.exit_code, ignored.stdout.text()) == (0, "done\n")
    assert unread.timed_out


async def test_an_empty_stdin_is_at_its_end(short_dir: Path) -> None:
    done = await run_job(make_spec(short_dir, "read -r line || echo end"))
    assert done.stdout.text() == "end\n"


async def test_endless_output_fills_neither_pipe_nor_memory(short_dir: Path) -> None:
    seen = 0

    def count(stream: str, piece: bytes) -> None:
        nonlocal seen
        seen += len(piece)

    limits = JobLimits(output_mb=2)
    command = "yes 12345678 | head -c 200000000; echo; echo 42; echo oops >&2"
    done = await run_job(make_spec(short_dir, command, limits=limits), on_output=count)

    assert done.exit_code == 0
    assert len(done.stdout.head) + len(done.stdout.tail) == 2 << 20
    assert done.stdout.total == 200_000_000 + len("\n42\n")
    assert done.stdout.last_line() == "42"
    assert seen == done.stdout.total + done.stderr.total


@both
async def test_merged_errors_stand_where_they_were_printed(short_dir: Path, box: str) -> None:
    spec = make_spec(short_dir, "echo 1; echo 2 >&2; echo 3; exec no-such", box=box, merge_stderr=True)
    done = await run_job(spec)

    assert done.stdout.text().startswith("1\n2\n3\n")
    assert "no-such" in done.stdout.text()
    assert done.stderr.text() == ""


@both
@pytest.mark.parametrize("tree", TREES)
async def test_a_cancelled_job_leaves_nobody(short_dir: Path, box: str, tree: str) -> None:
    with trio.CancelScope() as scope:
        await run_job(make_spec(short_dir, TREES[tree], box=box), on_output=lambda *_: scope.cancel())
    assert scope.cancelled_caught
    assert alive_in(short_dir) == []


async def test_orphans_that_ended_are_reaped_while_the_job_runs(short_dir: Path) -> None:
    """Each is a child of the daemon; thousands of dead ones made every look at its children slow."""
    orphans = "for i in $(seq 200); do (sh -c 'exit 0' &); done; echo up; sleep 600"
    before = procfs.children_of(os.getpid())
    up = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_job(make_spec(short_dir, orphans), on_output=lambda *_: up.set()))
        await up.wait()
        left = before
        with trio.fail_after(30):
            while len(left) != len(before) + 1:
                await trio.sleep(0.05)
                left = procfs.children_of(os.getpid())
        nursery.cancel_scope.cancel()


async def test_who_hides_from_its_job_is_found_and_others_are_spared(
    short_dir: Path, real_process: Spawn
) -> None:
    """A process of another job, and one that is none, look alike but for what this process knows of them."""
    hidden = "(prlimit --locks=5:5 env -i setsid sleep 600 &); sleep 0.2; echo up; sleep 600"
    other_up, other_ended = trio.Event(), trio.Event()

    async def other() -> None:
        spec = make_spec(short_dir, "env -i sh -c 'echo up; sleep 600'")
        await run_job(spec, on_output=lambda *_: other_up.set())
        other_ended.set()

    bystander = real_process(["sleep", "600"], cwd="/")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await other_up.wait()
        with trio.CancelScope() as scope:
            await run_job(make_spec(short_dir, hidden), on_output=lambda *_: scope.cancel())
        assert [process.name() for process in alive_in(short_dir)].count("sleep") == 1
        assert bystander.poll() is None
        assert not other_ended.is_set()
        nursery.cancel_scope.cancel()
    bystander.kill()
    bystander.wait()


@both
@pytest.mark.parametrize("grace_s", [0.0, 0.1])
async def test_a_deadline_leaves_nobody(short_dir: Path, box: str, grace_s: float) -> None:
    for number, tree in enumerate(TREES.values()):
        (short_dir / str(number)).write_text(tree)
    everything = f"for tree in {' '.join(map(str, range(len(TREES))))}; do sh ./$tree & done; wait"
    done = await run_job(make_spec(short_dir, everything, box=box, deadline_s=0.5, grace_s=grace_s))

    assert done.timed_out
    assert done.processes_killed > 0 or grace_s
    assert alive_in(short_dir) == []


@both
@pytest.mark.parametrize("end", ["deadline", "cancel"])
async def test_the_graceful_step_lets_a_job_finish(short_dir: Path, box: str, end: str) -> None:
    (short_dir / "polite").write_text(
        "import os, signal\n"
        "def leave(*_):\n    os.write(1, b'bye\\n')\n    open('left', 'w').close()\n    os._exit(7)\n"
        "signal.signal(signal.SIGTERM, leave)\nos.write(1, b'up\\n')\nsignal.pause()\n"
    )
    deadline_s = 1.5 if end == "deadline" else None
    with trio.CancelScope() as scope:
        done = await run_job(
            make_spec(short_dir, "python3", "polite", box=box, deadline_s=deadline_s, grace_s=30.0),
            on_output=lambda *_: scope.cancel() if end == "cancel" else None,
        )
        assert (done.exit_code, done.timed_out) == (7, True)
        assert done.stdout.text() == "up\nbye\n"
    assert (short_dir / "left").exists()


@both
async def test_a_stopped_job_hears_the_graceful_step(short_dir: Path, box: str) -> None:
    spec = make_spec(short_dir, "trap 'exit 5' TERM; kill -STOP $$", box=box, deadline_s=0.5, grace_s=30.0)
    assert (await run_job(spec)).exit_code == 5


@both
async def test_a_late_writer_is_dead_before_the_job_is_over(short_dir: Path, box: str) -> None:
    command = "(env -i setsid sh -c 'while :; do echo late >> late; done' &); sleep 0.1; echo main"
    done = await run_job(make_spec(short_dir, command, box=box))
    size = (short_dir / "late").stat().st_size

    assert alive_in(short_dir) == []
    assert done.exit_code == 0
    assert (short_dir / "late").stat().st_size == size


async def test_a_pipe_held_by_a_stranger_does_not_hold_the_job(short_dir: Path) -> None:
    held: list[int] = []

    def hold(handle: JobHandle) -> None:
        held.append(os.open(f"/proc/{handle.pid}/fd/1", os.O_WRONLY))
        (short_dir / "held").touch()

    command = "while [ ! -e held ]; do sleep 0.01; done; echo all of it"
    done = await run_job(make_spec(short_dir, command), on_start=hold)
    os.close(held[0])

    assert done.stdout.text() == "all of it\n"


@both
async def test_cancelled_at_any_moment_of_its_start(short_dir: Path, box: str) -> None:
    for after_ms in range(0, 16, 2):
        with trio.move_on_after(after_ms / 1000):
            await run_job(make_spec(short_dir, "setsid sleep 600 & sleep 600", box=box))
        assert alive_in(short_dir) == []


@both
async def test_many_jobs_at_once_end_each_their_own_tree(short_dir: Path, box: str) -> None:
    codes: dict[int, int | None] = {}

    async def one(number: int) -> None:
        command = f"(env -i setsid sleep 600 &); sleep 0.1; exit {number}"
        codes[number] = (await run_job(make_spec(short_dir, command, box=box))).exit_code

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(one, number)
    assert codes == {number: number for number in range(8)}


async def test_what_cannot_start_says_why(short_dir: Path) -> None:
    with pytest.raises(JobStartError, match="missing"):
        await run_job(make_spec(short_dir, "true", cwd=str(short_dir / "missing")))
    with pytest.raises(JobStartError, match="null byte"):
        await run_job(make_spec(short_dir, "echo \0"))
    need_sandbox()
    with pytest.raises(JobStartError, match="missing"):
        sandbox = make_sandbox(short_dir, workdir=str(short_dir / "missing"))
        await run_job(make_spec(short_dir, "true", sandbox=sandbox))


@both
async def test_a_process_that_cannot_be_watched_is_not_left(
    short_dir: Path, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(short_dir, "true", box=box)

    def is_full(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", is_full)
        with pytest.raises(JobStartError, match="Too many open files") as caught:
            await run_job(spec)
    assert "ulimit -n" in caught.value.hint


async def test_a_failing_listener_ends_the_job_and_is_heard(short_dir: Path) -> None:
    def fail(stream: str, piece: bytes) -> None:
        raise RuntimeError("listener")

    with pytest.raises(RuntimeError, match="listener"):
        await run_job(make_spec(short_dir, "echo up; sleep 600"), on_output=fail)


@both
async def test_limits_hold(short_dir: Path, box: str) -> None:
    limits = JobLimits(file_mb=1, open_files=50, memory_mb=200)
    big_file = await run_job(make_spec(short_dir, "head -c 2000000 /dev/zero > big", box=box, limits=limits))
    shown = await run_job(make_spec(short_dir, "ulimit -n; ulimit -c", box=box, limits=limits))
    memory = make_spec(short_dir, "python3", "-c", "bytes(10**9)", box=box, limits=limits)

    assert big_file.exit_code == 128 + signal.SIGXFSZ or big_file.signal == signal.SIGXFSZ
    assert (short_dir / "big").stat().st_size == 1 << 20
    assert shown.stdout.text().split() == ["50", "0"]
    assert "MemoryError" in (await run_job(memory)).stderr.text()


async def test_a_sandbox_counts_its_own_processes(short_dir: Path) -> None:
    spec = make_spec(
        short_dir, "grep processes /proc/self/limits", box="sandboxed", limits=JobLimits(processes=77)
    )
    assert (await run_job(spec)).stdout.text().split()[2] == "77"
    assert resource.getrlimit(resource.RLIMIT_NPROC)[0] != 77


@both
async def test_a_snapshot_shows_what_the_processes_wait_for(short_dir: Path, box: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    # The kernel counts in hundredths of a second, which a quick machine's start of Python does not take.
    busy = "all(time.process_time() < 0.05 for _ in iter(int, 1))"
    connect = f"s = socket.create_connection(('127.0.0.1', {port})); print('up', flush=True); s.recv(1)"
    code = f"import socket, time; {busy}; {connect}"
    sandbox = make_sandbox(short_dir, network=True) if box == "sandboxed" else None
    spec = make_spec(short_dir, f'python3 -c "{code}"; exit 0', box=box, sandbox=sandbox)
    handles: list[JobHandle] = []
    shots: list[procfs.ProcessSnapshot] = []
    with trio.CancelScope() as scope:

        def look(stream: str, piece: bytes) -> None:
            shots.append(handles[0].snapshot())
            scope.cancel()

        await run_job(spec, on_output=look, on_start=handles.append)
    listener.close()

    (client,) = [info for info in shots[0].processes if info.sockets]
    assert "create_connection" in client.command
    assert client.cpu_s > 0
    assert (client.sockets[0].remote, client.sockets[0].state) == (f"127.0.0.1:{port}", "ESTABLISHED")
    assert {info.pid for info in shots[0].processes} >= {client.pid, client.parent, handles[0].pid}
    assert handles[0].snapshot().processes == ()


DAEMON = """
import sys, trio
from sid_actors.jobs import process
from tests.actors.job_cases import make_spec
from pathlib import Path
process._set_up = process._SetUp(sys.argv[3])
async def main():
    async with trio.open_nursery() as nursery:
        for _ in range(int(sys.argv[4])):
            script = "setsid sleep 600 & (setsid sleep 600 &); echo there; sleep 600"
            spec = make_spec(Path(sys.argv[1]), script, box=sys.argv[2])
            told = {sys.argv[5]: lambda *_: print("up", flush=True)}
            nursery.start_soon(lambda spec: process.run_job(spec, **told), spec)
trio.run(main)
"""


def killed_daemon(
    spawn: Spawn, folder: Path, box: str, jobs: int, prefix: str, moment: str = "on_start"
) -> list[psutil.Process]:
    """A daemon that is killed when its first job is let go, or has children (`on_output`); who was alive then."""
    root = Path(__file__).parent.parent.parent
    daemon = spawn(
        [sys.executable, "-c", DAEMON, str(folder), box, prefix, str(jobs), moment],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join([str(root), *sys.path])},
        stdout=subprocess.PIPE,
    )
    assert daemon.stdout
    assert daemon.stdout.readline() == b"up\n"
    before = alive_in(folder)
    daemon.kill()
    daemon.wait()
    return before


def test_a_killed_daemon_takes_its_sandboxes_along(short_dir: Path, real_process: Spawn) -> None:
    need_sandbox()
    prefix = f"sid-test-{short_dir.name}"
    before = killed_daemon(real_process, short_dir, "sandboxed", 24, prefix)

    jobs = [process for process in [*before, *alive_in(short_dir)] if name_of(process) not in {"bwrap", ""}]
    assert psutil.wait_procs(jobs, timeout=20)[1] == []
    # A sandbox whose set-up was cut short may be left, with nothing in it; the next start finds it by its mark.
    containment.sweep_leftovers(prefix)
    assert alive_in(short_dir) == []


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def test_what_a_killed_daemon_left_is_swept_by_its_name(short_dir: Path, real_process: Spawn) -> None:
    prefix = f"sid-test-{short_dir.name}"
    killed_daemon(real_process, short_dir, "plain", 3, prefix, "on_output")
    assert containment.sweep_leftovers(f"{prefix}-other") == []

    swept = containment.sweep_leftovers(prefix)

    assert len(swept) >= 2
    assert alive_in(short_dir) == []
    with pytest.raises(ValueError, match="prefix"):
        containment.sweep_leftovers("")


@pytest.mark.slow
async def test_a_sandbox_outlives_the_idle_time_of_a_worker_thread(short_dir: Path) -> None:
    done = await run_job(make_spec(short_dir, "sleep 12; echo alive", box="sandboxed"))
    assert done.stdout.text() == "alive\n"
