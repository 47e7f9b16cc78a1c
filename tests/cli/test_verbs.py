"""The everyday verbs against a daemon: what they send, what they print, how its errors come out."""

from __future__ import annotations

import base64
import json
import os
import socket
from pathlib import Path
from typing import get_args

import click
import pytest

from sid_cli import completing
from sid_cli.session import Session
from sid_cli.verbs.config import parse_value
from sid_protocol.errors import (
    AlreadyRunning,
    NoSuchRun,
    NotRunning,
    Refused,
    SettingsInvalid,
    ShuttingDown,
    SidError,
    UsageError,
)
from sid_protocol.settings import Settings
from tests.cli.fake_daemon import NOBODY, FakeDaemon, round_row, run_row

RUN = "r7f3a9c2"


@pytest.fixture
def daemon(daemon: FakeDaemon) -> FakeDaemon:
    daemon.rows = [run_row()]
    return daemon


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (NoSuchRun("gone", hint="look"), 4, "no_such_run"),
        (Refused("no", hint="look"), 5, "refused"),
        (AlreadyRunning("busy", hint="look"), 5, "already_running"),
        (NotRunning("idle", hint="look"), 5, "not_running"),
        (SettingsInvalid("key", "bad", hint="look"), 2, "settings_invalid"),
        (UsageError("what", hint="look"), 2, "usage"),
        (ShuttingDown("leaving", hint="look"), 1, "failed"),
        (SidError("broken", hint="look"), 1, "failed"),
    ],
)
def test_an_error_of_the_daemon_keeps_code_message_and_hint(daemon, sictl, error, code, name):
    daemon.answers["run.pause"] = error

    done = sictl("pause", "--json")

    assert done.code == code
    assert done.document == {"error": {"code": name, "message": error.message, "hint": "look"}}
    assert done.err == f"sictl: {error.message}; look\n"


def test_an_error_with_hostile_text_stays_one_line(daemon, sictl):
    daemon.answers["run.pause"] = SidError("a\n\x1b[2Jb", hint="c\nd")
    assert sictl("pause").err == "sictl: a\\n\\x1b[2Jb; c\\nd\n"


@pytest.mark.parametrize(
    ("verb", "method", "status"),
    [
        ("pause", "run.pause", "paused"),
        ("resume", "run.resume", "running"),
        ("stop", "run.cancel", "user_stopped"),
        ("cancel", "run.cancel", "user_stopped"),
    ],
)
def test_steering(daemon, sictl, verb, method, status):
    daemon.answers[method] = {"status": status}

    done = sictl(verb, "r7f3", "--json")

    assert done.document == {"schema": 1, "run_id": RUN, "status": status}
    assert daemon.called(method)[0]["run"] == RUN
    assert status in sictl(verb).out


def test_stop_now_off_a_terminal_does_not_ask(daemon, sictl):
    daemon.answers["run.cancel"] = {"status": "user_stopped"}
    assert sictl("stop", "--now").code == 0
    assert daemon.called("run.cancel") == [{"run": RUN, "now": True}]


def test_history_reads_every_page(daemon, sictl):
    pages = {
        0: {"rounds": [round_row(1), round_row(2)], "next": 2},
        2: {"rounds": [round_row(3)], "next": None},
    }
    daemon.answers["run.history"] = lambda params: pages[params["since"]]

    assert [row["iteration"] for row in sictl("history", "--json").document["rounds"]] == [1, 2, 3]
    assert sictl("history").out.count("\n") == 4


@pytest.mark.parametrize(
    ("count", "shown", "last"), [(50, 50, "round 50"), (2000, 51, "and 1950 more; --json")]
)
def test_verify_names_as_many_disagreements_as_are_read(daemon, sictl, count, shown, last):
    lines = [f"round {number}: the tag is missing" for number in range(1, count + 1)]
    daemon.answers["run.verify"] = {"agrees": False, "disagreements": lines, "rounds": count}

    told = sictl("verify").out.splitlines()

    assert len(told) == shown
    assert told[-1].startswith(last)
    assert sictl("verify", "--json").document["disagreements"] == lines


def test_a_run_without_rounds_says_so(daemon, sictl):
    assert sictl("history").out == "no round has ended yet\n"


@pytest.mark.parametrize(
    ("args", "run", "iteration"), [((), RUN, 0), (("7",), RUN, 7), ((RUN,), RUN, 0), (("r7f3", "7"), RUN, 7)]
)
def test_show_tells_round_from_run(daemon, sictl, args, run, iteration):
    daemon.answers["run.round"] = {"summary": round_row(7)}

    done = sictl("show", *args, "--json")

    assert done.document["round"]["summary"]["iteration"] == 7
    assert done.document["summary"] == done.document["round"]["summary"]
    assert daemon.called("run.round") == [{"run": run, "iteration": iteration}]
    assert sictl("show", *args).out.startswith("round 7: merged")


