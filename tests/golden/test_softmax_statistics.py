"""Golden softmax, pass 1, against sums of powers in mpmath, and its pairs against each other."""

from __future__ import annotations

import itertools
import time

import mpmath
import numpy as np
import pytest

from golden_model.arithmetic.formats import FP16, exact_value
from golden_model.params import ParameterError
from golden_model.pim.exponential import LOG2E, LOWEST, fixed_log2, fixed_log2_many, is_live
from golden_model.pim.softmax_pair import LARGEST_SUM, PAIR_FIELDS, Pair, from_fields, merge, to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.softmax_vectors import MINUS_INFINITY, draw_pair, row_classes
from golden_model.pim.vector_beat import LONGEST_ROW, row_to_beats

BLOCK = SoftmaxStatistics()
UNIT = 2.0**-40
TERM_ERROR = 2.0**-22 + 2 * 2.0**-24  # cut to 22 fraction bits; the evaluator; t cut to 24 bits (less than 2^-24 ln 2 of it)


def half(code: int) -> np.float16:
    value: np.float16 = np.uint16(code).view(np.float16)
    return value


def exact_sum(codes: list[int], maximum: int) -> mpmath.mpf:
    """Sum of 2^(x C - maximum), C being the constant of the specification instead of log2(e)."""
    constant = mpmath.mpf(LOG2E) / 2**30
    values = [exact_value(code, FP16) for code in codes if is_live(code)]
    return mpmath.fsum(mpmath.power(2, mpmath.mpf(v.numerator) / v.denominator * constant - maximum) for v in values)


def within_bound(pair: Pair, codes: list[int]) -> bool:
    """The stated bound: each term by its relative error, each cut by less than a unit, two more for all growths."""
    with mpmath.workprec(100):
        exact = exact_sum(codes, pair.maximum)
        return bool(abs(pair.sum * UNIT - exact) <= TERM_ERROR * exact + (len(codes) + 2) * UNIT)


@pytest.mark.parametrize("name", row_classes(np.random.default_rng(0), 2))
def test_rows_against_mpmath(name: str) -> None:
    draw = row_classes(np.random.default_rng(1), 100)[name]
    for _ in range(40):
        codes = draw()
        pair = BLOCK.row(codes)
        live = [code for code in codes if is_live(code)]
        assert pair.invalid == any(np.isnan(half(c)) or half(c) == np.inf for c in codes)
        assert pair.maximum == max((fixed_log2(code) >> 24 for code in live), default=LOWEST)
        assert pair.sum == 0 if not live else 1 << 40 <= pair.sum <= LARGEST_SUM
        assert within_bound(pair, codes)


def test_constant_and_fixed_point() -> None:
    with mpmath.workprec(100):
        assert abs(mpmath.mpf(LOG2E) / 2**30 - 1 / mpmath.ln2) <= mpmath.mpf(2) ** -31
    finite = np.array([code | sign for code in range(FP16.infinity) for sign in (0, FP16.sign_bit)])
    exact = finite.astype(np.uint16).view(np.float16).astype(np.float64) * LOG2E  # 11 + 31 bits: exact
    assert fixed_log2_many(finite).tolist() == np.trunc(exact / 2**6).astype(np.int64).tolist()
    assert [fixed_log2(int(code)) for code in finite[::97]] == fixed_log2_many(finite[::97]).tolist()
    assert np.abs(fixed_log2_many(finite)).max() < -LOWEST << 24


def test_vectorised_model_equals_the_scalar_one() -> None:
    for lanes in (4, 8, 16):
        block = SoftmaxStatistics(lanes=lanes)
        for draw in row_classes(np.random.default_rng(2), 150).values():
            for _ in range(10):
                codes = draw()
                assert block.row_many(np.array(codes, np.uint16)) == block.row(codes)


def tail(small: float, place: int) -> np.ndarray:
    row = np.full(LONGEST_ROW, small, np.float16)
    row[place] = 0
    return row.view(np.uint16)


@pytest.mark.parametrize("small", [-13.86, -20.0, -25.0, -26.9, -27.4, -27.7])
def test_tail_of_the_longest_row_does_not_vanish(small: float) -> None:
    """One large and 128,255 small ones: what is lost stays below 2^-23.03 of the sum, wherever the large one stands."""
    pairs = [BLOCK.row_many(tail(small, place)) for place in (0, 64_000, LONGEST_ROW - 1)]
    with mpmath.workprec(100):
        term = mpmath.power(2, mpmath.mpf(float(np.float16(small))) * LOG2E / 2**30)
        exact = 1 + (LONGEST_ROW - 1) * term
        for pair in pairs:
            assert pair.maximum == 0
            assert abs(pair.sum * UNIT - exact) <= TERM_ERROR * exact + LONGEST_ROW * UNIT
            assert LONGEST_ROW * UNIT < 2**-23.03
    if small > -27:
        assert pairs[0].sum - (1 << 40) > (LONGEST_ROW - 1) // 2  # a term below half a unit would be the last to vanish
    assert max(pair.sum for pair in pairs) - min(pair.sum for pair in pairs) <= LONGEST_ROW


