"""`sictl status`: the fast way, what it loads, what it prints, how it fails."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from sid_cli.fast_status import parse
from tests.cli.fake_daemon import NOBODY, round_row, run_row

HEAVY = ("trio", "pydantic", "rich", "anthropic", "anyio", "click", "dataclasses", "asyncio", "pygit2")
COSTLY = ("typing", "re", "enum", "json", "socket", "collections", "pathlib", "traceback", "argparse")
ENTRY = "from sid_cli.entry import main; main()"
LOADED = f"""
import sys
from sid_cli.entry import main
try:
    main()
finally:
    print([name for name in {HEAVY + COSTLY!r} if name in sys.modules], file=sys.stderr)
"""


def status(*args: str, code: str = ENTRY) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "args",
    [
        ("status",),
        ("status", "r7f3"),
        ("--run", "r7f3", "status"),
        ("status", "--topic", "default"),
        ("status", "--line"),
        ("status", "--color", "always"),
    ],
)
def test_status_loads_little_more_than_python_does(daemon, args):
    daemon.rows = [run_row()]
    daemon.push("benchmark_sample", run_id="r7f3a9c2", score=1.0)
    done = status(*args, code=LOADED)

    assert done.returncode == 0
    assert done.stderr == "[]\n"
    assert done.stdout


def test_status_loads_nothing_heavy_for_its_document(daemon):
    daemon.rows = [run_row()]
    done = status("status", "--json", code=LOADED)
    assert done.returncode == 0
    assert not set(json.loads(done.stderr.replace("'", '"'))) & set(HEAVY)


def test_status_loads_little_where_nobody_answers():
    done = status("status", code=LOADED)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("args", [("status",), ("status", "--json"), ("status", "r7f3")])
def test_what_agents_wrote_comes_whole_through_the_wire_of_status(daemon, args):
    said = 'a "quoted" \\ \u00fc \U0001f680 line'
    actor = {**run_row()["actors"][0], "doing": said}
    daemon.rows = [run_row(actors=[actor], best_score=1e-300, interval=None, notes=[said])]
    done = status(*args)
    assert done.returncode == 0
    if "--json" in args:
        row = json.loads(done.stdout)["runs"][0]
        assert row["actors"][0]["doing"] == said
        assert row["best_score"] == 1e-300
    else:
        assert "\U0001f680" in done.stdout
        assert "1e-300" in done.stdout


@pytest.mark.parametrize("name", ['no"run', "nö run", "a\\b\nc"])
def test_a_run_of_any_name_can_be_asked_for(daemon, name):
    daemon.rows = [run_row(run_id=name)]
    done = status("status", name, "--json")
    assert json.loads(done.stdout)["run"]["run_id"] == name


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["status"], {}),
        (["--json", "status", "."], {"as_json": True, "run": "."}),
        (["status", "--run=r7f3", "--socket", "/s", "--no-spawn"], {"run": "r7f3", "socket": "/s"}),
        (
            ["--color", "never", "status", "--topic", "T", "--line"],
            {"color": "never", "topic": "T", "line": True},
        ),
    ],
)
def test_plain_arguments_take_the_fast_way(args, wanted):
    found = parse(args)
    assert found is not None
    plain = {"as_json": False, "line": False, "color": "auto", "run": None, "socket": None, "topic": None}
    assert {name: getattr(found, name) for name in plain} == {**plain, **wanted}


@pytest.mark.parametrize(
    "args",
    [
        ["start", "status"],
        ["status", "a", "b"],
        ["status", "--help"],
        ["status", "--"],
        ["status", "--socket"],
        ["status", "--json=1"],
        ["status", "--color", "blue"],
        ["status", "a", "--run", "b"],
        ["status", "-x"],
        [],
    ],
)
def test_anything_else_is_left_to_click(args):
    assert parse(args) is None


@pytest.mark.parametrize("run", [(), ("r7f3a9c2",), ("r7f3",), ("--run", "r7f3")], ids=str)
@pytest.mark.parametrize("way", ["fast", "click"])
def test_the_json_document(daemon, sictl, run, way):
    daemon.rows = [run_row(), run_row(run_id="r8aaaaaa", repo="/src/other", status="idle")]
    args = ("status", "--json", *run)
    if way == "fast":
        done = status(*args)
        document, err = json.loads(done.stdout), done.stderr
    else:
        result = sictl(*args)
        document, err = result.document, result.err

    assert err == ""
    assert document["schema"] == 1
    if run:
        assert document["run"]["run_id"] == "r7f3a9c2"
        assert document["run"]["actors"][0]["left_s"] == 680.0
        # The result of the call, whose fields are the interface's, beside the schema and whole.
        assert document == {"schema": 1, **document["run"], "run": document["run"]}
    else:
        assert document["daemon"]["pid"] == NOBODY
        assert [row["run_id"] for row in document["runs"]] == ["r7f3a9c2", "r8aaaaaa"]


def test_the_text_has_the_runs_the_active_one_in_detail_and_its_last_events(daemon, sictl):
    daemon.rows = [run_row(), run_row(run_id="r8aaaaaa", repo="/src/other", status="idle")]
    daemon.answers["run.history"] = {"rounds": [round_row(1), round_row(2)], "next": None}
    for number in range(8):
        daemon.push("benchmark_sample", run_id="r7f3a9c2", score=number)
    daemon.push("elsewhere", run_id="r8aaaaaa")

    out = sictl("status").out

    assert "1 of 2 runs active" in out
    assert "r8aaaaaa" in out
    assert "executor_2" in out
    assert out.count("benchmark_sample") == 5
    assert "score=7\n" in out
    assert "elsewhere" not in out


def test_without_runs_it_says_how_to_get_one(daemon, sictl):
    assert "'sictl init' sets one up" in sictl("status").out


@pytest.mark.parametrize(("run", "code", "error"), [("zzzzzz", 4, "no_such_run"), ("r7f", 4, "no_such_run")])
def test_an_unknown_run(daemon, run, code, error):
    daemon.rows = [run_row()]
    done = status("status", run, "--json")
    assert done.returncode == code
    assert json.loads(done.stdout)["error"]["code"] == error
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_a_prompt_line_is_empty_and_quiet_without_a_daemon_and_without_a_run(daemon, sictl):
    assert (sictl("status", "--line").code, sictl("status", "--line").out) == (0, "")
    assert sictl("status", "--line", "--json").document == {"schema": 1, "run": None}
    daemon.rows = [run_row()]
    assert sictl("status", "--line").out == "sid r3/50 exec 2/2 +31.8%\n"
    daemon.stop()
    done = sictl("status", "--line")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert sictl("status", "--line", "--json").document == {"schema": 1, "run": None}


def test_a_socket_that_nobody_listens_on_any_more_is_no_daemon(sictl):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.environ["SID_SOCKET"])
    assert sictl("status").code == 3


@pytest.mark.parametrize("reply", [b"junk\n", b"", b'{"id": 0, "result": {}}\n'])
def test_a_daemon_that_answers_junk_is_one_clear_line(sictl, reply, daemon, monkeypatch):
    monkeypatch.setattr(
        type(daemon),
        "_serve",
        lambda _self, connection: (connection.recv(10), connection.sendall(reply), connection.close()),
    )
    done = sictl("status")
    assert done.code == 1
    assert done.err.startswith("sictl: lost the daemon")
    assert done.err.count("\n") == 1


def test_a_closed_pipe_ends_a_quiet_attach(daemon):
    daemon.push("daemon_started")
    script = f"{sys.executable} -c '{ENTRY}' attach | head -n 1; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=30)
    assert "daemon_started" in done.stdout
    assert done.stderr == "0\n"


def test_a_closed_pipe_ends_quietly(daemon):
    daemon.rows = [
        run_row(run_id=f"r{number:07}", repo=f"/src/{number}", status="idle") for number in range(4000)
    ]
    script = f"{sys.executable} -c '{ENTRY}' status | head -n 1; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == "0\n"


@pytest.mark.parametrize("words", ["status", "history", "status --json", "no-such-verb"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_fault_of_sictl(daemon, words, closed):
    daemon.rows = [run_row()]
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c '{ENTRY}' {words} {closed}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2, 5)
    assert "unexpected error" not in done.stdout + done.stderr


@pytest.mark.parametrize("words", ["status", "status --json", "help"])
def test_output_that_cannot_be_written_is_one_line(daemon, words):
    daemon.rows = [run_row()]
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c '{ENTRY}' {words} > /dev/full"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "sictl: cannot write the output: No space left on device; free some space, or write elsewhere\n"
    )
