"""Golden residual addition against exact fractions and against numpy."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from golden_model.arithmetic.formats import FP16, exact_value
from golden_model.params import ParameterError
from golden_model.pim.half_vectors import EDGES, half_classes
from golden_model.pim.residual_add import ResidualAdd

UNIT = ResidualAdd(lanes=4)
QUIET_NAN, INF, MINUS_INF, MINUS_ZERO = 0x7E00, 0x7C00, 0xFC00, 0x8000
VALUES = sorted((exact_value(code, FP16), code) for code in [*range(1, 0x7C00), *range(0x8001, 0xFC00), 0])


def nearest(exact: Fraction) -> int:
    """The nearest finite code by bisection in the sorted list of all values, even on a tie; infinity from 65520 on."""
    if abs(exact) >= 65520:
        return INF if exact > 0 else MINUS_INF
    low, high = 0, len(VALUES) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if VALUES[middle][0] <= exact else (low, middle)
    return int(min((abs(VALUES[k][0] - exact), VALUES[k][1] & 1, VALUES[k][1]) for k in (low, high))[2])


@pytest.mark.parametrize("name", half_classes(np.random.default_rng(0)))
def test_equals_exact_fractions(name: str) -> None:
    draw = half_classes(np.random.default_rng(7))[name]
    for _ in range(1500):
        a, b = draw()
        result = UNIT.compute(a, b)
        assert result == UNIT.compute(b, a)
        if max(a & 0x7FFF, b & 0x7FFF) < INF:
            exact = exact_value(a, FP16) + exact_value(b, FP16)
            assert result == (nearest(exact) if exact else a & b & MINUS_ZERO), (hex(a), hex(b))
        else:
            assert result in (QUIET_NAN, INF, MINUS_INF)


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (0x3C00, 0xBC00, 0),
        (0, MINUS_ZERO, 0),
        (MINUS_ZERO, MINUS_ZERO, MINUS_ZERO),
        (0x0001, 0x8001, 0),
        (0x03FF, 0x0001, 0x0400),
        (0x0400, 0x8001, 0x03FF),
        (0x7BFF, 0x4C00, INF),  # 65504 + 16: a tie to the even code, which is infinity
        (0x7BFF, 0x4BFF, 0x7BFF),
        (0x6801, 0x3C00, 0x6802),  # 2050 + 1
        (0x3C00, 0x8C00, 0x3C00),  # 1 - 2^-12: a tie where the places are half as wide
        (0x3C00, 0x8C01, 0x3BFF),
        (INF, MINUS_INF, QUIET_NAN),
        (MINUS_INF, 0x7BFF, MINUS_INF),
        (0xFC01, 0, QUIET_NAN),
    ],
)
def test_named_cases(a: int, b: int, result: int) -> None:
    assert UNIT.compute(a, b) == UNIT.compute(b, a) == result


def test_vectorised_model_equals_the_scalar_one() -> None:
    classes = half_classes(np.random.default_rng(8))
    pairs = [draw() for draw in classes.values() for _ in range(1000)]
    signed = [code | sign for code in EDGES for sign in (0, MINUS_ZERO)]
    codes = np.array([*pairs, *itertools.product(signed, repeat=2)], np.uint16)
    result = UNIT.compute_many(codes[:, 0], codes[:, 1])
    assert result.dtype == np.uint16
    assert result.tolist() == [UNIT.compute(a, b) for a, b in codes.tolist()]


def test_a_short_beat() -> None:
    lanes = {f"a_{k}": 0x3C00 for k in range(4)} | {"b_0": 0x3C00, "b_1": 0xBC00, "b_2": QUIET_NAN, "b_3": QUIET_NAN}
    flags = {"last": 1, "masked": 0}
    sums = {"y_0": 0x4000, "y_1": 0}
    assert UNIT.accept({"last": 1, "count": 2} | lanes) == flags | sums | {"count": 2, "invalid": 0, "y_2": 0, "y_3": 0}
    whole = UNIT.accept({"last": 1, "count": 3} | lanes)
    assert whole == flags | sums | {"count": 3, "invalid": 1, "y_2": QUIET_NAN, "y_3": 0}


def test_parameters_and_operands_are_checked() -> None:
    with pytest.raises(ParameterError, match=r"lanes must be a power of two in \[4, 16\], not 12"):
        ResidualAdd(lanes=12)
    with pytest.raises(ParameterError, match=r"b must be an integer in \[0, 65535\], not -1"):
        UNIT.compute(0, -1)
    with pytest.raises(ParameterError, match="a must be an array of uint16 codes, not of float16"):
        UNIT.compute_many(np.zeros(2, np.float16), np.zeros(2, np.uint16))


def test_fields() -> None:
    assert [name for name, _ in UNIT.input_fields] == ["last", "count", *(f"{s}_{k}" for s in "ab" for k in range(4))]
    assert dict(UNIT.output_fields)["count"] == 3
