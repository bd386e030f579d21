"""Golden softmax, both passes together, against mpmath and by the properties that it promises."""

from __future__ import annotations

import time
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt
import pytest

from golden_model.arithmetic.formats import FP16
from golden_model.params import ParameterError
from golden_model.pim.exponential import is_live, power_of_e
from golden_model.pim.softmax_normalizer import ONE_CODE, SoftmaxNormalizer, reciprocal, round_products
from golden_model.pim.softmax_pair import LARGEST_SUM, Pair, merge, to_fields
from golden_model.pim.softmax_statistics import SoftmaxStatistics
from golden_model.pim.softmax_vectors import MINUS_INFINITY, row_classes
from golden_model.pim.vector_beat import LONGEST_ROW, row_to_beats

STATISTICS, BLOCK = SoftmaxStatistics(), SoftmaxNormalizer()
NAN = 0x7E00
STATED_ULP = 0.5012
Codes = npt.NDArray[np.uint16]


def codes_of(values: object) -> Codes:
    return np.asarray(values, np.float16).view(np.uint16)


def softmax(codes: Codes) -> Codes:
    return BLOCK.row_many(codes, STATISTICS.row_many(codes))


def softmax_of(values: object) -> list[int]:
    return [int(code) for code in softmax(codes_of(values))]


