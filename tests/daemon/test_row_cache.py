"""Rows of runs that rest: what of them is remembered."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio

from sid_actors.workbench.machine import MachineLock
from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.log.logs import Logs
from sid_daemon.redaction import Redactor
from sid_daemon.rpc.row_cache import RowCache
from sid_daemon.runs.charts import Charts
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import RunStore
from sid_daemon.store.registry import KnownRun, Registry
from sid_daemon.store.views import project
from sid_protocol.errors import NoSuchRun
from sid_protocol.settings import Settings
from tests.core.play import created


class Machine:
    """What is known of a machine: nothing bad, until somebody has looked."""

    fault = ""

    def sandbox(self, _state: RunState) -> str:
        return self.fault

    def forecast(self, _state: RunState) -> None:
        return None


def never(*_asked: Any) -> Any:
    pytest.fail("nothing was to be started")


async def test_what_was_told_before_the_machine_was_looked_at_is_not_remembered(short_dir: Path) -> None:
    root, event = short_dir / "root", created(Settings(benchmark_command="b"))
    store = RunStore(root, short_dir / "copy.db")
    await store.open()
    state, _ = step(None, event)
    await store.commit([event], project(None, event, state), state)
    await store.close()
    written = (root / "state/run.db").stat().st_mtime_ns - 10**10
    os.utime(root / "state/run.db", ns=(written, written))
    run = KnownRun(state.run_id, str(short_dir), str(short_dir), "default", str(root), False, event.at)

    registry, logs = Registry(short_dir / "sid.db"), Logs(short_dir / "logs", Redactor())
    async with trio.open_nursery() as nursery:
        want = Charts(MachineLock(str(short_dir / "lock"))).want
        host = Host(registry, short_dir, never, want, lambda *_, **__: None, nursery, logs)
        machine = Machine()
        resting = RowCache(host, machine)
        assert (await resting.row(run)).sandbox == ""
        machine.fault = "no sandbox: bwrap is not there"
        host.recovered.set()
        assert (await resting.row(run)).sandbox == machine.fault
        machine.fault = "no sandbox any more"
        assert (await resting.row(run)).sandbox == "no sandbox: bwrap is not there", "read again"
    logs.close()
    registry.close()


async def test_a_path_means_the_run_whose_folder_it_lies_in(short_dir: Path) -> None:
    registry, logs = Registry(short_dir / "sid.db"), Logs(short_dir / "logs", Redactor())
    registry.add_run(KnownRun("r1aaaaaaaaaa", "/x", "/x/.git", "default", "/tracks/one", False, "2026"))
    async with trio.open_nursery() as nursery:
        want = Charts(MachineLock(str(short_dir / "lock"))).want
        host = Host(registry, short_dir, never, want, lambda *_, **__: None, nursery, logs)
        for inside in ("/x", "/x/src", "/tracks/one", "/tracks/one/state"):
            assert (await host.find(inside)).run_id == "r1aaaaaaaaaa"
        for beside in ("/xy", "/tracks", "/tracks/one2"):
            with pytest.raises(NoSuchRun):
                await host.find(beside)
    logs.close()
    registry.close()