@pytest.mark.parametrize(
    "args", [("try this",), ("r7f3", "try this"), ("--run", RUN, "try this"), ("--", "try this")]
)
def test_idea_tells_text_from_run(daemon, sictl, args):
    daemon.answers["run.idea"] = {}
    assert sictl("idea", *args).code == 0
    assert daemon.called("run.idea") == [{"run": RUN, "text": "try this"}]


@pytest.mark.parametrize("text", ["- try this", "--verbose mode is slow", "-h is no option here", "-5"])
def test_text_that_begins_with_a_dash_is_text(daemon, sictl, text):
    daemon.answers["run.idea"] = {}
    assert sictl("idea", text, "--run", RUN).code == 0
    assert daemon.called("run.idea") == [{"run": RUN, "text": text}]


@pytest.mark.parametrize(("typed", "value"), [("-5", -5), ("-0.25", -0.25), ("-1e3", -1000.0)])
def test_a_value_below_zero_is_a_value(daemon, sictl, typed, value):
    row = {"key": "target_value", "value": value, "default": None, "source": "settings.json"}
    daemon.answers["run.config"] = {"settings": [row], "changed": None, "notes": []}
    assert sictl("config", "set", "target_value", typed).code == 0
    assert daemon.called("run.config")[-1]["value"] == value


DIFF = "diff --git a/ü.py b/ü.py\n--- a/ü.py\n+++ b/ü.py\n@@ -1 +1 @@\n-a\x1b[31m\r\n+b\n"
DIFF_RESULT = {
    "diff": DIFF,
    "base": "b" * 40,
    "head": "c" * 40,
    "stat": " ü.py | 2 +-",
    "branch": "improve/x",
    "target_branch": "main",
}


def test_a_diff_into_a_pipe_is_the_bytes_that_git_apply_takes(daemon, sictl):
    daemon.answers["run.diff"] = DIFF_RESULT
    assert sictl("diff").out == DIFF
    assert sictl("diff", "--json").document["diff"] == DIFF


def test_no_difference_is_told_on_stderr(daemon, sictl):
    daemon.answers["run.diff"] = {**DIFF_RESULT, "diff": "", "stat": ""}
    done = sictl("diff")
    assert (done.code, done.out) == (0, "")
    assert done.err == "improve/x changes nothing against main\n"


APPLIED = {
    "applied": True,
    "diff": DIFF,
    "stat": " ü.py | 2 +-",
    "undo": "git update-ref refs/heads/main bbbb cccc",
    "target_branch": "main",
    "before": "b" * 40,
    "after": "c" * 40,
    "fast_forward": True,
}


def test_apply_shows_first_then_moves_and_prints_the_undo(daemon, sictl):
    daemon.answers["run.apply"] = lambda params: (
        APPLIED if params["confirm"] else {**APPLIED, "applied": False, "undo": None}
    )

    done = sictl("apply", "--yes")

    assert [params["confirm"] for params in daemon.called("run.apply")] == [False, True]
    assert done.out.startswith(APPLIED["diff"])
    assert done.out.splitlines()[-1] == "undo with: git update-ref refs/heads/main bbbb cccc"


def test_apply_does_nothing_in_a_dry_run_or_where_there_is_nothing(daemon, sictl):
    daemon.answers["run.apply"] = {**APPLIED, "applied": False, "undo": None}
    assert sictl("apply", "--dry-run").out.endswith("would move by fast-forward; nothing is done yet\n")
    daemon.answers["run.apply"] = {**APPLIED, "applied": False, "undo": None, "diff": "", "stat": ""}
    assert "nothing to apply" in sictl("apply", "--yes").out
    assert not any(params["confirm"] for params in daemon.called("run.apply"))


def test_apply_off_a_terminal_needs_a_yes(daemon, sictl):
    done = sictl("apply")
    assert done.code == 2
    assert "--yes" in done.err
    assert daemon.called("run.apply") == []


@pytest.mark.parametrize("form", ["png", "svg"])
def test_plot_writes_the_file_whole(daemon, sictl, short_dir: Path, monkeypatch, form):
    monkeypatch.chdir(short_dir)
    daemon.answers["run.plot"] = lambda params: {
        "format": params["format"],
        "data": base64.b64encode(b"picture").decode(),
    }

    done = sictl("plot", "-o", f"x.{form}")

    assert done.out == f"{short_dir}/x.{form}\n"
    assert Path(f"x.{form}").read_bytes() == b"picture"
    assert [path.name for path in short_dir.iterdir() if path.is_file()] == [f"x.{form}"]
    assert json.loads(sictl("plot", "--json").out)["path"] == f"{short_dir}/sid-{RUN}.png"


