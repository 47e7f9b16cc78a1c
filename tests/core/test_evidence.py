"""The statistical test: valid for any noise, mirrored by a swap of the arms, the same on every replay."""

from __future__ import annotations

import itertools
import math
import random
from statistics import NormalDist, fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sid_daemon.core.measuring.dice import coin, shuffled, word
from sid_daemon.core.measuring.evidence import (
    EProcess,
    Scale,
    beats,
    estimate,
    findable_gains,
    interval,
    mad_sd,
    median_interval,
    pair_sd,
)

ALPHA = 0.01
FIGURES = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)
POSITIVE = st.floats(min_value=1e-6, max_value=1e6, allow_nan=False)


def closed(gaps):
    low, high = interval(gaps)
    assert low is not None
    assert high is not None
    return low, high


def first_crossing(gaps, bar=1 / ALPHA):
    purse = EProcess()
    for number, gap in enumerate(gaps, 1):
        purse.add(gap)
        if purse.sup >= bar:
            return number
    return None


@given(POSITIVE, POSITIVE, st.booleans(), st.sampled_from(["higher_is_better", "lower_is_better"]))
def test_swapping_the_arms_mirrors_the_gap(a, b, logarithmic, direction):
    scale = Scale(direction, logarithmic, reference=3.0)
    assert scale.gap(a, b) == -scale.gap(b, a)
    assert (scale.gap(a, b) > 0) <= beats(direction, b, a)


def test_a_gap_is_a_share_of_the_score():
    assert Scale("higher_is_better", logarithmic=True).gap(100, 101) == pytest.approx(math.log(1.01))
    assert Scale("lower_is_better", logarithmic=True).gap(100, 101) == pytest.approx(-math.log(1.01))
    assert Scale("higher_is_better", logarithmic=False, reference=-50).gap(-50, -49) == pytest.approx(0.02)
    assert Scale("higher_is_better", logarithmic=False, reference=50).relative(1, absolute=True) == 0.02
    for direction in ("higher_is_better", "lower_is_better"):
        for scale in (Scale(direction, logarithmic=True), Scale(direction, logarithmic=False, reference=-50)):
            assert scale.gain(50, scale.gap(50, 60)) == pytest.approx(10 if direction[0] == "h" else -10)
    # However small the unit: losses of a picosecond have shares, too.
    assert Scale("lower_is_better", logarithmic=False, reference=-1e-12).gap(
        -1e-12, -1.05e-12
    ) == pytest.approx(0.05)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_no_finite_score_makes_a_gap_that_is_not(a, b):
    gap = Scale("higher_is_better", logarithmic=False, reference=0.0).gap(a, b)
    assert math.isfinite(gap)
    assert math.isfinite(EProcess([gap, -gap, gap, 1e-300]).now)


@given(st.lists(FIGURES, min_size=1, max_size=30))
def test_swapping_the_arms_mirrors_estimate_and_interval(gaps):
    mirrored = [-gap for gap in gaps]
    assert estimate(mirrored) == -estimate(gaps)
    low, high = interval(gaps)
    if low is None or high is None:
        assert len(gaps) < 7
        assert interval(mirrored) == (None, None)
    else:
        assert interval(mirrored) == (-high, -low)
        assert low <= estimate(gaps) <= high


@given(st.lists(FIGURES, max_size=30), st.data())
def test_replaying_any_prefix_gives_the_same_bits(gaps, data):
    cut = data.draw(st.integers(0, len(gaps)))
    whole, prefix = EProcess(gaps), EProcess(gaps[:cut])
    for gap in gaps[cut:]:
        prefix.add(gap)
    assert (prefix.now, prefix.sup, prefix.p) == (whole.now, whole.sup, whole.p)


@given(st.lists(FIGURES, max_size=30))
def test_ties_change_nothing(gaps):
    with_ties = [value for gap in gaps for value in (0.0, gap)]
    assert EProcess(with_ties).now == EProcess(gaps).now


@given(
    st.lists(st.floats(-1e3, 1e3).filter(lambda gap: abs(gap) > 1e-3), max_size=20),
    st.sampled_from([1e-9, 0.25, 8.0, 1e9]),
)
def test_the_unit_of_the_metric_does_not_matter(gaps, unit):
    assert EProcess(gap * unit for gap in gaps).sup == pytest.approx(EProcess(gaps).sup)


@pytest.mark.parametrize(
    "magnitudes",
    [
        [1.0] * 12,
        [1.0, 1.0, 1.0, 1.0, 50.0, 1.0, 1.0, 1.0, 1.0, 50.0, 1.0, 1.0],
        [2.0**-k for k in range(12)],
        [2.0**k for k in range(12)],
        [0.3, 0.9, 0.1, 1.4, 0.2, 2.2, 0.7, 0.05, 1.1, 0.6, 0.4, 3.0],
    ],
    ids=["equal", "outliers", "shrinking", "growing", "gaussian"],
)
def test_of_all_signs_a_coin_could_give_at_most_one_percent_convince(magnitudes):
    signs = list(itertools.product((-1, 1), repeat=len(magnitudes)))
    convinced = sum(
        first_crossing([sign * size for sign, size in zip(row, magnitudes, strict=True)]) is not None
        for row in signs
    )
    assert convinced <= ALPHA * len(signs)


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=7))
@settings(max_examples=30)
def test_under_fair_signs_the_purse_is_worth_one_on_average(magnitudes):
    purses = [
        EProcess(sign * size for sign, size in zip(row, magnitudes, strict=True)).now
        for row in itertools.product((-1, 1), repeat=len(magnitudes))
    ]
    assert fmean(purses) == pytest.approx(1.0)


