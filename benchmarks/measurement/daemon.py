"""The measuring rule through the real daemon: rounds on a benchmark whose truth is known, and how often they merge.

    .venv/bin/python benchmarks/measurement/daemon.py --rounds 300
    .venv/bin/python benchmarks/measurement/daemon.py --rounds 40 --gain 0.05
    .venv/bin/python benchmarks/measurement/daemon.py --rounds 20 --model 'bimodal 1 %'

Starts a `sid` of its own in a new folder, sets a small repository up whose score is a number times seeded Gaussian noise,
and lets a scripted agent propose candidates: without `--gain` none is better, with it the first planner's is. Real
processes throughout: agents, benchmark, git. Everything is gone at the end, but with `--keep`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

if __package__ in {None, ""}:  # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.measurement.worlds import MODELS

BIN = Path(sys.executable).parent
CHUNK = 25
"""Rounds between two lines of progress."""

# Shell and awk, so that a run costs a few milliseconds. The noise stands in a file, drawn from the seed, a line a run,
# so that a whole session can be made again.
BENCH = """\
began=$(date +%s%N)
run=$(cat "$1/count")
echo $((run + 1)) > "$1/count"
awk -v run=$run 'FNR == NR { value = $1; next } FNR == run + 1 { printf "%.12g\\n", value * $1; exit }' value.txt "$1/noise"
echo "$began $(date +%s%N)" >> "$1/spans"
"""
AGENT = """\
cat > /dev/null
n=$SID_ITERATION
family() {
    set -- $(((n * 2 + $1) % 6)) optimization data infrastructure architecture training_config testing
    shift "$1"
    echo "$2"
}
case $SID_ROLE in
researcher)
    ideas=""
    for k in 0 1 2; do
        ideas="$ideas${ideas:+,}{\\"title\\": \\"Idea $k of round $n\\", \\"approach_family\\": \\"$(family $k)\\",
            \\"source\\": \\"code\\", \\"evidence\\": \\"small\\", \\"confidence\\": \\"high\\", \\"estimated_impact\\": \\"1\\"}"
    done
    echo "{\\"repo_analysis_summary\\": \\"One number.\\", \\"ideas\\": [$ideas]}" ;;
planner)
    case $SID_AGENT_ID in *_a) k=0 ;; *_b) k=1 ;; *_c) k=2 ;; *) k=3 ;; esac
    kind=same file=note_$k.txt
    [ "$1" != 0.0 ] && [ $k = 0 ] && kind=better file=value.txt
    cat <<END
{"hypothesis": "$kind: candidate $k of round $n", "approach_family": "$(family $k)", "target_files": ["$file"],
 "steps": [{"step": 1, "file": "$file", "change": "$kind"}],
 "expected_outcome": {"metric": "primary", "estimated_impact": "1", "rationale": "known"},
 "history_reference": {"builds_on": "none", "avoids": "none"}}
END
    ;;
architect) echo '{"verdict": "approve", "feedback": "ok", "structural_concerns": []}' ;;
critic)
    points=""
    for point in h001_hypothesis_count h002_family_streak h003_intra_round_diversity schema_valid history_aware; do
        points="$points\\"$point\\": \\"pass\\", "
    done
    echo "{$points\\"verdict\\": \\"approved\\", \\"rejection_reason\\": null}" ;;
*)
    if grep -q '"better"' "$SID_PLAN_FILE"; then
        awk -v gain="$1" '{ printf "%.15g\\n", $1 * (1 + gain) }' value.txt > value.new
        cat value.new > value.txt
        rm value.new
    else
        echo "round $n" > "note_${SID_AGENT_ID##*_}.txt"
    fi
    echo "done" ;;
esac
"""
MOST_RUNS = 100
"""Benchmark runs a round for which there is noise; a round asks for 120 at most, on average for 40."""


def noise(seed: str, sd: float, count: int, model: str | None = None) -> str:
    """Return so many factors around 1, a line each; Gaussian, or of one of the simulator's models."""
    dice = random.Random(seed)
    if model is None:
        return "".join(f"{1 + dice.gauss(0, sd)!r}\n" for _ in range(count))
    return "".join(f"{math.exp(one)!r}\n" for one in itertools.islice(MODELS[model](dice), count))