def test_plot_says_what_is_in_the_way(daemon, sictl, short_dir: Path):
    daemon.answers["run.plot"] = {"format": "png", "data": ""}
    done = sictl("plot", "-o", str(short_dir / "no" / "x.png"))
    assert done.code == 1
    assert done.err.startswith("sictl: cannot write")
    daemon.answers["run.plot"] = Refused("charts are not installed", hint="pip install 'sid-daemon[charts]'")
    assert "charts" in sictl("plot").err


SETTINGS = [
    {"key": "plateau_window", "value": 5, "default": 3, "source": "settings.json"},
    {"key": "agent_command", "value": "", "default": "", "source": "default"},
]


@pytest.mark.parametrize("args", [("list",), ("list", RUN)])
def test_config_list(daemon, sictl, args):
    daemon.answers["run.config"] = {"settings": SETTINGS}

    assert [line.split() for line in sictl("config", *args).out.splitlines()] == [
        ["KEY", "VALUE", "DEFAULT", "SOURCE"],
        ["plateau_window", "5", "3", "settings.json"],
        ["agent_command", '""', "default"],
    ]
    assert sictl("config", *args, "--json").document == {"schema": 1, "settings": SETTINGS}


@pytest.mark.parametrize("args", [("plateau_window",), (RUN, "plateau_window")])
def test_config_get(daemon, sictl, args):
    daemon.answers["run.config"] = {"settings": SETTINGS[:1]}
    assert sictl("config", "get", *args).out == "5\n"
    assert daemon.called("run.config") == [{"run": RUN, "key": "plateau_window"}]


def test_config_set_prints_what_changed_and_from_when(daemon, sictl):
    changed = {"key": "plateau_window", "old": 3, "new": 5, "from_round": 8}
    daemon.answers["run.config"] = lambda params: {
        "settings": SETTINGS[:1],
        "changed": changed if "value" in params else None,
    }

    assert sictl("config", "set", "plateau_window", "5").out == "plateau_window 3 → 5, from round 8\n"
    assert daemon.called("run.config")[-1] == {"run": RUN, "key": "plateau_window", "value": 5}
    assert sictl("config", "set", RUN, "plateau_window", "null").code == 0
    assert daemon.called("run.config")[-1] == {"run": RUN, "key": "plateau_window", "value": None}


@pytest.mark.parametrize(
    ("text", "default", "value"),
    [
        ("5", 3, 5),
        ("1%", 0.01, "1%"),
        ("123", "text", "123"),
        ('"quoted"', "text", "quoted"),
        ("claude -p", "", "claude -p"),
        ("true", False, True),
        ("null", 5, None),
        ('{"a": 1}', {}, {"a": 1}),
        ("NaN", 1.0, "NaN"),
        ("[" * 100_000, 1, "[" * 100_000),
        ("1e400", 1.0, "1e400"),
        ('{"a": -1e400}', {}, {"a": "-1e400"}),
    ],
)
def test_a_value_is_json_unless_the_setting_is_text(text, default, value):
    assert parse_value(text, default) == value


def test_export(daemon, sictl):
    daemon.answers["run.export"] = {"root": "/r", "files": ["/r/a", "/r/b"]}
    assert sictl("export").out == "wrote 2 files below /r\n"
    assert sictl("export", "--json").document == {"schema": 1, "root": "/r", "files": ["/r/a", "/r/b"]}


def test_a_calibration_takes_as_long_as_the_benchmark(daemon, sictl, monkeypatch):
    monkeypatch.setitem(Session.call_run.__kwdefaults__, "timeout_s", 0.05)
    score = {"mode": "noisy", "score": 1.0, "score_before": 1.0, "samples": [1.0], "spread_pct": 0.0}
    unknown = dict.fromkeys(("sd_pair", "findable"))

    def slowly(_params):
        daemon.stopping.wait(0.5)
        return {"run_id": RUN, **score, **unknown, "run_s": 90.0, "run_timeout_s": 270.0, "notes": []}

    daemon.answers["run.calibrate"] = slowly
    assert sictl("calibrate").out.startswith(f"{RUN}: noisy, best score 1.0\n")


def test_the_daemon_itself(daemon, sictl):
    assert sictl("daemon", "status").out.startswith(
        f"sid 0.1.0, pid {NOBODY}, up 1 min, active runs: 1\nsocket "
    )
    daemon.answers["daemon.info"] = {**daemon.answers["daemon.info"], "version": "9.9.9"}
    assert "! sictl is 0.1.0" in sictl("daemon", "status").out
    assert sictl("daemon", "shutdown", "--json").document == {"schema": 1, "stopped_runs": [RUN]}
    assert daemon.called("daemon.shutdown") == [{"now": False}]


