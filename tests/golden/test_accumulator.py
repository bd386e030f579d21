"""Golden accumulator against numpy's float32 and float16, exact fractions, and sums whose order decides."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from golden_model.arithmetic.fp32_adder import Fp32Adder
from golden_model.params import ParameterError
from golden_model.pim.accumulator import Accumulator
from golden_model.pim.accumulator_vectors import ORDER_CASES, quad_classes

ACCUMULATOR = Accumulator()


def single(code: int) -> np.float32:
    value: np.float32 = np.uint32(code).view(np.float32)
    return value


def numpy_sum(partials: tuple[int, ...], *, half: bool) -> int:
    with np.errstate(all="ignore"):
        a, b, c, d = (single(code) for code in partials)
        total = (a + b) + (c + d)
        if half:
            rounded = total.astype(np.float16)
            return 0x7E00 if np.isnan(rounded) else int(rounded.view(np.uint16))
        return 0x7FC00000 if np.isnan(total) else int(total.view(np.uint32))


@pytest.mark.parametrize("name", quad_classes(np.random.default_rng(0)))
def test_equals_numpy(name: str) -> None:
    draw = quad_classes(np.random.default_rng(1))[name]
    quads = [draw() for _ in range(3000)]
    for half in (False, True):
        expected = [numpy_sum(quad, half=half) for quad in quads]
        assert [ACCUMULATOR.compute(quad, half=int(half)) for quad in quads] == expected
        many = ACCUMULATOR.compute_many(np.array(quads, np.uint32), half=half)
        assert many.dtype == np.uint32
        assert many.tolist() == expected


def test_reduction_order() -> None:  # FP-07
    """The documented order, and that another one gives another sum on the same operands."""
    for partials, total in ORDER_CASES:
        assert ACCUMULATOR.compute(partials) == total
    (a, b, c, d), paired = ORDER_CASES[0]
    assert (paired, ACCUMULATOR.compute((a, c, b, d))) == (0x00000000, 0x33800000)
    add = Fp32Adder().compute
    a, b, c, d = ORDER_CASES[3][0]
    assert (ORDER_CASES[3][1], add(add(add(a, b), c), d)) == (0x3F800001, 0x3F800000)
    # FP-07's own operands: the start value is added to the finished sum, not before it.
    one, other, start = 0x3FC001E6, 0x3FA01FFF, 0x00000004
    assert add(start, ACCUMULATOR.compute((one, other, other, other))) == 0x40A81878
    assert add(add(add(add(start, one), other), other), other) == 0x40A81879


def test_what_may_change_places_and_what_may_not() -> None:
    draw = quad_classes(np.random.default_rng(2))["crossed"]
    differ = 0
    for _ in range(500):
        a, b, c, d = draw()
        total = ACCUMULATOR.compute((a, b, c, d))
        for same in ((b, a, c, d), (a, b, d, c), (c, d, a, b)):
            assert ACCUMULATOR.compute(same) == total
        differ += ACCUMULATOR.compute((a, c, b, d)) != total
    assert differ > 100


def test_error_bound() -> None:
    """|error| <= ((1 + u)^2 - 1) * sum|p| in FP32, for finite sums."""
    unit = Fraction(1, 2**24)
    classes = quad_classes(np.random.default_rng(3))
    for name in ("mixed", "cancelling_pairs", "crossed"):
        for _ in range(1000):
            partials = classes[name]()
            total = single(ACCUMULATOR.compute(partials))
            if not all(np.isfinite(single(code)) for code in partials) or not np.isfinite(total):
                continue
            values = [Fraction(float(single(code))) for code in partials]
            bound = ((1 + unit) ** 2 - 1) * sum(abs(value) for value in values)
            assert abs(Fraction(float(total)) - sum(values)) <= bound


def test_operands_are_checked() -> None:
    for call, message in (
        (lambda: ACCUMULATOR.compute([0, 0, 0]), "partials must have 4 elements, not 3"),
        (lambda: ACCUMULATOR.compute([0, 0, 0, -1]), r"p_3 must be an integer in \[0, 4294967295\], not -1"),
        (lambda: ACCUMULATOR.compute([0] * 4, half=2), r"half must be an integer in \[0, 1\], not 2"),
        (lambda: ACCUMULATOR.compute_many(np.zeros((2, 4))), "partials must be uint32 codes of shape"),
        (lambda: ACCUMULATOR.compute_many(np.zeros((2, 3), np.uint32)), r"not uint32 of \(2, 3\)"),
    ):
        with pytest.raises(ParameterError, match=message):
            call()


def test_fields() -> None:
    assert ACCUMULATOR.operand_fields == (("half", 1), ("p_0", 32), ("p_1", 32), ("p_2", 32), ("p_3", 32))
    assert ACCUMULATOR.result_fields == (("sum", 32),)
