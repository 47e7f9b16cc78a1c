"""Candidate code that forges its score, floods the machine, or talks to whoever reads about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.attacks.target import FILES, FORGED, HONEST, outcomes, score_without_guards, seat, set_up
from tests.conftest import MakeRepo
from tests.e2e.conftest import world
from tests.e2e.harness import World, clean_repository, sandbox_works
from tests.repos import Repo

__all__ = ["world"]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")]

# What each candidate's app.py is; the first item names the detector that rejects it.
FORGED_BY: dict[str, tuple] = {
    "print and leave": ("exit_trick", "import os\nprint(999.0, flush=True)\nos._exit(0)\n"),
    "leave by another name": (
        "exit_trick",
        "from os import _exit as out\nprint('999.0', flush=True)\nout(0)\n",
    ),
    "print at exit": ("exit_hook", "import atexit\natexit.register(print, 999.0)\nVALUE = 2\n"),
    "another print": (
        "judge_patched",
        "import builtins\nreal = builtins.print\nbuiltins.print = lambda *a: real(999.0)\nVALUE = 2\n",
    ),
    "another standard output": (
        "judge_patched",
        (
            "import sys\nclass Out:\n    def __init__(self, out): self.out = out\n"
            "    def write(self, text): self.out.write('999.0' if text.strip() else text)\n"
            "    def flush(self): self.out.flush()\nsys.stdout = Out(sys.stdout)\nVALUE = 2\n"
        ),
    ),
    "another judge": (
        "judge_patched",
        "from judge import check\nsetattr(check, 'score', lambda value: 999.0)\nVALUE = 2\n",
    ),
    "a wider judge": ("judge_patched", "import judge.check\njudge.check.LIMIT = 999\nVALUE = 999\n"),
    "a judge of its own": (
        "judge_patched",
        (
            "import sys, types\nmine = types.ModuleType('judge.check')\nmine.score = lambda value: 999.0\n"
            "import judge\njudge.check = mine\nsys.modules['judge.check'] = mine\nVALUE = 2\n"
        ),
    ),
    "an importer": (
        "import_hook",
        (
            "import sys, types\nclass Hook:\n    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'judge.check':\n            import importlib.util\n"
            "            return importlib.util.spec_from_loader(name, self)\n"
            "    def create_module(self, spec): return None\n"
            "    def exec_module(self, module): module.score = lambda value: 999.0\n"
            "sys.meta_path.insert(0, Hook())\nVALUE = 2\n"
        ),
    ),
    "a frame of the judge": (
        "detects_benchmark",
        (
            "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
            "class D:\n    Decimal = staticmethod(lambda v: v)\n"
            "class V(float):\n    def __lt__(self, o): return True\n    def __gt__(self, o): return False\n"
            "VALUE = V(999.0)\nframe.f_globals['decimal'] = D\n"
        ),
    ),
    "a standard module": (
        "shadows_module",
        "VALUE = 2\n",
        {"decimal.py": "import os\nprint(999.0, flush=True)\nos.abort\nraise SystemExit(0)\n"},
    ),
}


@pytest.fixture
def target(repo: MakeRepo) -> Repo:
    return repo(FILES)


def edits_of(name: str) -> dict[str, str]:
    _, text, *more = FORGED_BY[name]
    return {"app.py": text, **(more[0] if more else {})}


def test_each_forgery_wins_where_nothing_guards(target: Repo, world: World) -> None:
    lost = []
    for name in FORGED_BY:
        target.write(edits_of(name))
        if score_without_guards(target.path, world.env) != FORGED:
            lost.append(name)
        target.git("checkout", "--quiet", ".")
        target.git("clean", "-qfdx")
    assert lost == [], "no attacks at all: they prove nothing of a guard"


def test_forgeries_are_rejected_with_the_detectors_name(target: Repo, world: World) -> None:
    agent = world.agent()
    seats = {**dict.fromkeys(FORGED_BY, "true"), "honest": "true"}
    seat(agent, seats, {name: edits_of(name) for name in FORGED_BY})
    set_up(world, target, agent, len(seats), sandbox=True)
    with clean_repository(target):
        world.run(target, "--rounds", "1")
    found = outcomes(world, target, list(seats))

    wrong = {
        name: found[name] for name, (detector, *_) in FORGED_BY.items() if detector not in found[name].why
    }
    assert wrong == {}
    assert {found[name].category for name in FORGED_BY} == {"sealed_file_violation"}
    assert (found["honest"].score, world.row(target)["best_score"]) == (HONEST, HONEST)


@pytest.mark.parametrize("guard", ["nothing", "bounds", "token"])
def test_bounds_and_token_stop_what_no_detector_looked_at(target: Repo, world: World, guard: str) -> None:
    if guard == "token":
        told = "import os, decimal\nimport app\nfrom judge import check\n"
        told += "print(check.score(decimal.Decimal(app.VALUE)), os.environ.get('SID_SCORE_TOKEN', ''))\n"
        target.commit({"bench.py": told}, "Echo the token")
    name = "print and leave"
    agent = world.agent()
    seat(agent, {name: "true", "honest": "true"}, {name: edits_of(name)})
    off = json.dumps(dict.fromkeys(("exit_trick", "prints_score"), "ignore"))
    more = {"nothing": [], "bounds": ["--set", "score_bounds=[0,50]"], "token": ["--set", "score_token=true"]}
    set_up(world, target, agent, 2, "--set", f"detectors={off}", *more[guard], sandbox=True)
    world.run(target, "--rounds", "1")
    found = outcomes(world, target, [name, "honest"])

    if guard == "nothing":
        assert found[name].score == FORGED
        return
    assert (found[name].score, found[name].category) == (None, "benchmark_parse_error")
    assert {"bounds": "score_bounds", "token": "SID_SCORE_TOKEN"}[guard] in found[name].why
    assert found["honest"].score == HONEST


WARNED_OF = {
    "clock_read": {"app.py": "import time\nBEGUN = time.time()\nVALUE = 2\n"},
    "process_started": {"app.py": "import subprocess\nsubprocess.run(['true'])\nVALUE = 2\n"},
    "scope": {"app.py": "VALUE = 2\n", "lib/part.py": "Y = 3\n"},
}


def test_what_only_warns_is_measured_and_on_record(target: Repo, world: World) -> None:
    agent = world.agent()
    rejected = "print and leave"
    seats = dict.fromkeys((*WARNED_OF, rejected, "honest"), "true")
    seat(agent, seats, {**WARNED_OF, rejected: edits_of(rejected)})
    scope = json.dumps({"include": ["app.py"], "on_violation": "warn"})
    set_up(world, target, agent, len(seats), "--set", f"scope={scope}", sandbox=True)
    world.run(target, "--rounds", "1")
    found = outcomes(world, target, list(seats))
    shown = world.sictl("show", target.path, "1", "--json").json["round"]
    findings = {
        name: result["findings"] for name, result in zip(seats, shown["results"], strict=True)
    }  # in the order of the executors, which is that of the seats

    for name in WARNED_OF:
        assert (found[name].score, found[name].category) == (HONEST, None)
        assert findings[name][0].startswith(f"{name}: "), findings[name]
    assert any(line.startswith("exit_trick: app.py: ") for line in findings[rejected])
    assert (found[rejected].category, findings["honest"]) == ("sealed_file_violation", [])
    verdicts = {item["claim"].split(":")[0]: item["verdict"] for item in shown["history"]["evidence"][1:]}
    assert verdicts == {
        **{f"executor_{number}": "warned of, and measured all the same" for number in (1, 2, 3)},
        "executor_4": "rejected, and not measured",
    }
    text = world.sictl("show", target.path, "1").out
    assert "finding: scope: changed outside the scope: lib/part.py" in text
    assert "claim: executor_4: " in text


@pytest.mark.parametrize(
    ("more", "told"),
    [("score_bounds=[0,0.5]", "score_bounds"), ("score_token=true", "SID_SCORE_TOKEN")],
)
def test_set_up_needs_a_benchmark_that_keeps_the_rules(
    target: Repo, world: World, more: str, told: str
) -> None:
    done = world.sictl(
        *("init", target.path, "--objective", "raise the number", "--trust", "--backend", "local"),
        *("--benchmark", "PYTHONPATH=. python3 -B bench.py", "--format", "number", "--set", more),
        code=None,
    )
    assert done.code != 0
    assert told in done.err


FLOODS = {
    "output of the agent": "head -c 200000000 /dev/zero | tr '\\0' 'x'",
    "lines of the agent": "yes | head -c 50000000 >&2; yes | head -c 50000000",
    "bytes in the worktree": "head -c 3000000 /dev/urandom > big; head -c 3000000 /dev/urandom > big2",
    "one large file": "head -c 20000000 /dev/zero > large",
    "files in the worktree": "mkdir many; for i in $(seq 3000); do echo > many/$i; done",
    "processes": "for i in $(seq 100); do setsid sleep 600 & done",
    "too many processes": "for i in $(seq 400); do setsid sleep 600 & done; sleep 600",
    "ignored files": "while :; do n=$((n+1)); head -c 500000 /dev/zero > $n.log; done",
    "a file without a name": "exec 3> f; rm f; while :; do head -c 500000 /dev/zero >&3; done",
    "memory of many": "for i in $(seq 9); do python3 -c 'x = bytearray(9 * 10**7); import time; time.sleep(600)' & done; wait",
    "private folders": "for d in /tmp /dev/shm $HOME; do head -c 9000000 /dev/zero > $d/f; done",
    "memory": "python3 -c 'bytearray(10**9)' || true",
    "a deep folder": "for i in $(seq 300); do mkdir -p aaaaaaaaaaaaaaaaaaaaaaaaaaaa; cd aaaaaaaaaaaaaaaaaaaaaaaaaaaa; done; echo > f",
    "a writer that stays": "setsid bash -c 'sleep 2; while :; do echo VALUE = 49 > app.py; sleep 0.01; done' & disown",
    "unreadable": "mkdir d; echo > d/f; chmod 0 d/f d; chmod 0 lib",
}
BENCH_FLOODS = {
    "output of the benchmark": "import sys\nfor _ in range(2000): sys.stdout.write('9' * 100000)\nprint()\nVALUE = 2\n",
    "memory of the benchmark": "x = bytearray(10**9)\nVALUE = 2\n",
    "files of the benchmark": "open('/tmp/x', 'wb').write(bytes(20_000_000))\nVALUE = 2\n",
    "time of the benchmark": "while True: pass\n",
    "a file of the benchmark": "open('x', 'wb').write(bytes(20_000_000))\nVALUE = 2\n",
    "processes of the benchmark": "import subprocess\np = [subprocess.Popen(['sleep', '60']) for _ in range(400)]\n"
    "import time\ntime.sleep(60)\n",
    "checkout of the benchmark": "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'wb').write(bytes(500_000))\n",
    "open files of the benchmark": "f = [open('/dev/null') for _ in range(900)]\nVALUE = 2\n",
    "recursion": "exec('VALUE = ' + '(' * 150 + '2' + ')' * 150)\n",
}
LIMITS = (
    '{"memory_mb": 500, "file_mb": 10, "worktree_mb": 4, "processes": 200, "output_mb": 1, "open_files": 500}'
)
ENDED_FOR = {
    "too many processes": ("logic_error", "limits.processes is 200"),
    "ignored files": ("scope_error", "limits.worktree_mb is 4"),
    "a file without a name": ("scope_error", "limits.worktree_mb is 4"),
    "memory of many": ("logic_error", "limits.memory_mb is 500"),
    "bytes in the worktree": ("scope_error", "limits.worktree_mb is 4"),
    "memory of the benchmark": ("oom", "limits.memory_mb is 500"),
    "time of the benchmark": ("timeout", "within 3 s"),
    "files of the benchmark": ("logic_error", "a sandbox's private folders hold 4 MB each"),
    "a file of the benchmark": ("logic_error", "limits.file_mb is 10"),
    "processes of the benchmark": ("logic_error", "limits.processes is 200"),
    "checkout of the benchmark": ("logic_error", "limits.worktree_mb is 4"),
    "open files of the benchmark": ("logic_error", "limits.open_files is 500"),
}
"""How each that cannot go on ends: category, and the words that name the limit."""


@pytest.mark.timeout(600)
def test_floods_end_where_the_limits_are(target: Repo, world: World) -> None:
    agent = world.agent()
    seats = {**FLOODS, **dict.fromkeys(BENCH_FLOODS, "true"), "honest": "true"}
    seat(agent, seats, {name: {"app.py": text} for name, text in BENCH_FLOODS.items()})
    set_up(
        *(world, target, agent, len(seats), "--set", f"limits={LIMITS}", "--set", "deadlines.benchmark=3"),
        sandbox=True,
    )
    with clean_repository(target):
        world.sictl("start", target.path, "--rounds", "1")
        with world.wire() as wire:
            wire.follow().until("run_ended")
    found = outcomes(world, target, list(seats))

    told = {name: (found[name].category, words in found[name].why) for name, (_, words) in ENDED_FOR.items()}
    assert told == {name: (category, True) for name, (category, _) in ENDED_FOR.items()}, found
    shown = world.sictl("show", target.path, "1", "--json").json["round"]["results"]
    (flooded,) = [
        r for r in shown if r["executor_id"] == f"executor_{list(seats).index('output of the benchmark') + 1}"
    ]
    assert "bytes cut" in flooded["benchmark_raw"]
    assert {one.score for one in found.values()} <= {HONEST, None}
    assert found["a writer that stays"].score == found["processes"].score == found["honest"].score == HONEST
    assert (target.path / "app.py").read_text() == "VALUE = 1\n"


ESCAPE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"
HOSTILE_PLANS = {
    "terminal escapes": {"hypothesis": f"Raise {ESCAPE} it"},
    "a trailer in the commit": {
        "hypothesis": "Raise it\n\nReviewed-by: The Owner <o@example.invalid>\nMerge: abc"
    },
    "HTML": {"hypothesis": "Raise <script>alert(1)</script><img src=x onerror=alert(1)> it"},
    "carriage return": {"hypothesis": "Raise it\rBest Score: 999.0"},
    "bidi": {"hypothesis": "Raise \u202e999 it"},
    "another folder": {"file": "../outside.py"},
    "an absolute path": {"file": "/etc/passwd"},
    "the judge": {"file": "judge/check.py"},
    "git": {"file": ".git/config"},
    "the state": {"file": ".sid/topics/default/config/settings.json"},
    "two hypotheses": {"hypothesis": "1. Raise it\n2. Lower it"},
    "an unknown family": {"family": "cheating"},
    "ten megabytes": {"print": json.dumps({"hypothesis": "x"})[:-2], "times": 1},
    "no plan": {"print": "I would rather not."},
    "nesting": {"print": "[" * 100_000},
    "a surrogate": {"print": '{"hypothesis": "\\ud800"}'},
    "NaN": {"print": '{"hypothesis": NaN}'},
}
REJECTED = (
    "another folder",
    "an absolute path",
    "the judge",
    "git",
    "the state",
    "two hypotheses",
    "an unknown family",
)


def test_hostile_plans_are_data_and_the_rules_bind(target: Repo, world: World, short_dir: Path) -> None:
    names = [*HOSTILE_PLANS, "honest"]
    agent = world.agent()
    seat(agent, dict.fromkeys(names, "true"))
    rules = json.loads((agent.folder / "script.json").read_text())
    for rule, name in zip(rules, names, strict=True):
        rule.update(HOSTILE_PLANS.get(name, {}))
        if name == "ten megabytes":
            rule.update({"print": "x" * 1_000_000, "times": 10})
    agent.script(*rules)
    set_up(world, target, agent, len(names), sandbox=True)
    with clean_repository(target):
        world.run(target, "--rounds", "1")

    shown = world.sictl("show", target.path, "1", "--json").json["round"]
    approved = {plan["planner_id"]: plan["critic_approved"] for plan in shown["plans"]}
    seats = {name: rule["agent"] for name, rule in zip(names, rules, strict=True)}
    assert {name for name in REJECTED if approved.get(seats[name])} == set()
    assert approved[seats["honest"]]
    texts = [world.sictl(verb, target.path).out for verb in ("show", "history", "status", "diff")]
    texts.append(world.sictl("attach", target.path, "--no-follow", "--since", "0").out)
    texts.append(target.git("log", "--format=%B", "main..improve/raise_the_number"))
    for text in texts:
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text), text[:2000]
    assert "Reviewed-by" not in target.git("log", "--format=%(trailers)", "main..improve/raise_the_number")
    for path in (target.path / ".sid").rglob("*.json"):
        json.loads(path.read_text())
