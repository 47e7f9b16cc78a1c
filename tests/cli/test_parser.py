"""Every verb with good and bad flags: one line to stderr, one document or nothing to stdout, the right code."""

from __future__ import annotations

import json
import re
import subprocess

import click
import pytest

from sid_cli.main import GROUPS, VERBS, cli

# Verb → arguments that parse and need no daemon beyond saying that there is none.
GOOD = {
    "init": ["--objective", "o", "--benchmark", "b", "--trust"],
    "start": [],
    "status": [],
    "stop": ["--now"],
    "cancel": [],
    "pause": [],
    "resume": [],
    "attach": ["--no-follow"],
    "logs": ["--no-follow"],
    "history": [],
    "show": ["3"],
    "diff": [],
    "plot": ["-o", "x.svg"],
    "idea": ["try this"],
    "config": ["list"],
    "apply": ["--yes"],
    "calibrate": [],
    "replay": [],
    "export": [],
    "lessons": [],
    "verify": [],
    "node": ["run", "/usr", "/etc/passwd"],
    "daemon": ["status"],
}
OFFLINE = {"completion": ["bash"], "help": []}
BAD = [
    *((verb, "--nonsense") for verb in VERBS),
    ("init", "--agents", "0"),
    ("init", "--agents", "many"),
    ("init", "--target", "fast"),
    ("init", "--target", "nan"),
    ("init", "--direction", "sideways"),
    ("init", "--set", "novalue"),
    ("init", "--set", "key={junk"),
    ("init", "/no/such/folder"),
    ("start", "a", "b"),
    ("start", "--rounds", "0"),
    ("demo", "--rounds", "0"),
    ("demo", "--keep", "/etc"),
    ("status", "a", "b"),
    ("status", "--color", "blue"),
    ("status", "a", "--run", "b"),
    ("status", "--socket"),
    ("attach", "--since", "yesterday"),
    ("attach", "--level", "loud"),
    ("attach", "--output", "xml"),
    ("show", "a", "b", "c"),
    ("show", "r7f3", "0"),
    ("show", "r7f3", "x"),
    ("show", "-1"),
    ("show", "9" * 5000),
    ("attach", "--since", "9" * 5000),
    ("status", "--socket="),
    ("init", ""),
    ("init", "/usr", "--run", "/etc"),
    ("plot", "-o", "x.pdf"),
    ("idea",),
    ("idea", ""),
    ("idea", "a", "b", "c"),
    ("idea", "--nonsense"),
    ("config",),
    ("config", "frobnicate"),
    ("config", "get"),
    ("config", "set", "key"),
    ("config", "list", "a", "b"),
    ("apply",),
    ("completion", "tcsh"),
    ("daemon", "restart"),
    ("service", "restart"),
    ("service", "status", "--dry-run"),
    ("help", "strat"),
    ("lessons", "a", "b"),
    ("lessons", "--all", "--forget", "x"),
    ("node", "run"),
    ("node", "walk", "/usr", "/etc/passwd"),
    ("node", "run", "/no/such/folder", "/etc/passwd"),
    ("node", "run", "/usr", "/etc/passwd", "--runs", "0"),
    ("node", "run", "/usr", "/etc/passwd", "--model", " "),
    ("strat",),
    ("watch",),
    ("--nonsense", "status"),
    ("status", "--socket", "/" + "x" * 200),
]


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("args", BAD, ids=" ".join)
def test_bad_usage_is_one_line_and_exit_2(sictl, args, as_json):
    done = sictl(*as_json, *args)

    assert done.code == 2
    assert re.fullmatch(r"sictl: [^\n]+; [^\n]+\n", done.err)
    if as_json:
        assert done.document["error"]["code"] in ("usage", "settings_invalid")
        assert done.document["error"]["message"]
    else:
        assert done.out == ""


@pytest.mark.parametrize("where", ["before", "after", "none"])
@pytest.mark.parametrize("verb", GOOD)
def test_no_daemon_is_exit_3_and_starts_none(sictl, verb, where):
    args = [verb, *GOOD[verb]]
    done = sictl(*{"before": ["--json", *args], "after": [*args, "--json"], "none": args}[where])

    assert done.code == 3
    assert done.err.count("\n") == 1
    assert "no daemon at" in done.err
    if where == "none":
        assert done.out == ""
    else:
        assert done.document["error"]["code"] == "no_daemon"


@pytest.mark.parametrize("verb", OFFLINE)
def test_verbs_that_need_no_daemon(sictl, verb):
    text, document = sictl(verb, *OFFLINE[verb]), sictl(verb, *OFFLINE[verb], "--json")

    assert (text.code, document.code, text.err, document.err) == (0, 0, "", "")
    assert document.document["schema"] == 1
    assert list(document.document.values())[-1] == text.out.removesuffix("\n")


def test_every_verb_has_a_place_in_the_help_an_example_and_the_global_options():
    told = {name for _, names in GROUPS for name in names}
    context = click.Context(cli)
    assert {VERBS[name] for name in told} == set(VERBS.values())
    for name in VERBS:
        verb = cli.get_command(context, name)
        assert verb is not None
        text = verb.get_help(click.Context(verb, info_name=name))
        assert text.startswith("Example:\n  sictl ")
        for option in ("--json", "--socket", "--run", "--color", "--no-spawn", "--help"):
            assert option in text


@pytest.mark.parametrize("args", [["--help"], ["help"], ["-h"]])
def test_help_lists_every_verb(sictl, args):
    done = sictl(*args)
    assert done.code == 0
    for name in set(VERBS) - {"cancel", "logs"}:
        assert re.search(rf"^  {name} ", done.out, re.MULTILINE)


def test_help_of_a_verb_is_the_same_by_either_way(sictl):
    assert sictl("help", "start").out == sictl("start", "--help").out
    assert json.loads(sictl("start", "--help", "--json").out)["help"].startswith("Example")


def test_the_exit_codes_are_printed(sictl):
    done = sictl("help", "exit-codes")
    for code in ("0", "1", "2", "3", "4", "5", "130", "10", "11", "12"):
        assert re.search(rf"^  {code} ", done.out, re.MULTILINE)


def test_the_version_is_one_line(sictl):
    assert re.fullmatch(r"sictl \d+\.\d+\.\d+\S*\n", sictl("--version").out)
    assert sictl("--version", "--json").document["version"]


@pytest.mark.parametrize(("typed", "meant"), [("strat", "'start'"), ("hsitory", "'history'")])
def test_an_unknown_verb_gets_the_nearest(sictl, typed, meant):
    assert f"did you mean {meant}?" in sictl(typed).err


def test_an_unknown_option_gets_the_nearest(sictl):
    assert "did you mean --objective?" in sictl("init", "--objectiv", "x").err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_valid_where_the_shell_is_there(sictl, shell, short_dir):
    script = sictl("completion", shell).out
    assert "_SICTL_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
