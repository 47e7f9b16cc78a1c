"""The log and those who follow it, over real files, descriptors and sockets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import wait_all_tasks_blocked

from sid_daemon.log import logs as logs_module
from sid_daemon.log import subscribers as subscribers_module
from sid_daemon.log.files import Line
from sid_daemon.log.logs import Logs, StandardError, configure, under_systemd
from sid_daemon.log.subscribers import Entry, Filter, read_entry
from sid_daemon.redaction import Redactor
from sid_daemon.rpc.connection import Call
from sid_protocol.params import SubscribeParams, UnsubscribeParams
from sid_protocol.status import Empty, SubscriptionResult
from tests.daemon.rpc_world import Client, World, serving


@pytest.fixture
def folder(short_dir: Path) -> Path:
    return short_dir / "state" / "logs"


@pytest.fixture(autouse=True)
def own_structlog():
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "sid.jsonl").read_text().splitlines()]


def emit(logs: Logs, event: str = "tick", **fields: Any) -> None:
    logs.emit({"timestamp": "2026-01-01T00:00:00Z", "level": "info", "event": event, **fields})


def test_a_record_has_the_promised_fields_and_no_secret(folder: Path) -> None:
    logs = Logs(folder, Redactor(["hunter2hunter2"]))
    configure(logs)
    log = structlog.get_logger()
    log.debug("not_at_this_level")
    structlog.contextvars.bind_contextvars(run_id="r1")
    log.info(
        "benchmark_finished",
        zeta=1,
        duration_s=0.5,
        candidate="executor_1",
        iteration=3,
        note="\x1b[31mhunter2hunter2",
    )
    try:
        raise ValueError("https://me:hunter2hunter2@host.invalid")
    except ValueError:
        log.exception("rpc_fault")
    logs.close()
    first, second = lines(folder)

    assert list(first) == [
        "timestamp",
        "level",
        "event",
        "run_id",
        "iteration",
        "candidate",
        "duration_s",
        "zeta",
        "note",
        "cursor",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", first["timestamp"])
    assert (first["level"], first["note"], first["cursor"]) == ("info", "\x1b[31m***", 1)
    assert (second["level"], second["cursor"]) == ("error", 2)
    assert "Traceback" in second["exception"]
    assert b"\x1b" not in (folder / "sid.jsonl").read_bytes()
    assert b"hunter2" not in (folder / "sid.jsonl").read_bytes()


def test_cursors_grow_across_restarts_even_by_force(folder: Path) -> None:
    code = (
        "import os, signal, sys, trio; from pathlib import Path\n"
        "from sid_daemon.log.logs import Logs; from sid_daemon.redaction import Redactor\n"
        "logs = Logs(Path(sys.argv[1]), Redactor())\n"
        "for _ in range(5): logs.emit({'event': 'e'})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, str(folder)], check=False).returncode == -9
    assert [record["cursor"] for record in lines(folder)] == list(range(1, 11))


async def test_a_record_from_any_thread_arrives_and_none_is_lost_at_the_end(folder: Path) -> None:
    logs = Logs(folder, Redactor())

    def emit_many() -> None:
        for _ in range(200):
            emit(logs)

    emit(logs, "before")
    async with trio.open_nursery() as nursery:
        await nursery.start(logs.run)
        threads = [threading.Thread(target=emit_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            emit(logs)
        for thread in threads:
            await trio.to_thread.run_sync(thread.join)
        emit(logs, "last")
        nursery.cancel_scope.cancel()
    emit(logs, "after")
    logs.close()
    found = lines(folder)

    assert len(found) == 1003
    assert [record["cursor"] for record in found] == list(range(1, 1004))
    assert [found[0]["event"], found[-2]["event"], found[-1]["event"]] == ["before", "last", "after"]


def test_a_record_that_is_too_long_keeps_its_leading_fields(folder: Path) -> None:
    logs = Logs(folder, Redactor())
    emit(logs, "big", run_id="r1", parts=["x" * 8000] * 100)
    logs.close()
    (record,) = lines(folder)

    assert (record["event"], record["run_id"], record["cursor"]) == ("big", "r1", 1)
    assert record["truncated_bytes"] > 700_000
    assert "parts" not in record


def test_a_broken_disk_is_told_and_stops_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(folder, Redactor())
    real = os.write
    full = True

    def write(fd: int, data: bytes) -> int:
        if full and Path(f"/proc/self/fd/{fd}").readlink().name == "sid.jsonl":
            if len(data) <= 20:
                raise OSError(28, "No space left on device")
            return real(fd, data[:20])
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    emit(logs, "lost")  # its beginning still fits, and tears the file
    emit(logs, "lost too")
    full = False
    emit(logs, "found again")
    logs.close()
    whole = [
        json.loads(line) for line in (folder / "sid.jsonl").read_bytes().splitlines() if line.endswith(b"}")
    ]

    assert [record["event"] for record in whole] == ["log_file_broken", "found again"]
    assert "No space left" in whole[0]["error"]
    assert [record["cursor"] for record in whole] == sorted(record["cursor"] for record in whole)


def test_a_folder_that_cannot_be_made_is_no_reason_to_stop(short_dir: Path) -> None:
    (short_dir / "file").touch()
    read, write = os.pipe()
    logs = Logs(short_dir / "file" / "logs", Redactor(), stderr=StandardError(write, prefixed=False))
    emit(logs)
    logs.close()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = [json.loads(line)["event"] for line in pipe]
    assert told == ["log_file_broken", "tick"]


def test_a_full_queue_is_counted_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_module, "QUEUE_BYTES", 1000)
    logs = Logs(folder, Redactor())
    monkeypatch.setattr(logs, "_wake", lambda: None)  # the disk hangs
    for _ in range(100):
        emit(logs)
    logs.flush()
    logs.close()
    found = lines(folder)

    assert found[-1]["event"] == "log_records_lost"
    assert found[-1]["count"] == 100 - (len(found) - 1)


def test_the_journal_gets_the_same_record_with_its_priority(folder: Path) -> None:
    read, write = os.pipe()
    logs = Logs(folder, Redactor(), stderr=StandardError(write, prefixed=True))
    logs.emit({"level": "warning", "event": "a"})
    logs.emit({"level": "info", "event": "b", "text": "x" * 8000})
    logs.close()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        first, second = pipe.read().splitlines()

    assert first.startswith(b"<4>{")
    assert second.startswith(b"<6>{")
    assert [json.loads(first[3:]), json.loads(second[3:])] == lines(folder)


def test_nobody_reading_standard_error_holds_up_nothing(folder: Path) -> None:
    read, write = os.pipe()
    logs = Logs(folder, Redactor(), stderr=StandardError(write, prefixed=False))
    for _ in range(300):
        emit(logs, text="x" * 1000)
    taken = os.read(read, 1 << 20).count(b"\n")
    os.close(read)
    emit(logs)
    logs.close()
    os.close(write)

    assert 0 < taken < 300
    assert len(lines(folder)) == 301


def test_systemd_is_known_by_the_stream_that_it_made(short_dir: Path) -> None:
    with (short_dir / "out").open("w") as out:
        state = os.fstat(out.fileno())
        assert under_systemd({"JOURNAL_STREAM": f"{state.st_dev}:{state.st_ino}"}, out.fileno())
        assert not under_systemd({"JOURNAL_STREAM": "1:2", "INVOCATION_ID": "x"}, out.fileno())
        assert under_systemd({"INVOCATION_ID": "x"}, out.fileno())
        assert not under_systemd({}, out.fileno())


# Followers


class Followed:
    """A served log."""

    def __init__(self, world: World, logs: Logs) -> None:
        self.world = world
        self.logs = logs
        self._news = trio.lowlevel.ParkingLot()
        self._hand_on = logs.subscribers.hand_on
        setattr(logs.subscribers, "hand_on", self._handed_on)  # noqa: B010 - a look at when it is done

    async def _handed_on(self, entries: Sequence[Entry]) -> None:
        await self._hand_on(entries)
        self._news.unpark_all()

    async def follow(self, **params: Any) -> tuple[Client, dict[str, Any]]:
        client = await self.world.connect()
        return client, await client.ask("log.subscribe", **params)

    async def written(self, cursor: int) -> None:
        """Wait until a record is where followers find it."""
        while self.logs.subscribers._ring.newest < cursor:
            await self._news.park()


@asynccontextmanager
async def followed(short_dir: Path, **options: Any) -> AsyncIterator[Followed]:
    logs = Logs(short_dir / "state" / "logs", Redactor(), **options)

    async def subscribe(params: SubscribeParams, call: Call) -> SubscriptionResult:
        wanted = Filter(params.run, params.level or "debug", params.actor)
        return await logs.subscribers.subscribe(call, wanted, params.since, follow=params.follow)

    async def unsubscribe(params: UnsubscribeParams, call: Call) -> Empty:
        logs.subscribers.unsubscribe(call.connection, params.subscription)
        await trio.lowlevel.checkpoint()
        return Empty()

    handlers: dict[str, Any] = {"log.subscribe": subscribe, "log.unsubscribe": unsubscribe}
    async with trio.open_nursery() as nursery:
        await nursery.start(logs.run)
        async with serving(short_dir, handlers) as world:
            yield Followed(world, logs)
            logs.stop()
    logs.close()


async def take(client: Client, number: int) -> list[tuple[int, str]]:
    """The next records, as (cursor, event)."""
    found = []
    with trio.fail_after(10):
        for _ in range(number):
            notice = await client.read()
            assert notice["method"] == "log.record", notice
            params = notice["params"]
            assert params["cursor"] == params["record"]["cursor"]
            found.append((params["cursor"], params["record"]["event"]))
    return found


async def test_a_follower_gets_the_last_twenty_and_then_what_comes(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        for number in range(1, 31):
            emit(log.logs, f"e{number}")
        await log.written(30)
        client, result = await log.follow()
        assert result["cursor"] == 10
        assert await take(client, 20) == [(n, f"e{n}") for n in range(11, 31)]
        emit(log.logs, "live")
        assert await take(client, 1) == [(31, "live")]


async def test_records_of_an_earlier_daemon_are_found_by_cursor(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        for number in range(1, 31):
            emit(log.logs, f"e{number}")
    async with followed(short_dir) as log:
        emit(log.logs, "new")
        client, result = await log.follow(since=25)
        assert result["cursor"] == 25
        assert await take(client, 6) == [*((n, f"e{n}") for n in range(26, 31)), (31, "new")]
        other, _ = await log.follow()
        assert (await take(other, 20))[0] == (12, "e12")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ["a", "b", "c", "d"]),
        ({"run": "run1"}, ["a", "b"]),
        ({"level": "warning"}, ["b", "d"]),
        ({"actor": "critic"}, ["b", "c"]),
        ({"run": "run1", "level": "error", "actor": "critic"}, ["b"]),
    ],
)
async def test_a_follower_gets_what_it_asked_for(
    short_dir: Path, params: dict[str, Any], expected: list[str]
) -> None:
    def write(logs: Logs) -> None:
        logs.emit({"level": "info", "event": "a", "run_id": "run1", "actor": "git-master"})
        logs.emit({"level": "error", "event": "b", "run_id": "run1", "actor": "critic"})
        logs.emit({"level": "debug", "event": "c", "run_id": "run2", "actor": "critic"})
        logs.emit({"level": "critical", "event": "d"})

    async with followed(short_dir) as log:
        write(log.logs)
        await log.written(4)
        client, _ = await log.follow(**params)
        assert [event for _, event in await take(client, len(expected))] == expected
        write(log.logs)
        assert [event for _, event in await take(client, len(expected))] == expected
    async with followed(short_dir) as log:  # the same from the files
        client, _ = await log.follow(since=0, **params)
        assert [event for _, event in await take(client, len(expected) * 2)] == expected * 2


async def test_without_following_the_records_come_before_the_reply(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        for number in range(1, 31):
            emit(log.logs, f"e{number}")
        await log.written(30)
        for params, first in (({}, 11), ({"since": 3}, 4), ({"since": 30}, 31), ({"since": 99}, 31)):
            client = await log.world.connect()
            await client.call("log.subscribe", follow=False, **params)
            assert [cursor for cursor, _ in await take(client, 31 - first)] == list(range(first, 31))
            assert (await client.read())["result"]["cursor"] == 30
        assert not log.logs.subscribers._known


async def test_what_is_kept_no_longer_is_reported(short_dir: Path) -> None:
    async with followed(short_dir, file_bytes=2000, keep=2, ring_bytes=1) as log:
        for number in range(1, 101):
            emit(log.logs, f"e{number}")
        await log.written(100)
        client, _ = await log.follow(since=5)
        dropped = await client.read()
        assert dropped["method"] == "log.dropped"
        count = dropped["params"]["count"]
        assert 0 < count < 95
        assert [cursor for cursor, _ in await take(client, 95 - count)] == list(range(6 + count, 101))


async def test_a_slow_follower_is_told_how_much_it_missed_and_slows_nobody(short_dir: Path) -> None:
    total = 4000
    async with followed(short_dir, ring_bytes=200_000) as log:
        slow, _ = await log.follow(run="run1")
        quick, _ = await log.follow(actor="last")
        for number in range(1, total + 1):
            emit(log.logs, run_id="run1" if number % 2 else "run2", text="x" * 500)
            if number % 50 == 0:
                await log.written(number)
        emit(log.logs, "the end", run_id="run1", actor="last")
        assert await take(quick, 1) == [(total + 1, "the end")]

        seen, dropped = [], 0
        notice: dict[str, Any] = {}
        with trio.fail_after(10):
            while notice.get("record", {}).get("event") != "the end":
                notice = (await slow.read())["params"]
                dropped += notice.get("count", 0)
                seen += [notice["cursor"]] if "cursor" in notice else []
        assert dropped > 0
        assert seen == sorted(set(seen))
        assert len(seen) + dropped == total // 2 + 1


async def test_a_subscription_ends_when_asked_and_only_by_its_owner(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        client, result = await log.follow(since=0)
        other = await log.world.connect()
        error = await other.ask("log.unsubscribe", subscription=result["subscription"])
        assert error["code"] == -32602
        await other.ask("log.subscribe", since=0)
        assert await client.ask("log.unsubscribe", subscription=result["subscription"]) == {}
        emit(log.logs, "unheard")
        assert await take(other, 1) == [(1, "unheard")]
        assert (await client.ask("log.unsubscribe", subscription=result["subscription"]))["code"] == -32602


async def test_nothing_is_sent_of_a_subscription_that_has_ended(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        client, _ = await log.follow(since=0)
        emit(log.logs, "heard")
        assert await take(client, 1) == [(1, "heard")]
        await wait_all_tasks_blocked()
        subscribers = log.logs.subscribers
        ((connection, number),) = subscribers._known
        late = read_entry(Line(2, b'{"event": "late"}'))
        assert late is not None
        subscribers.publish([late])  # wakes who sends it, in whose turn there is no subscription any more
        subscribers.unsubscribe(connection, number)
        assert (await client.ask("log.unsubscribe", subscription=number))["code"] == -32602


async def test_subscriptions_end_with_their_connection_and_are_limited(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        client = await log.world.connect()
        for _ in range(subscribers_module.SUBSCRIPTIONS):
            assert "subscription" in await client.ask("log.subscribe", since=0)
        assert (await client.ask("log.subscribe", since=0))["code"] == -32002
        await client.stream.aclose()
        with trio.fail_after(5):
            await log.world.until_clients(0)
        assert not log.logs.subscribers._known
        assert not log.logs.subscribers._live


async def test_the_last_record_reaches_followers_before_the_end(short_dir: Path) -> None:
    async with followed(short_dir) as log:
        client, _ = await log.follow(since=0)
        emit(log.logs, "run_ended")
        log.logs.stop()
        log.world.server.stop()
        assert await take(client, 1) == [(1, "run_ended")]
        assert await client.read() is None


async def test_a_broken_disk_costs_followers_only_what_is_gone(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with followed(short_dir, ring_bytes=3000) as log:
        client, _ = await log.follow(since=0)

        def broken(*_: Any) -> None:
            raise OSError(5, "Input/output error")

        for method in ("append", "read_after", "tail"):
            monkeypatch.setattr(log.logs._files, method, broken)
        emit(log.logs, "first")
        assert [event for _, event in await take(client, 2)] == ["first", "log_file_broken"]
        for _ in range(50):
            emit(log.logs)
        await log.written(52)
        late, _ = await log.follow(since=0)
        dropped = (await late.read())["params"]["count"]
        assert [cursor for cursor, _ in await take(late, 52 - dropped)] == list(range(dropped + 1, 53))
        recent, _ = await log.follow()
        assert (await take(recent, 1))[0][0] > 32


@pytest.mark.parametrize("followers", [100])
async def test_many_followers_get_everything(short_dir: Path, followers: int) -> None:
    async with followed(short_dir) as log:
        counts: list[int] = []

        async def read(client: Client) -> None:
            counts.append(len(await take(client, 200)))

        async with trio.open_nursery() as nursery:
            for _ in range(followers):
                client, _ = await log.follow(since=0)
                nursery.start_soon(read, client)
            for _ in range(200):
                emit(log.logs, run_id="run1")
                await trio.lowlevel.checkpoint()
        assert counts == [200] * followers
