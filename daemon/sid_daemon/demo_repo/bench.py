"""How much work a day at the office is.

The work is counted, not timed: it is the number of lines of Python that are executed while the program is loaded
and the report is made, in the program and in the library alike, as `sys.settrace` reports them. A comparison of
two labels is Python, too (a dataclass writes it), so it counts each time that a list, a set or a sort asks for it.
The count depends on nothing but the program, its input and the version of Python: it is the same on every run.
What C code does inside one line is not seen by it; the seconds of a second, untraced run are printed beside it.

Prints one line of JSON, {"primary": lines, "sub_scores": {...}}, lower is better; a wrong report exits with 1.
"""

import hashlib
import importlib
import json
import re
import sys
import time

PARCELS = 320
RIGHT = "d6cf65b293f902da"


def dice(seed):
    """Yield numbers that look random and are the same everywhere."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield seed >> 33


def misspelt(town, roll):
    """Return a town's name with one slip of the pen."""
    place = 1 + roll % (len(town) - 2)
    return (town[:place] + town[place + 1 :], town[:place] + town[place] + town[place:])[roll % 2]


def a_day():
    """Return the clerk's log and the announced numbers of one day."""
    rolls = dice(2024)
    towns = fresh("parcels.gazetteer").TOWNS
    slips = [misspelt(towns[next(rolls) % len(towns)], next(rolls)) for _ in range(16)]
    lines, numbers = [], []
    for minute in range(PARCELS):
        number = 1000 + next(rolls) % 3000
        if numbers and minute % 5 == 0:  # written down twice
            lines.append(lines[next(rolls) % len(lines)])
            continue
        numbers.append(number)
        written = slips[next(rolls) % 16] if next(rolls) % 3 == 0 else towns[next(rolls) % len(towns)]
        time_of_day = f"{8 + minute // 60:02}:{minute % 60:02}"
        lines.append(f"{time_of_day} no. {number} to {written}, {1 + next(rolls) % 30} kg")
        if minute % 40 == 0:
            lines.append("-- tea --")
    announced = sorted({n for n in numbers if n % 7} | {1000 + next(rolls) % 3000 for _ in range(700)})
    return "\n".join(lines), announced


def fresh(module):
    """Import a module of the program anew, so that nothing is remembered from a run before."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "parcels"]:
        del sys.modules[name]
    return importlib.import_module(module)


def counted(work, *arguments):
    """Return what `work` returns, and how many lines of Python that took."""
    lines = 0
    re.purge()  # patterns that were compiled before would come for nothing

    def trace(frame, event, _argument):
        nonlocal lines
        if event == "line":
            lines += 1
        elif frame.f_code.co_filename.startswith("<frozen"):
            return None  # the import system: what it does depends on caches on the disk
        return trace

    sys.settrace(trace)
    try:
        result = work(*arguments)
    finally:
        sys.settrace(None)
    return result, lines


def work(log, announced):
    """Load the program and make the report."""
    return fresh("parcels.office").day(log, announced)


def main():
    """Run the day twice, counted and timed; return the exit status."""
    log, announced = a_day()
    fresh("parcels.office")  # so that the library modules that it needs are there, and are not counted
    report, lines = counted(work, log, announced)
    started = time.perf_counter()
    again = work(log, announced)
    seconds = time.perf_counter() - started
    digest = hashlib.sha256(report.encode()).hexdigest()[:16]
    if digest != RIGHT or again != report:
        print(f"the report is wrong: {digest}", file=sys.stderr)
        return 1
    print(json.dumps({"primary": lines, "sub_scores": {"seconds": round(seconds, 4)}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
