"""The statistical test: is B better than A, given pairs of runs of both?

Theory of operation
-------------------
Every decision rests on *gaps*: d(a, b) says by how much b beats a, 0.01 being 1 %. A pair is one
fresh run of A and one of B, in an order that a coin decides. If B is no different from A, then,
given every magnitude |d| and the past, the sign of d is that coin. So a gambler who stakes a
fraction of the purse on "plus" in each pair, a fraction that may depend on the magnitudes, plays
a fair game: the purse `E` is a nonnegative martingale that starts at 1, and by Ville's inequality
(1939) it ever reaches 1/alpha with probability at most alpha. Looking after every pair, stopping
at any time and going on after a crash are therefore free, and nothing is supposed of the noise:
no normality, no known variance, no steady machine (testing by betting: Ramdas et al., arXiv
2009.03167; pairs against a drifting machine: Fishtest, duet benchmarking arXiv 2001.05811).

The stake is tanh(c * d / s), s the median magnitude so far, for a timid and a bold c, the purse
split between both. tanh bounds what one outlier can win or lose, and the scale is made of
magnitudes only, so it tells nothing about signs. The gain itself is estimated by a trimmed mean,
the interval by inverting the test: every shift h that neither purse of (d - h) nor (h - d) could
refute. Swapping the arms mirrors everything, exactly.

Called by `noisy`, `deterministic`, `calibration` and the simulator. Never asks for a run, never
draws a coin, never rounds. Scores and gaps are floats; gaps and intervals are relative.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median, stdev
from typing import Literal

Direction = Literal["higher_is_better", "lower_is_better"]
Interval = tuple[float | None, float | None]

# Gaps beyond this are one gap: keeps every later product finite.
LARGEST_GAP = 1e100
# A reference score nearer to zero than this cannot scale a difference.
TINY = 1e-30
# The share of gaps cut off at each end of the estimate: bounds the pull of outliers, which are
# always kept, at a small loss for clean noise (Tukey's 20 % trimmed mean).
TRIM = 0.2
# Above this share of ties trimming would cut every gap that is not zero.
TIES_TOO_MANY = 0.2
# A timid stake for small gains (0.5 typical magnitudes) and a bold one for clear gains (2): one
# alone loses a third of the power at the other end.
BETS = (0.5, 2.0)
# 1 / 0.025: each side of a 95 % interval may be wrong in 2.5 % of cases.
INTERVAL_BAR = 40.0
# With fewer pairs no purse can reach INTERVAL_BAR (6 equal gaps reach 33), so both ends are open.
INTERVAL_PAIRS = 7
# Makes the median absolute deviation of Gaussian noise its standard deviation.
MAD_TO_SD = 1.4826
# Gains found 1 time in 2 and 19 times in 20, in sd of one pair, with 40 pairs and 4 candidates;
# a rule of thumb of the simulator.
POWER_HALF_SD = 0.7
POWER_FULL_SD = 1.4
# Fewer runs cannot give a 95 % interval of the median: 2 * 0.5**5 is above 5 %.
MEDIAN_RUNS = 6
_LOG_2 = math.log(2.0)
# exp() overflows at 709; a purse this full has decided long ago.
_LARGEST_LOG = 700.0
# As many pairs fill a purse to that.
_MOST_PAIRS = 1100
# Steps of the scan for an interval's end, then halvings of the step that holds it: 2**-40 of a
# step is below what a score can resolve.
_SCAN_STEPS = 64
_HALVINGS = 40
# The scan begins so many widths below the smallest gap: there every gap is at least 0.76 of the typical one, and
# seven such gaps always refute. Irrational, so that no step falls on a gap itself: there that pair would be a
# tie, and the purse of the rest says less than that of any shift beside it.
_FAR = 1 + math.sqrt(5)


@dataclass(frozen=True, slots=True)
class Scale:
    """How two scores become a gap.

    Args:
        direction: Which way the metric is better.
        logarithmic: Log of the ratio, for a continuous metric with positive scores only; else the
            difference, relative to the reference.
        reference: The best score known when the session began; unused if logarithmic.
    """

    direction: Direction
    logarithmic: bool
    reference: float = 0.0

    def gap(self, a: float, b: float) -> float:
        """Return by how much b beats a; 0.01 is 1 %, negative is worse.

        Swapping a and b gives exactly the negative.
        """
        relative = (b - a) / max(abs(self.reference), TINY)
        raw = math.log(b) - math.log(a) if self.logarithmic else relative
        if self.direction == "lower_is_better":
            raw = -raw
        return max(-LARGEST_GAP, min(LARGEST_GAP, raw))

    def gain(self, base: float, gap: float) -> float:
        """Return by how many score units what beats a score by a gap is better than it; the inverse of `gap`.

        Args:
            base: The score that is beaten; unused if not logarithmic.
            gap: By how much.
        """
        if not self.logarithmic:
            return gap * max(abs(self.reference), TINY)
        sign = 1 if self.direction == "higher_is_better" else -1
        return sign * base * math.expm1(min(sign * gap, _LARGEST_LOG))

    def relative(self, tolerance: float, *, absolute: bool) -> float:
        """Return a tolerance in units of a gap; `absolute` ones are given in units of the score."""
        return tolerance / max(abs(self.reference), TINY) if absolute else tolerance


def beats(direction: Direction, score: float, other: float) -> bool:
    """Return whether a score is strictly better than another; exact, unlike the sign of a gap."""
    return score > other if direction == "higher_is_better" else score < other


def estimate(gaps: Sequence[float]) -> float:
    """Return the gain that the gaps show: their 20 % trimmed mean.

    The plain mean where more than a fifth of the gaps are ties (counts, pass and fail), since
    trimming would leave nothing but the ties.

    Args:
        gaps: At least one gap.
    """
    ordered = sorted(gaps)
    ties = sum(1 for gap in ordered if gap == 0)
    if ties <= TIES_TOO_MANY * len(ordered):
        cut = int(TRIM * len(ordered))
        ordered = ordered[cut : len(ordered) - cut]
    return math.fsum(ordered) / len(ordered)


def mad_sd(gaps: Sequence[float]) -> float:
    """Return the sd that the median absolute deviation speaks of; 0 if half the gaps are equal."""
    middle = median(gaps)
    return MAD_TO_SD * median([abs(gap - middle) for gap in gaps])


def pair_sd(gaps: Sequence[float]) -> float:
    """Return the sd of one pair; 0 of fewer than two gaps, which show none."""
    return stdev(gaps) if len(gaps) > 1 else 0.0


class EProcess:
    """The purse of the gambler who bets that gaps are positive.

    `now` is the purse, `sup` its largest value so far, both 1 at the start. `add` is the only way
    to change it, so a replay of the same gaps gives the same bits.
    """

    __slots__ = ("_logs", "_magnitudes", "now", "sup")

    def __init__(self, gaps: Iterable[float] = ()) -> None:
        self._magnitudes: list[float] = []
        self._logs = [0.0] * len(BETS)
        self.now = 1.0
        self.sup = 1.0
        for gap in gaps:
            self.add(gap)

    def add(self, gap: float) -> None:
        """Bet on one more gap. A tie wins and loses nothing."""
        if gap == 0:
            return
        insort(self._magnitudes, abs(gap))
        scale = _middle(self._magnitudes)
        purse = 0.0
        for index, bet in enumerate(BETS):
            # log(1 + tanh(x)) as log 2 - softplus(-2x), which never takes the log of 0.
            self._logs[index] += _LOG_2 - _softplus(-2.0 * bet * gap / scale)
            purse += math.exp(min(self._logs[index], _LARGEST_LOG))
        self.now = purse / len(BETS)
        self.sup = max(self.sup, self.now)

    def rescale(self, gaps: Iterable[float]) -> None:
        """Restate the magnitudes of the past in another unit; what was won stays won.

        A stake depends on the ratio of a gap to the scale only, so a change of unit keeps the
        game fair as long as it depends on magnitudes alone.
        """
        self._magnitudes = sorted(abs(gap) for gap in gaps if gap != 0)

    @property
    def p(self) -> float:
        """The always-valid p-value: 1 over the largest purse."""
        return 1.0 / self.sup


def interval(gaps: Sequence[float]) -> Interval:
    """Return the 95 % interval of the gain: every shift that neither purse could refute.

    Args:
        gaps: The gaps of a confirm session, in order.

    Returns:
        Low and high end; (None, None), open on both sides, for fewer than 7 gaps. The estimate is
        always inside. It may be looked at after every pair without losing its coverage.
    """
    return (None, None) if len(gaps) < INTERVAL_PAIRS else _interval(tuple(gaps))


@lru_cache(
    maxsize=4
)  # a verdict tells one stage's interval in several places; it costs most of a decision's time
def _interval(gaps: tuple[float, ...]) -> Interval:
    middle = estimate(gaps)
    low = _low_end(gaps)
    high = -_low_end([-gap for gap in gaps])
    return min(low, high, middle), max(low, high, middle)


def median_interval(scores: Sequence[float]) -> Interval | None:
    """Return the order-statistic 95 % interval of the median of the scores.

    The k-th smallest and k-th largest score, k as large as the binomial law of "below the median"
    allows (David and Nagaraja, Order Statistics, 7.1); supposes nothing of the noise's shape.

    Args:
        scores: Runs of one tree.

    Returns:
        The two ends, or None under 6 scores.
    """
    count = len(scores)
    if count < MEDIAN_RUNS:
        return None
    ordered = sorted(scores)
    outside, k = 0.0, 0
    while True:
        outside += 2.0 * math.comb(count, k) * 0.5**count
        if outside > 0.05:
            break
        k += 1
    return ordered[k - 1], ordered[count - k]


def pairs_to_show(alpha: float) -> int:
    """Return how many pairs it takes to show a gain at best: all of one size, and all gains.

    Args:
        alpha: Chance to call a gain what is none.
    """
    purse, pairs = EProcess(), 0
    while purse.sup < 1 / alpha and pairs < _MOST_PAIRS:
        purse.add(1.0)
        pairs += 1
    return pairs


def findable_gains(sd: float, min_effect: float) -> tuple[float, float]:
    """Return the gains that are found 1 time in 2, and nearly always, at this noise.

    Args:
        sd: The sd of one pair, about 1.41 times that of one run.
        min_effect: No smaller gain is merged.
    """
    return max(min_effect, POWER_HALF_SD * sd), max(min_effect, POWER_FULL_SD * sd)


def _softplus(value: float) -> float:
    return max(value, 0.0) + math.log1p(math.exp(-abs(value)))


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _refuted(gaps: Sequence[float], shift: float) -> bool:
    """Return whether "the gain is at most this shift" was ever refuted."""
    purse = EProcess()
    for gap in gaps:
        purse.add(gap - shift)
        if purse.sup >= INTERVAL_BAR:
            return True
    return False


def _low_end(gaps: Sequence[float]) -> float:
    """Return the lowest shift that is not refuted: outermost crossing, by scan, then bisection."""
    smallest, largest = min(gaps), max(gaps)
    width = largest - smallest
    if width == 0:
        return smallest
    start = smallest - _FAR * width
    step = (largest - start) / _SCAN_STEPS
    index = 1
    # Ends at the largest gap at the latest: no bet is won there.
    while _refuted(gaps, start + index * step):
        index += 1
    outer, inner = start + (index - 1) * step, start + index * step
    for _ in range(_HALVINGS):
        middle = (outer + inner) / 2
        if _refuted(gaps, middle):
            outer = middle
        else:
            inner = middle
    return inner