class World:
    """A daemon and a repository of their own, in one folder.

    Args:
        base: The folder, short enough for a socket.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.repo = base / "repo"
        kept = ("PATH", "PYTHONPATH", "LANG", "USER", "TERM")
        self.env = {name: os.environ[name] for name in kept if name in os.environ} | {
            "HOME": str(base / "home"),
            "SID_SOCKET": str(base / "s"),
            "SID_STATE_DIR": str(base / "state"),
            "XDG_RUNTIME_DIR": str(base / "run"),
            "SID_NO_SPAWN": "1",
        }

    def make(self, options: argparse.Namespace) -> None:
        """Write the repository, the agent and the places."""
        for name in ("home", "run", "out"):
            (self.base / name).mkdir(mode=0o700)
        self.repo.mkdir()
        (self.base / "agent.sh").write_text(AGENT)
        for name, text in {"bench.sh": BENCH, "value.txt": "100.0\n", "README.md": "One number.\n"}.items():
            (self.repo / name).write_text(text)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "-A")
        self.git(
            "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "Start"
        )
        out = self.base / "out"
        (out / "count").write_text("0\n")
        (out / "noise").write_text(
            noise(options.seed, options.sd, MOST_RUNS * (options.rounds + 1), options.model)
        )
        values = {
            "benchmark_paths": [f"{out}:rw"],
            "circuit_breaker_threshold": 10**6,
            "plateau_window": 10**6,
            "measurement.screen_blocks": options.blocks,
            "measurement.mode": "noisy" if options.sd else "auto",
            "max_iterations": 10**6,
        }
        self.sictl(
            *("init", str(self.repo), "--objective", "raise the number", "--trust", "--format", "number"),
            *(
                "--benchmark",
                f"sh bench.sh {out}",
                "--sealed",
                "bench.sh",
            ),
            *("--agents", str(options.agents), "--agent-command"),
            f"sh {self.base}/agent.sh {options.gain}",
            *(word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")),
        )

    def git(self, *words: str) -> None:
        """Run git in the repository."""
        subprocess.run(["git", *words], cwd=self.repo, env=self.env, check=True)

    def sictl(self, *words: str) -> Any:
        """Run `sictl --json` and return its document.

        Raises:
            SystemExit: it failed.
        """
        done = subprocess.run(
            [BIN / "sictl", *words, "--json"], env=self.env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"sictl {words[0]}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def overlaps(self) -> int:
        """Return how many benchmark runs began before another had ended."""
        spans = sorted(
            tuple(map(int, line.split())) for line in (self.base / "out/spans").read_text().splitlines()
        )
        return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))


def wilson(hits: int, of: int) -> str:
    """Return a share in percent with its 95 % interval (Wilson)."""
    if not of:
        return "-"
    z, share = 1.96, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{100 * share:.2f} [{100 * max(0.0, middle - half):.2f}, {100 * (middle + half):.2f}]"


def told(world: World, options: argparse.Namespace, seconds: float) -> str:
    """Return what the rounds so far show."""
    rounds = world.sictl("history", str(world.repo))["rounds"]
    merged = [one for one in rounds if one["status"] == "merged"]
    false = [one for one in merged if not one["hypothesis"].startswith("better")]
    right = len(merged) - len(false)
    row = world.sictl("status", str(world.repo))["run"]
    runs = len((world.base / "out/spans").read_text().splitlines())
    lines = [
        f"{len(rounds)} rounds in {seconds:.0f} s, {runs / max(1, len(rounds)):.1f} benchmark runs a round",
        f"{world.overlaps()} of {runs} benchmark runs overlap another",
        f"false merges: {len(false)} of {len(rounds)}: {wilson(len(false), len(rounds))} %",
        f"best score {row['best_score']:.4f}, interval {row['interval']}",
    ]
    if options.gain:
        truth = math.log1p(options.gain)
        held = [one for one in merged if one not in false and one["ci"] and _holds(one["ci"], truth)]
        lines.append(f"found: {right} of {len(rounds)}: {wilson(right, len(rounds))} %")
        lines.append(f"the interval holds the truth: {len(held)} of {right}: {wilson(len(held), right)} %")
    return "\n".join(lines)


def _holds(ends: list[float | None], truth: float) -> bool:
    low, high = ends
    return (low is None or low <= truth) and (high is None or truth <= high)


def main() -> None:
    """Run the rounds and print what they show, every `CHUNK` rounds and at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument(
        "--gain", type=float, default=0.0, help="true gain of the first candidate; 0.05 is 5 %%"
    )
    parser.add_argument("--sd", type=float, default=0.01, help="relative sd of one run; 0 is deterministic")
    parser.add_argument("--model", choices=MODELS, help="another kind of noise than Gaussian, of any --sd")
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=4, help="screen_blocks; 1 is the quick profile")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    shm = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(prefix="sm-", dir=shm if shm.is_dir() else None))
    world = World(base)
    daemon: subprocess.Popen[bytes] | None = None
    read_end, write_end = os.pipe()
    try:
        with (base / "sid.log").open("wb") as log:
            daemon = subprocess.Popen(
                [BIN / "sid", "--ready-fd", str(write_end)],
                env=world.env,
                cwd="/",
                pass_fds=(write_end,),
                start_new_session=True,  # Ctrl-C is for us
                stdout=log,
                stderr=log,
            )
        os.close(write_end)
        os.read(read_end, 16)
        world.make(options)
        began = time.monotonic()
        try:
            for first in range(0, options.rounds, CHUNK):
                count = min(CHUNK, options.rounds - first)
                world.sictl("start", str(world.repo), "--rounds", str(count), "--wait")
                print(told(world, options, time.monotonic() - began), flush=True)
        except KeyboardInterrupt:
            print(told(world, options, time.monotonic() - began), flush=True)
    finally:
        os.close(read_end)
        if daemon is not None:
            daemon.terminate()
            daemon.wait()
        if options.keep:
            print(f"kept: {base}")
        else:
            shutil.rmtree(base)


if __name__ == "__main__":
    main()