def test_a_change_of_unit_in_mid_course_keeps_the_game_fair():
    sizes = [0.5, 2.0, 1.0, 30.0, 10.0, 40.0]
    purses = []
    for row in itertools.product((-1, 1), repeat=len(sizes)):
        purse = EProcess(sign * size for sign, size in zip(row[:3], sizes[:3], strict=True))
        purse.rescale([20 * sign * size for sign, size in zip(row[:3], sizes[:3], strict=True)])
        for sign, size in zip(row[3:], sizes[3:], strict=True):
            purse.add(sign * size)
        purses.append(purse.now)
    assert fmean(purses) == pytest.approx(1.0)


@given(st.floats(1e-9, 1e9))
def test_equal_gains_convince_at_the_eighth_pair(gap):
    assert first_crossing([gap] * 20) == 8


def test_one_outlier_neither_convinces_nor_moves_the_estimate():
    gaps = [0.01, -0.011, 0.009, -0.01, 0.012, -0.009, 0.011, -0.012, 0.01, 1e6]
    assert EProcess(gaps).sup < 10
    assert abs(estimate(gaps)) < 0.01


def test_the_estimate_of_counts_is_their_mean():
    assert estimate([0, 0, 0, 1, 0, 0, 1, 0, 0, 0]) == pytest.approx(0.2)


def test_the_interval_is_open_under_seven_pairs_and_closed_from_then_on():
    assert interval([0.01, 0.02, 0.03, 0.02, 0.01, 0.02]) == (None, None)
    assert closed([0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.025]) == interval(
        [0.01, 0.02, 0.03, 0.02, 0.01, 0.02, 0.025]
    )
    assert interval([0.02] * 7) == (0.02, 0.02)


def test_the_interval_holds_the_truth_in_nineteen_of_twenty_cases_at_any_length():
    dice = random.Random(7)
    held = rounds = 0
    for _ in range(120):
        gaps = [dice.gauss(0.02, 0.014) for _ in range(dice.randint(7, 30))]
        low, high = closed(gaps)
        held += low <= 0.02 <= high
        rounds += 1
    assert held / rounds >= 0.95


@pytest.mark.parametrize("seed", range(8))
def test_the_ends_of_the_interval_are_where_the_purse_begins_to_refute(seed):
    dice = random.Random(seed)
    gaps = [dice.gauss(0, 1) for _ in range(8 + 3 * seed)]
    low, high = closed(gaps)
    assert EProcess(gap - (low - 1e-6) for gap in gaps).sup >= 40
    assert EProcess(gap - (low + 1e-6) for gap in gaps).sup < 40
    assert EProcess(high + 1e-6 - gap for gap in gaps).sup >= 40
    assert EProcess(high - 1e-6 - gap for gap in gaps).sup < 40


def test_the_interval_of_a_median_is_that_of_the_tables():
    assert median_interval([1.0] * 5) is None
    ranks = {6: (1, 6), 8: (1, 8), 9: (2, 8), 10: (2, 9), 20: (6, 15), 25: (8, 18)}
    for count, ends in ranks.items():
        assert median_interval([float(k) for k in range(count, 0, -1)]) == ends


def test_noise_is_told_as_sd():
    gaps = [NormalDist().inv_cdf((k + 0.5) / 1000) for k in range(1000)]
    assert mad_sd(gaps) == pytest.approx(1.0, abs=0.01)
    assert mad_sd([0, 0, 0, 0, 1]) == 0
    assert pair_sd([0.01, 0.01, 0.02, 0.9]) == stdev([0.01, 0.01, 0.02, 0.9])
    assert pair_sd([1.0]) == 0
    assert findable_gains(0.01, 0.005) == pytest.approx((0.007, 0.014))
    assert findable_gains(0.001, 0.005) == (0.005, 0.005)


def test_coins_are_fair_and_independent_of_their_neighbours():
    flips = [coin(5, iteration, "pair", pair, 0) for iteration in range(100) for pair in range(100)]
    assert abs(fmean(flips) - 0.5) < 0.02
    same = fmean(a == b for a, b in itertools.pairwise(flips))
    assert abs(same - 0.5) < 0.02
    assert word(1, "a", 2) == word(1, "a", 2) != word(2, "a", 2)


def test_every_order_of_a_block_is_as_likely():
    items = ("A", "b", "c")
    counts = dict.fromkeys(itertools.permutations(items), 0)
    for block in range(6000):
        counts[shuffled(items, 3, block)] += 1
    assert all(abs(count - 1000) < 130 for count in counts.values())