def ulp_errors(codes: Codes, exact: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    ulp = np.exp2(np.maximum(np.floor(np.log2(np.maximum(exact, 1e-30))), -14) - 10)
    errors: npt.NDArray[np.float64] = np.abs(codes.view(np.float16).astype(np.float64) - exact) / ulp
    return errors


def float64_softmax(codes: Codes) -> npt.NDArray[np.float64]:
    """Good to 2^-45 for these lengths, 2^-34 of an FP16 ulp."""
    x = codes.view(np.float16).astype(np.float64)
    e = np.exp(x - x.max())
    result: npt.NDArray[np.float64] = e / e.sum()
    return result


def test_all_masked() -> None:  # SX-01
    masked = [MINUS_INFINITY] * 64
    one = masked[:20] + [0xC500] + masked[21:]
    rows = [[0x3C00, 0x4000], [0x4000] * 5, [0xC000], masked, [0x3C00, 0x4000], one]
    results = [BLOCK.row(row, STATISTICS.row(row)) for row in rows]
    assert results[3] == [0] * 64
    assert results[0] == results[4]
    assert results[5] == [0] * 20 + [ONE_CODE] + [0] * 43
    beat = {**row_to_beats(masked[:16], 16)[0], **to_fields(STATISTICS.row(masked))}
    assert [BLOCK.compute(beat)[flag] for flag in ("masked", "invalid", "last")] == [1, 0, 1]


def test_no_probability_above_one() -> None:  # SX-03
    assert softmax_of([65504, -65504]) == [ONE_CODE, 0]
    assert softmax_of([65504, 65504]) == [0x3800, 0x3800]
    assert softmax_of([1, 2, 3]) == [0x2DC3, 0x33D5, 0x3952]  # correctly rounded; the case allows 1 ulp


def test_a_single_element_is_exactly_one() -> None:  # SX-03, all 63,488 finite codes
    for code in [c | sign for c in range(FP16.infinity) for sign in (0, 0x8000)][::7] + [0x7BFF, 0xFBFF, 0x8001]:
        assert BLOCK.row([code], STATISTICS.row([code])) == [ONE_CODE]


@pytest.mark.parametrize("value", [0, -7, 60000])
def test_flat_row_of_4096(value: float) -> None:  # SX-05
    assert softmax_of([value] * 4096) == [0x0C00] * 4096


@pytest.mark.parametrize("value", [0, -7, 60000, 0.5, 0.6923828125, 0.69287109375, -0.0001, 3.3])
def test_flat_rows_are_correctly_rounded_for_every_length(value: float) -> None:
    """1/n is at least 2^-26 of itself away from any tie (n m and 2^26 or less differ by 1), so the 30 bits suffice."""
    code = int(codes_of([value])[0])
    pair = STATISTICS.row([code])
    lengths = np.arange(1, LONGEST_ROW + 1)
    inverses = [reciprocal(pair.sum * n) for n in range(1, LONGEST_ROW + 1)]
    factors, exponents = np.array(inverses, np.int64).T
    mantissa = power_of_e(code).mantissa >> 2
    results = round_products(mantissa * factors, exponents)
    nearest = (1.0 / lengths).astype(np.float16).view(np.uint16)  # float64's 2^-53 cannot reach a tie either
    assert (results == nearest).all()
    for n in (1, 3, 17, 2049, 40_001, LONGEST_ROW):
        assert set(softmax(np.full(n, code, np.uint16)).tolist()) == {int(nearest[n - 1])}


def test_flat_rows_of_random_codes_and_lengths() -> None:
    rng = np.random.default_rng(1)
    for code, n in rng.integers((0, 1), (FP16.infinity, LONGEST_ROW), size=(20_000, 2)).tolist():
        pair = STATISTICS.row([code])
        assert BLOCK.element(code, Pair(pair.maximum, pair.sum * n)) == int(np.float16(1 / n).view(np.uint16)), (code, n)


def test_spoilt_rows_are_nan_and_neighbours_are_not() -> None:
    good = [0x3C00, 0x4000, 0x0000]
    for spoiler in (0x7C00, 0x7C01, 0x7E00, 0xFE00, 0xFFFF):
        for place in range(3):
            row = [*good]
            row[place] = spoiler
            rows = [good, row, good]
            results = [BLOCK.row(r, STATISTICS.row(r)) for r in rows]
            assert results[1] == [NAN] * 3
            assert results[0] == results[2] == BLOCK.row(good, STATISTICS.row(good))
    beat = {**row_to_beats([0x3C00, 0x7C00], 16)[0], **to_fields(STATISTICS.row([0x3C00, 0x7C00]))}
    assert [BLOCK.compute(beat)[flag] for flag in ("masked", "invalid")] == [0, 1]


@pytest.mark.parametrize("name", row_classes(np.random.default_rng(0), 2))
def test_properties_of_rows(name: str) -> None:
    """In order, equal for equal, at most 1, zero for minus infinity, error within the stated bound; twice the same way."""
    draw = row_classes(np.random.default_rng(2), 200)[name]
    for _ in range(60):
        codes = draw()
        result = BLOCK.row(codes, STATISTICS.row(codes))
        assert softmax(np.array(codes, np.uint16)).tolist() == result
        if STATISTICS.row(codes).invalid:
            assert set(result) == {NAN}
            continue
        assert max(result) <= ONE_CODE
        assert all(p == 0 for code, p in zip(codes, result, strict=True) if code == MINUS_INFINITY)
        live = np.array([code for code in codes if is_live(code)], np.uint16)
        if not live.size:
            assert not any(result)
            continue
        p = np.array([p for code, p in zip(codes, result, strict=True) if is_live(code)], np.uint16)
        order = np.argsort(live.view(np.float16), kind="stable")
        assert (np.diff(p[order].astype(int)) >= 0).all()  # x_i >= x_j: p_i >= p_j, and so equal for equal
        assert ulp_errors(p, float64_softmax(live)).max() <= STATED_ULP


def test_error_of_two_elements_for_every_difference() -> None:
    """All rows [0, x]; the worst of them in mpmath too."""
    codes = np.arange(0x8000, 0xFC00, dtype=np.uint16)
    results = np.array([BLOCK.row([0, code], STATISTICS.row([0, code])) for code in codes.tolist()], np.uint16)
    power = np.exp(codes.view(np.float16).astype(np.float64))
    errors = ulp_errors(results, np.stack([1 / (1 + power), power / (1 + power)], axis=1))
    worst = sorted(zip(errors.max(axis=1).tolist(), errors.argmax(axis=1).tolist(), codes.tolist(), strict=True), reverse=True)
    for error, place, code in worst[:20]:
        x = mpmath.mpf(float(np.uint16(code).view(np.float16)))
        with mpmath.workprec(100):
            exact = [1 / (1 + mpmath.exp(x)), mpmath.exp(x) / (1 + mpmath.exp(x))][place]
            got = mpmath.mpf(float(np.uint16(softmax(np.array([0, code], np.uint16))[place]).view(np.float16)))
            ulp = mpmath.power(2, max(mpmath.floor(mpmath.log(exact, 2)), -14) - 10)
            assert abs(float(abs(got - exact) / ulp) - error) < 1e-6
    assert 0.499 < worst[0][0] <= STATED_ULP


def test_adversarial_search_for_the_largest_error() -> None:
    """Hill climbing over short rows: change one code at a time, keep what errs more beyond half an ulp."""
    rng = np.random.default_rng(3)
    largest = 0.0
    for _ in range(30):
        codes = codes_of(-rng.exponential(4.0, int(rng.integers(2, 40))))
        best = 0.0
        for _ in range(60):
            trial = codes.copy()
            trial[rng.integers(trial.size)] = codes_of([-rng.exponential(4.0)])[0]
            error = float(ulp_errors(softmax(trial), float64_softmax(trial)).max())
            if error >= best:
                codes, best = trial, error
        largest = max(largest, best)
    assert 0.4999 < largest <= STATED_ULP


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0, 30.0])
def test_longest_rows(scale: float) -> None:
    codes = codes_of(np.random.default_rng(4).standard_normal(LONGEST_ROW) * scale)
    started = time.process_time()
    result = softmax(codes)
    assert time.process_time() - started < 1
    assert ulp_errors(result, float64_softmax(codes)).max() <= STATED_ULP
    assert abs(float(result.view(np.float16).astype(np.float64).sum()) - 1) < LONGEST_ROW * 2.0**-25 + 2**-11


