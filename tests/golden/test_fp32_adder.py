"""Golden FP32 adder against numpy's float32 and against exact fractions."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from golden_model.arithmetic.dot_product import DotProduct
from golden_model.arithmetic.dot_product_vectors import vector_classes
from golden_model.arithmetic.fp32_adder import Fp32Adder
from golden_model.arithmetic.fp32_adder_vectors import EDGES, pair_classes
from golden_model.params import ParameterError

ADDER = Fp32Adder()
QUIET_NAN, INF, MINUS_INF, MINUS_ZERO = 0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000
MAX_FINITE = 0x7F7FFFFF


def single(code: int) -> np.float32:
    value: np.float32 = np.uint32(code).view(np.float32)
    return value


def numpy_sum(a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        total = single(a) + single(b)
    return QUIET_NAN if np.isnan(total) else int(total.view(np.uint32))


def fraction_sum(a: int, b: int) -> int | None:
    """The code nearest to the exact sum among the neighbours of a float64 guess; None if that overflows or is zero."""
    exact = Fraction(float(single(a))) + Fraction(float(single(b)))
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact))
        if exact == 0 or abs(guess) >= single(MAX_FINITE):
            return None
        around = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    codes = [int(x.view(np.uint32)) for x in around]
    nearest = min((abs(Fraction(float(single(c))) - exact), c & 1, c) for c in codes)[2]
    return nearest if nearest & ~MINUS_ZERO else (MINUS_ZERO if exact < 0 else 0)


@pytest.mark.parametrize("name", pair_classes(np.random.default_rng(0)))
def test_equals_numpy_and_exact_fractions(name: str) -> None:
    draw = pair_classes(np.random.default_rng(1))[name]
    for k in range(4000):
        a, b = draw()
        result = ADDER.compute(a, b)
        assert result == numpy_sum(a, b), (hex(a), hex(b))
        assert result == ADDER.compute(b, a)
        if k < 500 and np.isfinite(single(a)) and np.isfinite(single(b)):
            assert fraction_sum(a, b) in (None, result)


def test_edges_with_each_other() -> None:
    signed = [code | sign for code in EDGES for sign in (0, MINUS_ZERO)]
    for a, b in itertools.product(signed, repeat=2):
        assert ADDER.compute(a, b) == numpy_sum(a, b), (hex(a), hex(b))


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (0x3F800000, 0xBF800000, 0),
        (0, MINUS_ZERO, 0),
        (MINUS_ZERO, MINUS_ZERO, MINUS_ZERO),
        (0x00000001, 0x80000001, 0),
        (0x00000001, 0x00000001, 0x00000002),
        (0x007FFFFF, 0x00000001, 0x00800000),  # the carry makes a subnormal normal
        (0x00800000, 0x80000001, 0x007FFFFF),
        (MAX_FINITE, 0x73000000, INF),  # half a last place: a tie to the even code, which is infinity
        (MAX_FINITE, 0x72FFFFFF, MAX_FINITE),
        (0x3F800000, 0x33800000, 0x3F800000),
        (0x3F800001, 0x33800000, 0x3F800002),
        (0x3F800000, 0x33800001, 0x3F800001),
        (0x3F800000, 0xB3000000, 0x3F800000),  # a tie below a power of two, where the places are half as wide
        (0x3F800000, 0xB3000001, 0x3F7FFFFF),
        (INF, MINUS_INF, QUIET_NAN),
        (MINUS_INF, MINUS_INF, MINUS_INF),
        (MINUS_INF, MAX_FINITE, MINUS_INF),
        (0xFF800001, 0, QUIET_NAN),
        (0xFFC12345, INF, QUIET_NAN),
    ],
)
def test_named_cases(a: int, b: int, result: int) -> None:
    assert ADDER.compute(a, b) == ADDER.compute(b, a) == result


def test_order_of_additions_shows() -> None:  # FP-07
    start, one, other = 0x00000004, 0x3FC001E6, 0x3FA01FFF
    left_to_right = start
    for code in (one, other, other, other):
        left_to_right = ADDER.compute(left_to_right, code)
    pairwise = ADDER.compute(start, ADDER.compute(ADDER.compute(one, other), ADDER.compute(other, other)))
    assert (left_to_right, pairwise) == (0x40A81879, 0x40A81878)


def test_opposite_infinity_in_the_accumulator() -> None:  # FP-04
    sums = [DotProduct(lanes=1).compute([code], [0x3C00]) for code in (0xFC00, 0x7C00)]
    assert sums == [MINUS_INF, INF]
    assert ADDER.compute(*sums) == QUIET_NAN


def test_error_bound_of_an_accumulated_dot_product() -> None:
    """K chunks of 16: |error| <= ((1 + u)^K (1 + 15 * 2^-F) - 1) * sum |a b|, for normal operands."""
    unit, chunks = Fraction(1, 2**24), 12
    draws = vector_classes(np.random.default_rng(2), 16)
    for name in ("finite_uniform", "same_exponent", "cancelling"):
        for align_frac_bits in (20, 28):
            block = DotProduct(align_frac_bits=align_frac_bits)
            acc, exact, size = 0, Fraction(0), Fraction(0)
            for _ in range(chunks):
                a, b = ([x if x & 0x7C00 else x | 0x0400 for x in codes] for codes in draws[name]())
                acc = ADDER.compute(acc, block.compute(a, b))
                for x, y in zip(a, b, strict=True):
                    product = Fraction(*float(np.uint16(x).view(np.float16)).as_integer_ratio())
                    product *= Fraction(*float(np.uint16(y).view(np.float16)).as_integer_ratio())
                    exact, size = exact + product, size + abs(product)
            bound = ((1 + unit) ** chunks * (1 + 15 * Fraction(1, 2**align_frac_bits)) - 1) * size
            assert abs(Fraction(float(single(acc))) - exact) <= bound


def test_vectorised_model_equals_the_scalar_one() -> None:
    classes = pair_classes(np.random.default_rng(3))
    pairs = np.array([draw() for draw in classes.values() for _ in range(1000)], np.uint32)
    result = ADDER.compute_many(pairs[:, 0], pairs[:, 1])
    assert result.dtype == np.uint32
    assert result.tolist() == [ADDER.compute(a, b) for a, b in pairs.tolist()]


def test_operands_are_checked() -> None:
    with pytest.raises(ParameterError, match=r"b must be an integer in \[0, 4294967295\], not -1"):
        ADDER.compute(0, -1)
    with pytest.raises(ParameterError, match="a must be an array of uint32 codes, not of float32"):
        ADDER.compute_many(np.zeros(2, np.float32), np.zeros(2, np.uint32))


def test_fields() -> None:
    assert ADDER.operand_fields == (("a", 32), ("b", 32))
    assert ADDER.result_fields == (("sum", 32),)
