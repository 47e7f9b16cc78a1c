"""How often actors may crash before their run fails: a window of restarts, and the wait before the next.

Used by the supervisor, one for all its children. Pure: times are arguments, in seconds of any one clock.
The rule is that of Erlang's supervisors (more than `max_restarts` within `window_s` is too many); the wait
doubles with every restart inside the window, so that a fault that persists is not hammered.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Intensity:
    """Counts restarts in a sliding window.

    Attributes:
        max_restarts: So many restarts within the window are borne; one more is too many.
        window_s: Length of the window.
        first_backoff_s: The wait before the first restart of a window.
        max_backoff_s: The longest wait.
    """

    max_restarts: int = 5
    window_s: float = 60.0
    first_backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    _times: deque[float] = field(default_factory=deque)

    def record(self, now: float) -> bool:
        """Note a restart at `now` and return whether it is still within the limit."""
        while self._times and now - self._times[0] >= self.window_s:
            self._times.popleft()
        if len(self._times) > self.max_restarts:
            self._times.popleft()  # one above the limit is all that needs remembering
        self._times.append(now)
        return len(self._times) <= self.max_restarts

    @property
    def backoff_s(self) -> float:
        """How long to wait before carrying out the restart recorded last, in seconds."""
        doublings = max(0, min(len(self._times), 32) - 1)
        return min(self.max_backoff_s, self.first_backoff_s * float(2**doublings))