def test_maximum_that_keeps_growing() -> None:
    """Each growth cuts the sum once; the cuts of earlier ones are shifted out with it, so two units cover them all."""
    row = (np.arange(LONGEST_ROW) // 64 * 0.5 - 500).astype(np.float16)
    codes = row.view(np.uint16)
    pair = BLOCK.row_many(codes)
    values, counts = np.unique(row[-4000:], return_counts=True)
    with mpmath.workprec(100):
        constant = mpmath.mpf(LOG2E) / 2**30
        powers = [mpmath.power(2, float(value) * constant - pair.maximum) for value in values]
        exact = mpmath.fsum(int(n) * power for n, power in zip(counts, powers, strict=True))
        assert abs(pair.sum * UNIT - exact) <= (TERM_ERROR + 2**-40) * exact + 4002 * UNIT


def test_longest_row_in_well_under_a_second() -> None:
    codes = np.random.default_rng(3).standard_normal(LONGEST_ROW).astype(np.float16).view(np.uint16)
    BLOCK.row_many(codes)
    started = time.process_time()
    BLOCK.row_many(codes)
    assert time.process_time() - started < 0.5  # 0.02 s on an idle core


def test_largest_row_does_not_saturate() -> None:
    almost_two = max((c for c in range(0x3800, 0x3C00)), key=lambda c: fixed_log2(c) & 0xFFFFFF)
    pair = BLOCK.row_many(np.full(LONGEST_ROW, almost_two, np.uint16))
    assert LARGEST_SUM * 0.95 < pair.sum < LARGEST_SUM


def test_merged_shards_equal_the_whole_row_within_the_cuts() -> None:
    """64 shards of a vocabulary: the order of merging moves the sum by less than a unit per shard and element."""
    rng = np.random.default_rng(4)
    codes = (rng.standard_normal(LONGEST_ROW) * 5).astype(np.float16).view(np.uint16)
    shards = [BLOCK.row_many(part) for part in np.split(codes, 64)]
    whole = BLOCK.row_many(codes)
    for order in (range(64), reversed(range(64)), rng.permutation(64)):
        total = Pair()
        for k in order:
            total = merge(total, shards[k])
        assert total.maximum == whole.maximum
        assert abs(total.sum - whole.sum) <= LONGEST_ROW + 64
    items = [{"merge": 1, "last": int(k == 63), "count": 16, **to_fields(shard)} for k, shard in enumerate(shards)]
    total = Pair()
    for shard in shards:
        total = merge(total, shard)
    assert BLOCK.compute(items) == [total]


def test_merge_properties() -> None:
    rng = np.random.default_rng(5)
    pairs = [draw_pair(rng) for _ in range(60)]
    for a, b in itertools.product(pairs, repeat=2):
        both = merge(a, b)
        assert both == merge(b, a)
        assert both.invalid == a.invalid | b.invalid
        assert both.sum >= (a if a.maximum == both.maximum else b).sum
    for pair in pairs:
        assert merge(pair, Pair()) == merge(Pair(90_000), pair) == pair  # the maximum of an empty part does not count
    assert merge(Pair(0, LARGEST_SUM), Pair(0, 1)).sum == LARGEST_SUM


def test_masked_and_spoilt_rows() -> None:  # SX-01
    assert BLOCK.row([MINUS_INFINITY] * 64).masked
    assert BLOCK.row([MINUS_INFINITY] * 20 + [0xC500] + [MINUS_INFINITY] * 43) == BLOCK.row([0xC500])
    assert not BLOCK.row([MINUS_INFINITY, 0x7C00]).masked
    for spoiler in (0x7C00, 0x7C01, 0x7E00, 0xFE00, 0xFFFF):
        assert BLOCK.row([0x3C00, spoiler]) == Pair(*BLOCK.row([0x3C00])[:2], invalid=1)


def test_long_flat_row() -> None:  # SX-05
    for value in (0, -7, 60000):
        pair = BLOCK.row_many(np.full(4096, value, np.float16).view(np.uint16))
        assert pair.sum == 4096 * BLOCK.row([int(np.float16(value).view(np.uint16))]).sum


def test_rows_follow_each_other() -> None:
    rows = [[0x3C00] * 5, [MINUS_INFINITY], [0x7E00] * 17, [0xC000] * 33]
    items = [{"merge": 0, **beat} for row in rows for beat in row_to_beats(row, 16)]
    assert BLOCK.compute(items) == [BLOCK.row(row) for row in rows]


def test_fields_and_checks() -> None:
    assert PAIR_FIELDS == (("maximum", 18), ("sum", 58), ("invalid", 1))
    assert BLOCK.operand_fields[:3] == (("merge", 1), ("last", 1), ("count", 5))
    for pair in (Pair(), Pair(-94505, 1 << 40), Pair(94504, LARGEST_SUM, 1)):
        assert from_fields(to_fields(pair)) == pair
    with pytest.raises(ParameterError, match=r"lanes must be a power of two in \[4, 16\], not 6"):
        SoftmaxStatistics(lanes=6)
    with pytest.raises(ParameterError, match="codes must be a row of uint16, not float16"):
        BLOCK.row_many(np.zeros(3, np.float16))
    with pytest.raises(ParameterError, match="sum must be"):
        to_fields(Pair(0, 1 << 58))
