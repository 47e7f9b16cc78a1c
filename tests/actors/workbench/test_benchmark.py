"""The bench: one clean checkout of exactly one tree, whatever ran there before and whatever it prints."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
import trio
import trio.testing

from sid_actors.workbench.base import Company
from sid_actors.workbench.machine import MachineLock, lock_path
from sid_actors.workbench.sandbox.probe import probe_bwrap
from sid_protocol.errors import BenchmarkError, SettingsInvalid
from tests.actors.workbench.conftest import OpenBay, settings_of
from tests.conftest import MakeRepo

FILES = {
    ".gitignore": "*.log\nout/\n",
    "app.py": "COST = 10\n",
    "bench.py": "from app import COST\nprint(COST)\n",
    "data/in.txt": "7\n",
    "tool.sh": "#!/bin/sh\necho 5\n",
}


@pytest.fixture(params=["plain", "sandbox"])
async def sandboxed(request: pytest.FixtureRequest) -> bool:
    if request.param == "sandbox" and (why := await probe_bwrap()):
        pytest.skip(why)
    return request.param == "sandbox"


PRINTS = {
    "junk after the number": ("echo 3; echo done", "benchmark_parse_error"),
    "nothing": ("true", "benchmark_parse_error"),
    "blank lines": ("echo; echo '  '", "benchmark_parse_error"),
    "NaN": ("echo nan", "benchmark_parse_error"),
    "binary": ("head -c 100000 /dev/urandom", "benchmark_parse_error"),
    "a huge line of digits": ("head -c 9000000 /dev/zero | tr '\\0' 1", "benchmark_parse_error"),
    "an exit code": ("echo 3; echo 'no such thing' >&2; exit 4", "logic_error"),
    "a signal": ("echo 3; kill -TERM $$", "logic_error"),
    "no memory": ("echo 'MemoryError' >&2; exit 1", "oom"),
    "an unknown command": ("nothing-like-it", "logic_error"),
}


async def test_whatever_is_no_score_is_a_named_failure(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    async with open_bay(repo(FILES), sandboxed=sandboxed) as bay:
        for name, (command, category) in PRINTS.items():
            settings = settings_of(benchmark_command=command, limits={"output_mb": 1})
            run = await bay.bench.measure(bay.base, 1, settings)
            assert (name, run.score, run.status, run.category) == (name, None, "error", category)
            assert run.why
            assert "\n" not in run.why
            assert len(run.raw) < 20_000
        assert (
            "no such thing"
            in (
                await bay.bench.measure(bay.base, 1, settings_of(benchmark_command=PRINTS["an exit code"][0]))
            ).why
        )


async def test_200_mb_of_output_neither_block_nor_hide_the_score(repo: MakeRepo, open_bay: OpenBay) -> None:
    command = "head -c 200000000 /dev/zero | tr '\\0' 'x'; echo; echo 3.5"
    async with open_bay(repo(FILES)) as bay:
        run = await bay.bench.measure(bay.base, 1, settings_of(benchmark_command=command))
    assert run.score == 3.5
    assert "cut" in run.raw
    assert len(run.raw) < 20_000


async def test_past_its_deadline_it_is_ended_with_all_it_started(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    command = "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo 3; sleep 60"
    settings = settings_of(
        benchmark_command=command, guard_command=["sleep 60"], deadlines={"benchmark": 0.4, "guard": 0.4}
    )
    async with open_bay(made, sandboxed=sandboxed) as bay:
        run = await bay.bench.measure(bay.base, 1, settings)
        guard = await bay.bench.check(bay.base, "sleep 60", 1, settings)
        after = await bay.bench.measure(bay.base, 1, bay.settings)
    assert (run.score, run.status, run.category) == (None, "timeout", "timeout")
    assert (guard.passed, guard.timed_out) == (False, True)
    assert after.score == 10.0
    assert processes_in(made.path) == []


def processes_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(process.name)
    return found


MESS = """
echo 99 > app.py; echo x > new.txt; echo x > debug.log; mkdir -p out/deep "sp ace"; echo x > out/deep/y
git init -q inner 2>/dev/null; echo x > inner/z; chmod 400 bench.py; chmod 700 tool.sh; rm data/in.txt
ln -s /etc/passwd data/in.txt; mkdir __pycache__; echo x > __pycache__/app.pyc; touch -d 2001-01-01 tool.sh
mkdir locked; echo x > locked/f; chmod 0 locked; chmod 711 data; echo 1
"""


async def test_nothing_of_a_run_is_there_in_the_next(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    listing = settings_of(benchmark_command="find . -printf '%p %y %m %l\\n' | sort; echo 1")
    async with open_bay(made, sandboxed=sandboxed) as bay:
        fresh = await bay.bench.measure(bay.base, 1, listing)
        assert (await bay.bench.measure(bay.base, 1, settings_of(benchmark_command=MESS))).score == 1.0
        again = await bay.bench.measure(bay.base, 1, listing)
        assert again.raw == fresh.raw
        assert (await bay.bench.measure(bay.base, 1, bay.settings)).score == 10.0
        changed = await bay.attempt(lambda top: (top / "data/in.txt").unlink())
        assert changed.commit
        other = await bay.bench.measure(changed.commit, 1, listing)
        assert "data" not in other.raw


async def test_every_arm_sees_the_same_path_and_environment(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    show = settings_of(benchmark_command="pwd; env | sort; git rev-parse --show-toplevel 2>&1; echo 1")
    async with open_bay(repo(FILES), sandboxed=sandboxed) as bay:
        candidate = await bay.attempt(lambda top: (top / "app.py").write_text("COST = 2\n"))
        assert candidate.commit
        first = await bay.bench.measure(bay.base, 3, show)
        second = await bay.bench.measure(candidate.commit, 3, show)
    lines = [line for line in first.raw.splitlines() if not line.startswith("SID_JOB=")]
    assert lines == [line for line in second.raw.splitlines() if not line.startswith("SID_JOB=")]
    assert "SID_ITERATION=3" in lines
    assert "SECRET_TOKEN" not in first.raw
    assert "not a git repository" in first.raw


async def test_sealed_files_come_from_the_trusted_commit(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES), sealed_files=["data/"]) as bay:

        def cheat(top: Path) -> None:
            (top / "bench.py").write_text("print(0)\n")
            (top / "data/in.txt").write_text("0\n")
            (top / "data/more.txt").write_text("0\n")
            (top / "sitecustomize.py").write_text("print(0)\n")
            (top / "app.py").write_text("COST = 4\n")

        found = await bay.attempt(cheat)
        assert found.commit
        look = settings_of(benchmark_command="cat data/*; ls; python3 bench.py", sealed_files=["data/"])
        run = await bay.bench.measure(found.commit, 1, look)
    assert run.score == 4.0
    assert run.raw.split() == ["7", "app.py", "bench.py", "data", "tool.sh", "4"]


async def test_a_benchmark_writes_nowhere_else_and_reaches_no_network(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    if why := await probe_bwrap():
        pytest.skip(why)
    made = repo(FILES)
    listener = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener[0].socket.getsockname()[1]
    command = (
        f"echo x > {made.path}/app.py; echo x > ~/left; cat {made.path}/.git/config; "
        f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))' || echo 1"
    )
    async with open_bay(made, sandboxed=True) as bay:
        run = await bay.bench.measure(bay.base, 1, settings_of(benchmark_command=command))
        let = settings_of(benchmark_command=command, benchmark_network=True)
        reached = await bay.bench.measure(bay.base, 1, let)
    await listener[0].aclose()
    assert run.score == 1.0
    assert reached.score is None, "with `benchmark_network` it gets through, and prints nothing"
    assert "[core]" not in run.raw
    assert (made.path / "app.py").read_text() == FILES["app.py"]
    assert not (Path.home() / "left").exists()


async def test_shared_paths_stand_at_the_same_place(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    made.write({"out/model.bin": "42\n", "cache/x": "1\n"})
    settings = settings_of(
        benchmark_command="echo 2 >> cache/x; echo 3 >> out/model.bin; cat out/model.bin",
        share_paths=["out"],
        benchmark_paths=["cache:rw", "not/there"],
    )
    async with open_bay(made, sandboxed=sandboxed) as bay:
        run = await bay.bench.measure(bay.base, 1, settings)
        with pytest.raises(BenchmarkError, match="leads out"):
            await bay.bench.measure(bay.base, 1, settings_of(share_paths=["../x"]))
    assert (made.path / "cache/x").read_text() == "1\n2\n"
    if sandboxed:
        assert run.score == 42.0
        assert (made.path / "out/model.bin").read_text() == "42\n"


async def test_guards_keep_the_end_of_what_they_print(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES)) as bay:
        command = "seq 5000; echo red >&2; exit 1"
        guard = await bay.bench.check(bay.base, command, 1, bay.settings)
    assert (guard.passed, guard.timed_out, len(guard.output)) == (False, False, 4000)
    assert guard.output.endswith("5000\nred")


async def test_the_hold_out_is_measured_likewise(repo: MakeRepo, open_bay: OpenBay) -> None:
    async with open_bay(repo(FILES)) as bay:
        run = await bay.bench.holdout(bay.base, 1, settings_of(holdout_command="echo 8"))
        assert run.score == 8.0
        with pytest.raises(BenchmarkError):
            await bay.bench.holdout(bay.base, 1, bay.settings)
        with pytest.raises(SettingsInvalid):
            await bay.bench.measure(bay.base, 1, settings_of(benchmark_format="regex:("))


async def test_benchmarks_of_one_machine_never_overlap(
    repo: MakeRepo, open_bay: OpenBay, short_dir: Path
) -> None:
    trace = short_dir / "trace"
    command = f"echo in >> {trace}; sleep 0.05; echo out >> {trace}; echo 1"
    settings = settings_of(benchmark_command=command)
    path = lock_path(os.environ, "unused")
    async with open_bay(repo(FILES, name="a")) as one, open_bay(repo(FILES, name="b")) as other:
        for bay in (one, other):
            bay.bench._lock = MachineLock(path)  # as of two daemons: nothing but the file is shared
        async with trio.open_nursery() as nursery:
            for bay in (one, other, one, other):
                nursery.start_soon(bay.bench.measure, bay.base, 1, settings)
    assert trace.read_text().split() == ["in", "out"] * 4


async def overlaps(*turns: contextlib.AbstractAsyncContextManager[None]) -> int:
    """Take turns at once, each long enough for others to come in, and return how many were in at most."""
    inside, most = 0, 0
    together = trio.Event()

    async def take(turn: contextlib.AbstractAsyncContextManager[None]) -> None:
        nonlocal inside, most
        async with turn:
            inside += 1
            most = max(most, inside)
            if inside == len(turns):
                together.set()
            with trio.move_on_after(0.3):
                await together.wait()
            inside -= 1

    async with trio.open_nursery() as nursery:
        for turn in turns:
            nursery.start_soon(take, turn)
    return most


async def test_so_many_share_the_machine_and_no_more(short_dir: Path) -> None:
    one, other = (MachineLock(str(short_dir / "lock")) for _ in range(2))  # as of two daemons
    assert await overlaps(one.shared(2), one.shared(2)) == 2
    assert await overlaps(one.shared(2), other.shared(2)) == 2
    assert await overlaps(one.shared(2), one.shared(2), one.shared(2)) == 2
    assert await overlaps(one.shared(2), other.shared(2), other.shared(2)) == 2


async def test_who_wants_to_be_alone_is_alone_beside_those_who_share(short_dir: Path) -> None:
    one, other = (MachineLock(str(short_dir / "lock")) for _ in range(2))
    for turns in ((one.shared(2), one.held()), (one.shared(2), other.held()), (one.held(), other.shared(2))):
        assert await overlaps(*turns) == 1


async def test_a_stream_of_shared_turns_keeps_nobody_out_who_wants_to_be_alone(short_dir: Path) -> None:
    one, other = (MachineLock(str(short_dir / "lock")) for _ in range(2))
    asked, alone = trio.Event(), trio.Event()
    order: list[str] = []

    async def be_alone() -> None:
        asked.set()
        async with other.held():
            order.append("alone")
            alone.set()

    async with trio.open_nursery() as nursery:
        async with one.shared(2):
            nursery.start_soon(be_alone)
            await asked.wait()
            await trio.testing.wait_all_tasks_blocked(0.2)  # it waits in the kernel by now
            nursery.start_soon(_note, one.shared(2), order)
            await trio.testing.wait_all_tasks_blocked(0.2)
            assert order == []
        await alone.wait()
    assert order == ["alone", "shared"]


async def _note(turn: contextlib.AbstractAsyncContextManager[None], order: list[str]) -> None:
    async with turn:
        order.append("shared")


async def test_runs_that_share_see_the_same_path_and_have_a_checkout_each(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    made.write({"met/x": ""})
    # Each waits until both have begun; what one writes the other does not see.
    patience = 400 if sandboxed else 4
    command = (
        "pwd; ls; touch mine; mkdir met/$(cat /proc/sys/kernel/random/uuid); i=0; "
        f"while [ $(ls met | wc -l) -lt 3 ] && [ $i -lt {patience} ]; do sleep 0.05; i=$((i + 1)); done; ls met | wc -l"
    )
    settings = settings_of(benchmark_command=command, benchmark_paths=["met:rw"])
    runs = []
    async with open_bay(made, sandboxed=sandboxed) as bay:

        async def measure() -> None:
            runs.append(await bay.bench.measure(bay.base, 1, settings, Company(slots=2)))

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(measure)
    first, second = ([line for line in run.raw.splitlines()[:-1] if line != "met"] for run in runs)
    assert first == second
    # Without a sandbox only one can be at the path, so they take turns all the same.
    assert sorted(run.score or 0 for run in runs) == ([3.0, 3.0] if sandboxed else [2.0, 3.0])


async def test_a_wait_for_the_machine_can_be_cancelled_and_gives_the_lock_back(short_dir: Path) -> None:
    path = str(short_dir / "lock/sid-bench.lock")
    async with MachineLock(path).held():
        waiting = MachineLock(path)
        with trio.move_on_after(0.05) as scope:
            async with waiting.held():
                pytest.fail("two at once")
        assert scope.cancelled_caught
    with trio.fail_after(5):
        async with MachineLock(path).held():
            pass
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700


async def test_a_cancelled_run_leaves_nothing_and_the_next_is_clean(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    started = made.path / "cache/started"
    made.write({"cache/x": ""})
    command = "echo 99 > app.py; touch cache/started; setsid sleep 60 & sleep 60"
    settings = settings_of(benchmark_command=command, benchmark_paths=["cache:rw"])
    async with open_bay(made, sandboxed=sandboxed) as bay:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bay.bench.measure, bay.base, 1, settings)
            with trio.fail_after(30):
                while not await trio.to_thread.run_sync(started.exists):  # noqa: ASYNC110 - another process makes it
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert processes_in(made.path) == []
        assert (await bay.bench.measure(bay.base, 1, bay.settings)).score == 10.0