def test_sictl_alone_says_what_is_next_here(daemon, sictl, repo, monkeypatch, short_dir):
    made = repo({"a": "b"})
    monkeypatch.chdir(made.path)
    assert sictl().out.startswith(f"no run is set up in {made.path}; 1 active elsewhere\n")
    daemon.rows = [run_row(repo=str(made.path))]
    assert sictl().out.startswith("run r7f3a9c2: running, round 3/50, best 812.4, +31.8 %\n  sictl attach")
    daemon.rows = [run_row(repo=str(made.path), status="plateau")]
    assert "  sictl apply" in sictl().out
    daemon.rows = [run_row(repo=str(made.path), status="max_iterations")]
    assert "  sictl start --rounds N  go on" in sictl().out
    daemon.rows = [run_row(repo=str(made.path), status="idle")]
    assert sictl().out.splitlines()[1] == "  sictl start        begin"
    daemon.rows.append(run_row(run_id="r8888888", repo=str(made.path), topic="speed", status="plateau"))
    assert sictl().out.startswith(
        "2 runs here: default (idle), speed (plateau)\n  sictl history --topic T  what"
    )
    daemon.stop()
    assert sictl().out.startswith(f"no run is set up in {made.path}\n")
    (made.path / ".sid/topics/speed").mkdir(parents=True)
    assert sictl().out.startswith(
        f"{made.path} is set up, and no daemon is running\n  sictl history     what"
    )
    (made.path / ".sid/topics/size").mkdir()
    assert "no daemon is running: size, speed\n  sictl history --topic T  what" in sictl().out
    (made.path / ".omc/self-improve/state").mkdir(parents=True)
    assert "no daemon is running\n  sictl history     what" in sictl().out
    monkeypatch.chdir(short_dir)
    assert sictl().out.startswith(f"{short_dir} is not a git repository\n")
    for done in (sictl(), sictl("--json")):
        assert done.code == 0
        assert done.err == ""
    assert len(sictl().out.splitlines()) == len(sictl("--json").document["next"]) == 5


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("sictl stop r", "r7f3a9c2"),
        ("sictl config set plat", "plateau_window"),
        ("sictl lessons --forget time", "timeout/tool_loop/executor"),
        ("sictl show 3", "plain,3"),
        ("sictl show r7f3a9c2 3", "plain,3"),
        ("sictl show r", "r7f3a9c2"),
        ("sictl sta", "start"),
        ("sictl start --wa", "--wait"),
        ("sictl start r", "r7f3a9c2"),
        ("sictl --run r", "r7f3a9c2"),
        ("sictl history --topic d", "plain,default"),
        ("sictl init ./a", "dir,./a"),
        ("sictl demo --keep ./a", "dir,./a"),
        ("sictl plot -o ./a", "file,./a"),
        ("sictl init --backend c", "plain,command"),
        ("sictl init --format n", "plain,number"),
        ("sictl help sta", "plain,start"),
    ],
)
def test_completion_asks_the_daemon(daemon, words, offered, repo, monkeypatch, capsys):
    from sid_cli.main import complete

    daemon.answers["run.config"] = {"settings": SETTINGS}
    lesson = {"key": "timeout/tool_loop/executor", "rule": "Do not loop.", "status": "in_force", "since": 4}
    daemon.answers["run.lessons"] = {"run_id": RUN, "lessons": [lesson], "force_kills": []}
    monkeypatch.chdir(repo({"a": "b"}).path)
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    complete("bash_complete")
    assert offered in capsys.readouterr().out


def test_completion_offers_what_the_settings_take():
    context, parameter = click.Context(click.Command("init")), click.Option(["--x"])
    offered = {item.value for item in completing.complete_backend(context, parameter, "")}
    assert offered == set(get_args(Settings.model_fields["agent_backend"].annotation))
    for item in completing.complete_format(context, parameter, ""):
        assert Settings(benchmark_format=item.value)


@pytest.mark.parametrize("listens", [False, True])
def test_completion_is_silent_where_nobody_answers(monkeypatch, capsys, listens):
    from sid_cli.main import complete

    monkeypatch.setenv("COMP_WORDS", "sictl stop r")
    monkeypatch.setenv("COMP_CWORD", "2")
    with socket.socket(socket.AF_UNIX) as mute:
        if listens:  # and never answers
            mute.bind(os.environ["SID_SOCKET"])
            mute.listen()
        assert complete("bash_complete") == 0
    captured = capsys.readouterr()
    assert (captured.out.strip(), captured.err) == ("dir,r", "")
