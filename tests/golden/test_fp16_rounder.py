"""Golden cast from FP32 to FP16 against numpy's conversion and against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from golden_model.arithmetic.dot_product import DotProduct
from golden_model.arithmetic.fp16_rounder import Fp16Rounder
from golden_model.arithmetic.fp16_rounder_vectors import code_classes
from golden_model.params import ParameterError

ROUNDER = Fp16Rounder()
QUIET_NAN, MINUS_ZERO = 0x7E00, 0x8000


def single(code: int) -> float:
    return float(np.uint32(code).view(np.float32))


def code_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


FINITE = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)  # every non-negative one, in order


def nearest_half(code: int) -> int:
    """Search the sorted list of all FP16 numbers; 2^16 stands for infinity in the rounding, as IEEE 754 has it."""
    value = single(code)
    if np.isnan(value):
        return QUIET_NAN
    size = abs(value)
    upper = int(np.searchsorted(FINITE, size))
    lower = max(upper - 1, 0)
    if upper == 0x7C00 and size >= 2.0**16:
        nearest = 0x7C00
    else:
        exact = Fraction(size)
        values = {k: Fraction(2) ** 16 if k == 0x7C00 else Fraction(float(FINITE[k])) for k in (lower, upper)}
        nearest = min((abs(x - exact), k & 1, k) for k, x in values.items())[2]
    return nearest | (MINUS_ZERO if code >> 31 else 0)


@pytest.mark.parametrize("name", code_classes(np.random.default_rng(0)))
def test_equals_numpy_and_exact_fractions(name: str) -> None:
    draw = code_classes(np.random.default_rng(1))[name]
    codes = [draw() for _ in range(3000)]
    with np.errstate(all="ignore"):
        halves = np.array(codes, np.uint32).view(np.float32).astype(np.float16)
    expected = np.where(np.isnan(halves), np.uint16(QUIET_NAN), halves.view(np.uint16)).tolist()
    for code, want in zip(codes, expected, strict=True):
        assert ROUNDER.compute(code) == want == nearest_half(code), hex(code)


@pytest.mark.parametrize(
    ("code", "half"),
    [
        (code_of(2.0**-25), 0x0000),  # FP-02: a tie to even
        (code_of(2.0**-25) + 1, 0x0001),
        (code_of(3 * 2.0**-25), 0x0002),
        (code_of(65520) - 1, 0x7BFF),
        (code_of(65520), 0x7C00),
        (code_of(2.0**-14), 0x0400),
        (code_of(2.0**-14) - 1, 0x0400),  # rounds up into the normal range
        (code_of(1023.5 * 2.0**-24), 0x0400),
        (code_of(1023.5 * 2.0**-24) - 1, 0x03FF),
        (0x00000001, 0x0000),
        (0x80000001, 0x8000),
        (0x80000000, 0x8000),
        (0x7F7FFFFF, 0x7C00),
        (0xFF800000, 0xFC00),
        (0x7F800001, QUIET_NAN),
        (0xFFFFFFFF, QUIET_NAN),
    ],
)
def test_named_cases(code: int, half: int) -> None:
    assert ROUNDER.compute(code) == half
    if half != QUIET_NAN:
        assert ROUNDER.compute(code ^ 0x80000000) == half ^ 0x8000


def test_all_fp16_codes_come_back() -> None:  # FP-02
    codes = np.arange(1 << 16, dtype=np.uint16)
    singles = codes.view(np.float16).astype(np.float32).view(np.uint32)
    expected = np.where(codes & 0x7FFF > 0x7C00, np.uint16(QUIET_NAN), codes)
    assert ROUNDER.compute_many(singles).tolist() == expected.tolist()
    assert [ROUNDER.compute(single) for single in singles.tolist()] == expected.tolist()


def test_product_cast_back() -> None:  # FP-10
    product = DotProduct(lanes=1).compute([0x0001], [0x3BF7])
    assert product == 0x337EE000
    assert ROUNDER.compute(product) == 0x0001


def test_monotonic() -> None:
    codes = np.sort(np.random.default_rng(2).integers(0x33000000 - 5000, 0x47800000 + 5000, size=20_000))
    halves = [ROUNDER.compute(int(code)) for code in codes]
    assert halves == sorted(halves)


def test_vectorised_model_equals_the_scalar_one() -> None:
    codes = [draw() for draw in code_classes(np.random.default_rng(3)).values() for _ in range(1000)]
    result = ROUNDER.compute_many(np.array(codes, np.uint32))
    assert result.dtype == np.uint16
    assert result.tolist() == [ROUNDER.compute(code) for code in codes]


def test_operands_are_checked() -> None:
    with pytest.raises(ParameterError, match=r"single must be an integer in \[0, 4294967295\], not -1"):
        ROUNDER.compute(-1)
    with pytest.raises(ParameterError, match="singles must be an array of uint32 codes, not of float32"):
        ROUNDER.compute_many(np.zeros(2, np.float32))


def test_fields() -> None:
    assert ROUNDER.operand_fields == (("single", 32),)
    assert ROUNDER.result_fields == (("half", 16),)
