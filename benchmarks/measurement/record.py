"""Record how a real benchmark of one tree scatters on this machine, as a noise model for the simulator.

    .venv/bin/python benchmarks/measurement/record.py --runs 300 benchmarks/measurement/traces

Runs two small programs again and again, each a fresh process as the daemon's benchmarks are, in turn, and writes one
score a line: how many could be done in a second of wall time, and of CPU time. What else the machine does meanwhile is
the point: leave it to its usual work.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = {
    "python": [sys.executable, "-IS", "-c", "sum(i * i for i in range(50_000))"],
    "sort": ["sh", "-c", "seq 20000 | sort -R --random-source=/dev/zero | sort -n > /dev/null"],
}


def run(argv: list[str]) -> tuple[float, float]:
    """Run a program once; return its wall and CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(argv, check=True)
    wall_s = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Write `<program>-wall.txt` and `<program>-cpu.txt` into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    with contextlib.ExitStack() as held:
        files = {
            (name, clock): held.enter_context((options.folder / f"{name}-{clock}.txt").open("w", buffering=1))
            for name in PROGRAMS
            for clock in ("wall", "cpu")
        }
        for _ in range(options.runs):
            for name, argv in PROGRAMS.items():
                for clock, seconds in zip(("wall", "cpu"), run(argv), strict=True):
                    files[name, clock].write(f"{1 / seconds:.5g}\n")


if __name__ == "__main__":
    main()
