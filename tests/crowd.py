"""A crowd: programs that compute and leave no processor to others, for as long as a test wants them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

COMPUTES = f"""
import ctypes
ctypes.CDLL(None).prctl(1, {signal.SIGKILL:d})  # it ends with the test, however that ends
while True:
    pass
"""


@contextmanager
def crowd(each: int, processors: set[int]) -> Iterator[None]:
    """Let so many programs compute on each of the processors."""
    usual = os.sched_getaffinity(0)
    with ExitStack() as hogs:
        for processor in processors:
            os.sched_setaffinity(0, {processor})
            try:
                for _ in range(each):
                    # Each in a session of its own: the kernel may share processors out by session first.
                    hog = subprocess.Popen([sys.executable, "-c", COMPUTES], start_new_session=True)
                    hogs.enter_context(hog)
                    hogs.callback(hog.kill)
            finally:
                os.sched_setaffinity(0, usual)
        yield
