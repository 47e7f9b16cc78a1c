"""`sid` on a machine whose wall clock jumps: `python -m tests.faults.clock` instead of `sid`.

Every look at the wall clock is an hour later, an hour earlier or right, in turn. The clock that only goes forward is the real one.
"""

from __future__ import annotations

import itertools
import sys
import time
from datetime import datetime, timedelta, tzinfo

JUMPS_S = itertools.cycle((0, 3600, 0, -3600, 3600, -3600))
_time, _time_ns = time.time, time.time_ns


class Jumping(datetime):
    """The date and time, on that clock."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one, as others read it
        """Return the time after the next jump."""
        return datetime.now(tz) + timedelta(seconds=next(JUMPS_S))


def install() -> None:
    """Let the clock jump, in everything that is imported from now on."""
    time.time = lambda: _time() + next(JUMPS_S)
    time.time_ns = lambda: _time_ns() + next(JUMPS_S) * 10**9

    from sid_actors.workbench import benchmark
    from sid_daemon import clock

    for module in (benchmark, clock):
        vars(module)["datetime"] = Jumping


if __name__ == "__main__":
    install()
    from sid_daemon.main import main

    sys.exit(main(sys.argv[1:]))