@pytest.mark.parametrize("place", [0, 77_777, LONGEST_ROW - 1])
def test_one_large_among_the_longest_row(place: int) -> None:
    """The tail of 128,255 terms must show in the one large probability; also where the maximum comes last."""
    for small in (-5.0, -12.0, -14.0, -17.0, -20.0, -24.0):
        row = np.full(LONGEST_ROW, small, np.float16)
        row[place] = 0
        exact = float64_softmax(codes_of(row))
        result = softmax(codes_of(row))
        assert ulp_errors(result, exact).max() <= STATED_ULP
    row[...] = -12
    row[place] = 0
    assert float(softmax(codes_of(row))[place : place + 1].view(np.float16)[0]) < 0.6  # 1 / (1 + 128,255 e^-12) = 0.559


def test_shards_normalised_with_the_merged_pair() -> None:
    codes = codes_of(np.random.default_rng(6).standard_normal(LONGEST_ROW) * 3)
    parts = np.split(codes, 64)
    pair = Pair()
    for part in parts:
        pair = merge(pair, STATISTICS.row_many(part))
    result = np.concatenate([BLOCK.row_many(part, pair) for part in parts])
    assert ulp_errors(result, float64_softmax(codes)).max() <= STATED_ULP


def test_reciprocal_has_thirty_bits() -> None:
    rng = np.random.default_rng(7)
    sums = [1 << 40, LARGEST_SUM, 1, *(n << 40 for n in range(1, 3000))]
    for _ in range(20_000):
        bits = int(rng.integers(58))
        sums.append(1 << bits | int(rng.integers(1 << bits)))
    lowest = highest = Fraction(0)
    for total in sums:
        factor, exponent = reciprocal(total)
        assert 1 << 31 <= factor <= 1 << 32
        error = Fraction(factor, 1 << 32) * Fraction(2) ** -exponent * Fraction(total, 1 << 40) - 1
        lowest, highest = min(lowest, error), max(highest, error)
    slack = Fraction(2**-32.5)
    assert Fraction(-1, 1 << 31) - slack < lowest < 0 < highest < Fraction(1, 1 << 32) + slack


def test_pairs_that_are_not_the_rows_own_cannot_exceed_one() -> None:
    rng = np.random.default_rng(8)
    for _ in range(3000):
        code = int(rng.integers(FP16.infinity)) | int(rng.integers(2)) << 15
        pair = Pair(int(rng.integers(-94_505, 94_505)), 1 + int(rng.integers(LARGEST_SUM)) >> int(rng.integers(58)))
        assert 0 <= BLOCK.element(code, pair) <= ONE_CODE


def test_checks() -> None:
    with pytest.raises(ParameterError, match="codes must be an array of uint16, not of float16"):
        BLOCK.row_many(np.zeros(3, np.float16), Pair())
    with pytest.raises(ParameterError, match=r"lanes must be a power of two in \[4, 16\], not 32"):
        SoftmaxNormalizer(lanes=32)
    assert [name for name, _ in BLOCK.operand_fields[-3:]] == ["maximum", "sum", "invalid"]
