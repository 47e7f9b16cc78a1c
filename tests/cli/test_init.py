"""`sictl init` off a terminal: what its flags send, what is missing, what it prints."""

from __future__ import annotations

import pytest

from sid_cli.verbs.init import parameters
from sid_protocol.errors import SettingsInvalid
from tests.cli.fake_daemon import FakeDaemon

READY = {
    "run_id": "r7f3a9c2",
    "root": "/r/.sid/topics/default",
    "missing": [],
    "topic": "default",
    "sealed": ["bench.py"],
    "trusted": True,
    "trusts": {"benchmark_command": "python3 bench.py"},
    "baseline": {"score": 3.0, "samples": [3.0, 3.0, 3.0], "spread_pct": 0.0, "deterministic": True},
    "notes": ["no sandbox here"],
}


@pytest.fixture
def here(repo, monkeypatch) -> str:
    made = repo({"a": "b"})
    monkeypatch.chdir(made.path)
    return str(made.path)


def test_every_flag_reaches_the_daemon(daemon: FakeDaemon, sictl, here):
    daemon.answers["run.init"] = {**READY, "repo": here}
    flags = (
        "--objective make-it-fast --metric ops --target 1e3 --direction higher --scope src/** --scope lib/ --out-of-scope docs/ "
        "--benchmark b --format regex:(\\d+) --guard g1 --guard g2 --sealed s --rule r --family f --agents 2 --rounds 0 --backend command "
        "--agent-command c --topic T --root track --set plateau_window=5 --set budget.usd=null --trust"
    )

    assert sictl("init", *flags.split(" ")).code == 0

    assert daemon.called("run.init") == [
        {
            "repo": here,
            "objective": "make-it-fast",
            "metric": "ops",
            "target": 1000.0,
            "direction": "higher",
            "scope": ["src/**", "lib/"],
            "out_of_scope": ["docs/"],
            "benchmark": "b",
            "format": "regex:(\\d+)",
            "guard": ["g1", "g2"],
            "sealed": ["s"],
            "rule": ["r"],
            "family": ["f"],
            "agents": 2,
            "rounds": 0,
            "backend": "command",
            "agent_command": "c",
            "topic": "T",
            "root": f"{here}/track",
            "set": {"plateau_window": 5, "budget.usd": None},
            "trust": True,
            "dry_run": False,
        }
    ]


def test_what_is_not_given_is_not_sent():
    assert parameters({"objective": None, "scope": (), "rounds": None, "assignments": ()}) == {}


def test_a_bare_word_is_a_string_and_objects_of_one_key_are_joined():
    typed = ("on_branch_moved=rebase", 'deadlines={"executor": 5}', 'deadlines={"planner": 7}', "record=true")
    assert parameters({"assignments": typed})["set"] == {
        "on_branch_moved": "rebase",
        "deadlines": {"executor": 5, "planner": 7},
        "record": True,
    }
    with pytest.raises(SettingsInvalid, match="is not JSON"):
        parameters({"assignments": ('deadlines={"executor": 5',)})


def test_missing_flags_are_named_all_at_once(daemon, sictl, here):
    daemon.answers["run.init"] = {
        "run_id": None,
        "root": "/r",
        "missing": ["--objective", "--benchmark", "--trust"],
    }

    done = sictl("init", "--json")

    assert done.code == 2
    assert done.document["error"]["message"] == "init needs --objective, --benchmark, --trust"
    assert done.err == sictl("init").err
    assert done.err.count("\n") == 1


def test_it_ends_with_baseline_seal_and_the_one_command(daemon, sictl, here):
    daemon.answers["run.init"] = {**READY, "repo": here}

    done = sictl("init", "--trust")

    assert done.out.splitlines()[1:] == [
        "baseline 3 (3 runs, the same each time)",
        "sealed, no candidate may change them:",
        "  bench.py",
        "note: no sandbox here",
        "next: sictl start",
    ]
    document = sictl("init", "--trust", "--json").document
    assert document["next"] == "sictl start"
    assert document["sealed"] == ["bench.py"]


def test_a_dry_run_shows_what_would_be_trusted(daemon, sictl, here):
    daemon.answers["run.init"] = {
        **READY,
        "run_id": None,
        "baseline": None,
        "repo": here,
        "missing": ["--trust"],
    }

    done = sictl("init", "--dry-run")

    assert done.code == 0
    assert "benchmark: python3 bench.py" in done.out
    assert done.out.endswith("still missing: --trust\nnothing was written or run\n")
    assert daemon.called("run.init")[0]["dry_run"] is True
