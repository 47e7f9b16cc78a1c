"""`start`, `start --wait` and `attach`: following by subscription, to the end and across a restart."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sid_cli.follow import EXIT_CODES
from sid_cli.stream import Dropped, Follower, Reconnected, Record
from sid_protocol.errors import NoDaemon
from tests.cli.fake_daemon import NOBODY, FakeDaemon, run_row

RUN = "r7f3a9c2"
SUMMARY = (
    "=== Self-Improvement Loop Complete ===\n"
    "Status: plateau\nIterations: 3\nBest Score: 2 (baseline: 1)\nImprovement: 1 (100.0%)\nPush skipped\n"
)
HEAD = SUMMARY.splitlines()[:5]
REPLAY = {"replay_of": "k3vmw8qq", "root": "/r/.sid/topics/replay-k3vmw8", "topic": "replay-k3vmw8"}


def now() -> str:
    return datetime.now(UTC).isoformat()


@pytest.fixture
def daemon(daemon: FakeDaemon) -> FakeDaemon:
    daemon.rows = [run_row(status="idle")]
    daemon.answers["run.summary"] = {"text": SUMMARY, "fields": {"status": "plateau", "best_score": 2.0}}
    # What an earlier start has left in the log is none of this one's business.
    daemon.push("run_ended", run_id=RUN, status="failed")
    return daemon


def ends_as(
    daemon: FakeDaemon, status: str, events: Callable[[], None] = lambda: None, *, method: str = "run.start"
) -> None:
    """Let `run.start` start a run that tells of a few things and then ends."""

    def life() -> None:
        daemon.push("run_started", run_id=RUN, timestamp=now())
        events()
        daemon.push("benchmark_finished", run_id="another", timestamp=now())
        daemon.push("merged", run_id=RUN, timestamp=now(), iteration=3, hypothesis="do \x1b[2J less")
        daemon.rows[0]["status"] = status
        daemon.push("run_ended", run_id=RUN, timestamp=now(), status=status)

    def start(_params):
        daemon.rows[0]["status"] = "running"
        made = REPLAY if method == "run.replay" else {}
        return {"run_id": RUN, "resumed": True, "status": "running", **made}

    daemon.answers[method] = start
    daemon.after[method] = life


def test_start_prints_the_id_alone(daemon, sictl, repo, monkeypatch):
    made = repo({"a/b": "c"})
    monkeypatch.chdir(made.path / "a")
    daemon.answers["run.start"] = {"run_id": RUN, "resumed": False, "status": "running"}

    done = sictl("start", "--rounds", "3", "--topic", "Fast one")

    assert (done.code, done.out, done.err) == (0, f"{RUN}\n", "")
    assert daemon.called("run.start") == [{"repo": str(made.path), "topic": "Fast one", "rounds": 3}]
    assert sictl("start", "--json").document == {
        "schema": 1,
        "run_id": RUN,
        "resumed": False,
        "status": "running",
    }


@pytest.mark.parametrize("given", ["id", "path", "option"])
def test_a_run_that_is_known_is_started_at_its_root(daemon, sictl, repo, given):
    made = repo({"a": "b"})
    daemon.rows = [run_row(status="idle", repo=str(made.path), root="/else/where", topic="fast")]
    daemon.answers["run.start"] = {"run_id": RUN, "resumed": True, "status": "running"}

    sictl("start", *{"id": ["r7f3"], "path": [str(made.path)], "option": ["--run", RUN]}[given])

    assert daemon.called("run.start") == [{"repo": str(made.path), "topic": "fast", "root": "/else/where"}]


@pytest.mark.parametrize(("args", "code"), [(["zzzzz"], 4), (["/no/such/repo"], 4), (["a", "--run", "b"], 2)])
def test_start_of_what_is_not_there(daemon, sictl, args, code):
    assert sictl("start", *args).code == code
    assert daemon.called("run.start") == []


@pytest.mark.parametrize(("status", "code"), [("target_reached", 0), ("max_iterations", 0), ("budget", 12)])
def test_a_run_with_nothing_left_to_do(daemon, sictl, status, code):
    daemon.answers["run.start"] = {"run_id": RUN, "resumed": True, "status": status}
    done = sictl("start", "r7f3")
    assert (done.code, done.out) == (code, f"{RUN}\n")
    assert "nothing left to do" in done.err


def test_wait_prints_the_id_a_line_an_event_and_the_summary(daemon, sictl):
    ends_as(daemon, "plateau")

    done = sictl("start", "r7f3", "--wait")

    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == RUN
    assert [line.split(" ", 1)[1] for line in lines[1:4]] == [
        "run_started",
        'r3 merged hypothesis="do \\x1b[2J less"',
        "run_ended status=plateau",
    ]
    assert lines[4:9] == HEAD
    assert done.err == ""


@pytest.mark.parametrize("status", EXIT_CODES)
def test_wait_leaves_with_how_the_run_ended(daemon, sictl, status):
    ends_as(daemon, status)

    done = sictl("start", "r7f3", "--wait", "--json")

    promised = {"circuit_breaker": 10, "blocked": 10, "user_stopped": 11, "budget": 12, "failed": 1}
    assert done.code == promised.get(status, 0)
    assert done.document["status"] == status
    assert done.document["summary"]["best_score"] == 2.0
    assert done.document["text"].splitlines()[:5] == HEAD


def test_wait_survives_a_restart_of_the_daemon_and_misses_nothing(daemon, sictl):
    def restart() -> None:
        daemon.stop()
        daemon.push("force_kill", run_id=RUN, timestamp=now())
        daemon.start()

    ends_as(daemon, "plateau", restart)
    done = sictl("start", "r7f3", "--wait")

    assert done.code == 0
    for told in ("run_started", "the daemon was away", "force_kill", "merged", "run_ended", HEAD[0]):
        assert done.out.count(told) == 1


@pytest.mark.timeout(60)
def test_wait_ends_where_a_daemon_died_before_it_could_tell_of_the_end(daemon, sictl):
    def life() -> None:
        daemon.push("merged", run_id=RUN, timestamp=now(), iteration=3)
        daemon.stop()
        daemon.rows[0]["status"] = "plateau"
        daemon.start()

    ends_as(daemon, "running")
    daemon.after["run.start"] = life
    done = sictl("start", "r7f3", "--wait")

    assert done.code == 0
    assert HEAD[1] in done.out
    assert "run_ended" not in done.out


def test_wait_does_not_take_the_end_that_another_clients_stop_made_for_its_own(daemon, sictl):
    ends_as(daemon, "plateau")
    start = daemon.answers["run.start"]

    def after_a_stop(params):
        daemon.push("run_ended", run_id=RUN, timestamp=now(), status="user_stopped")
        return start(params)

    daemon.answers["run.start"] = after_a_stop
    done = sictl("start", "r7f3", "--wait")

    assert done.code == 0
    assert "merged" in done.out


@pytest.mark.timeout(60)
def test_wait_ends_where_the_run_had_begun_before_it_asked(daemon, sictl):
    def life() -> None:
        daemon.rows[0]["status"] = "plateau"
        daemon.push("run_ended", run_id=RUN, timestamp=now(), status="plateau")

    ends_as(daemon, "running")
    daemon.after["run.start"] = life

    assert sictl("start", "r7f3", "--wait").code == 0


def test_a_start_whose_answer_is_lost_is_not_sent_again(daemon, sictl):
    def die(_params):
        daemon._run(daemon.stop)
        daemon.stopping.wait(10)
        return {"run_id": RUN, "resumed": False}

    daemon.answers["run.start"] = die
    done = sictl("start", "r7f3", "--wait")
    assert done.code == 1
    assert "lost the daemon" in done.err
    assert len(daemon.called("run.start")) == 1


async def followed(follower: Follower, count: int) -> list:
    return [await follower.next() for _ in range(count)]


def test_a_follower_goes_on_at_its_cursor(daemon, monkeypatch):
    import anyio

    async def main() -> list:
        async with Follower(str(daemon.path), run=RUN) as follower:
            seen = await followed(follower, 1)
            daemon.stop()
            daemon.push("while_away", run_id=RUN)
            daemon.start()
            seen += await followed(follower, 2)
            daemon.drop(7)
            seen += await followed(follower, 1)
            return seen

    first, back, missed, dropped = anyio.run(main)
    assert isinstance(first, Record)
    assert isinstance(back, Reconnected)
    assert (missed.cursor, missed.record["event"]) == (2, "while_away")
    assert dropped == Dropped(7)


def test_a_daemon_that_stays_away_is_given_up_on(daemon):
    import anyio

    async def main() -> None:
        async with Follower(str(daemon.path), reconnect_s=0.2) as follower:
            await followed(follower, 1)
            daemon.stop()
            await follower.next()

    with pytest.raises(NoDaemon):
        anyio.run(main)


def test_the_async_client_runs_on_trio_too(daemon):
    import anyio

    async def main() -> list:
        async with Follower(str(daemon.path)) as follower:
            assert (await follower.call("daemon.info"))["pid"] == NOBODY
            return await followed(follower, 1)

    assert anyio.run(main, backend="trio")[0].record["event"] == "run_ended"


# attach


@pytest.mark.parametrize("verb", ["attach", "logs"])
def test_attach_prints_the_last_20_and_leaves_when_told_to(daemon, sictl, verb):
    for number in range(30):
        daemon.push("benchmark_sample", run_id=RUN, iteration=7, actor="executor_2", score=number + 0.5)

    done = sictl(verb, "r7f3", "--no-follow")

    lines = done.out.splitlines()
    assert done.code == 0
    assert len(lines) == 20
    assert lines[-1].endswith(" r7 executor_2 benchmark_sample score=29.5")


def test_attach_json_is_a_document_a_line_with_its_cursor(daemon, sictl):
    daemon.push("note", run_id=RUN, text="ü\n")
    for args in (["--json"], ["--output", "json"]):
        documents = [
            json.loads(line) for line in sictl("attach", "r7f3", "--no-follow", *args).out.splitlines()
        ]
        assert [(one["cursor"], one["event"]) for one in documents] == [(1, "run_ended"), (2, "note")]
        assert documents[1]["text"] == "ü\n"


def test_ctrl_c_adds_no_document_to_the_records(daemon, installed):
    command = [str(installed / "sictl"), "attach", "r7f3", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as attached:
        assert attached.stdout is not None
        first = attached.stdout.readline()
        attached.send_signal(signal.SIGINT)
        rest, told = attached.communicate()

    assert attached.returncode == 130
    assert json.loads(first)["event"] == "run_ended"
    assert rest == ""
    assert told.startswith("sictl: interrupted")


def test_attach_goes_on_after_the_cursor_of_its_file(daemon, sictl, short_dir):
    daemon.push("note", run_id=RUN)
    file = short_dir / "cursor"
    first = sictl("attach", "r7f3", "--no-follow", "--since", "0", "--cursor-file", str(file))
    assert first.code == 0
    assert len(first.out.splitlines()) == 2
    assert file.read_text() == "2\n"
    again = sictl("attach", "r7f3", "--no-follow", "--since", "0", "--cursor-file", str(file))
    assert (again.code, again.out) == (0, "")
    assert [path.name for path in short_dir.iterdir() if "cursor" in path.name] == ["cursor"]

    file.write_text("junk")
    refused = sictl("attach", "r7f3", "--no-follow", "--cursor-file", str(file))
    assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1)
    lost = sictl("attach", "r7f3", "--no-follow", "--cursor-file", str(short_dir / "gone" / "cursor"))
    assert (lost.code, len(lost.err.splitlines())) == (2, 1)


def test_attach_from_a_cursor_or_a_time(daemon, sictl):
    daemon.push("old", run_id=RUN, timestamp="2020-01-01T00:00:00+00:00")
    daemon.push("new", run_id=RUN, timestamp=now())

    assert [
        line.split()[1] for line in sictl("attach", "r7f3", "--since", "1", "--no-follow").out.splitlines()
    ] == ["old", "new"]
    assert [
        line.split()[1] for line in sictl("attach", "r7f3", "--since", "10m", "--no-follow").out.splitlines()
    ] == ["new"]


def test_attach_prints_the_summary_below_the_end_of_a_run(daemon, sictl):
    daemon.push("run_ended", run_id=RUN, status="plateau", summary=SUMMARY, cursor=2)
    lines = sictl("attach", "r7f3", "--no-follow").out.splitlines()
    assert lines[1].endswith(" run_ended status=plateau")
    assert lines[2:] == SUMMARY.splitlines()


def test_attach_passes_its_filters_on(daemon, sictl):
    daemon.push("one", run_id=RUN, actor="executor_1")
    done = sictl("attach", "r7f3", "--no-follow", "--level", "warning", "--actor", "executor_1")
    assert daemon.called("log.subscribe") == [
        {"run": RUN, "level": "warning", "actor": "executor_1", "follow": False}
    ]
    assert done.out.count("\n") == 1


def test_attach_without_any_run_shows_the_daemons_log(daemon, sictl):
    daemon.rows = []
    daemon.push("daemon_started")
    assert "daemon_started" in sictl("attach", "--no-follow").out
    assert daemon.called("log.subscribe") == [{"follow": False}]
    assert sictl("attach", "zzzzz", "--no-follow").code == 4


def test_a_replay_is_started_and_said_where_it_is(daemon, sictl):
    daemon.answers["run.replay"] = {"run_id": RUN, "resumed": False, "status": "running", **REPLAY}

    done = sictl("replay", RUN, "--into", "again", "--root", "/else/where")

    assert (done.code, done.out) == (0, f"{RUN}\n")
    assert daemon.called("run.replay") == [{"run": RUN, "root": "/else/where", "into": "again"}]
    document = sictl("replay", RUN, "--json").document
    assert document == {"schema": 1, "run_id": RUN, "resumed": False, "status": "running", **REPLAY}


def test_a_recording_is_replayed_in_a_clone_without_its_run(daemon, sictl, repo):
    made = repo({"a": "b"})
    daemon.rows = []
    daemon.answers["run.replay"] = {"run_id": RUN, "resumed": False, "status": "running", **REPLAY}

    sictl("replay", "k3vmw8qq", "--in", str(made.path))

    assert daemon.called("run.replay") == [{"run": "k3vmw8qq", "repo": str(made.path)}]


def test_a_replay_is_followed_to_its_end(daemon, sictl):
    ends_as(daemon, "circuit_breaker", method="run.replay")

    done = sictl("replay", "--wait", RUN, "--json")

    assert done.code == EXIT_CODES["circuit_breaker"]
    assert {key: done.document[key] for key in ("status", "replay_of", "text")} == {
        "status": "circuit_breaker",
        "replay_of": "k3vmw8qq",
        "text": SUMMARY,
    }


def test_a_replay_that_came_out_otherwise_leaves_with_1_and_the_summary(daemon, sictl):
    ends_as(daemon, "failed", method="run.replay")

    shown = sictl("replay", "--wait", RUN)

    assert shown.code == 1
    assert HEAD[0] in shown.out
