"""The powers of e that softmax and the activation functions share: e^x = 2^t with t = x log2(e) in fixed point.

The product with the constant is exact and t is cut towards zero to 24 fraction bits, so that equal x give equal t and a
greater x never gives a smaller t.  t = integer + fraction; 2^fraction comes from :mod:`golden_model.arithmetic.elementary`.
Source: our choice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.elementary import Function, evaluate, evaluate_many
from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, SCALE_BITS, ln2
from golden_model.arithmetic.formats import FP16, is_inf, is_nan, unpack

__all__ = [
    "INTEGER_BITS", "LOG2E", "LOG2E_BITS", "LOG2E_FRACTION_BITS", "LOWEST", "SHIFT_AT_ZERO", "Classes", "Power", "classify",
    "fixed_log2", "fixed_log2_many", "is_invalid", "is_live", "power_of_e", "powers_of_e",
]  # fmt: skip

LOG2E_FRACTION_BITS = 30
LOG2E = ((2 << (LOG2E_FRACTION_BITS + SCALE_BITS)) // ln2() + 1) >> 1  # 1 / ln 2, rounded: off by at most 2^-31
LOG2E_BITS = LOG2E_FRACTION_BITS + 1

SHIFT_AT_ZERO = LOG2E_FRACTION_BITS - FP16.min_weight - ARGUMENT_BITS
"""Places by which significand * LOG2E is cut if the exponent is 0; one less for each step of the exponent, at least 1."""

INTEGER_BITS = 18  # |t| <= 65504 * 1.4427 < 2^17, and a sign
LOWEST = -(1 << (INTEGER_BITS - 1))  # below the integer part of every t


class Power(NamedTuple):
    """2^t = mantissa * 2^(integer - 24)."""

    integer: int
    mantissa: int  # 2^24 to 2^25 - 1


class Classes(NamedTuple):
    """Which elements of a row count, and which spoil it."""

    live: npt.NDArray[np.bool_]  # finite
    invalid: npt.NDArray[np.bool_]  # NaN or plus infinity


def fixed_log2(code: int) -> int:
    """Return t = x log2(e), cut towards zero to units of 2^-24, of the finite FP16 code of x.

    >>> fixed_log2(0x3C00) / 2**24  # x = 1
    1.4426950216293335
    """
    sign, exponent, significand = unpack(code, FP16)
    magnitude = significand * LOG2E >> (SHIFT_AT_ZERO - (exponent - 1))
    return -magnitude if sign else magnitude


def power_of_e(code: int) -> Power:
    """Return e^x of the finite FP16 code of x."""
    t = fixed_log2(code)
    return Power(t >> ARGUMENT_BITS, evaluate(Function.EXP2, t & ((1 << ARGUMENT_BITS) - 1)))


def classify(codes: npt.NDArray[np.int64]) -> Classes:
    """Sort codes into finite ones, NaN or plus infinity, and minus infinity (neither)."""
    size = codes & ~FP16.sign_bit
    return Classes(size < FP16.infinity, (size > FP16.infinity) | (codes == FP16.infinity))


def fixed_log2_many(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return :func:`fixed_log2` of every finite code; any number for the others."""
    field = codes >> FP16.fraction_bits & FP16.max_exponent_field
    significand = codes & ((1 << FP16.fraction_bits) - 1) | np.minimum(field, 1) << FP16.fraction_bits
    shift = np.maximum(SHIFT_AT_ZERO + 1 - np.maximum(field, 1), 0)
    magnitude = significand * LOG2E >> shift
    signed: npt.NDArray[np.int64] = np.where(codes & FP16.sign_bit, -magnitude, magnitude)
    return signed


def powers_of_e(codes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return integer parts and mantissas of :func:`power_of_e` of every finite code; any numbers for the others."""
    t = fixed_log2_many(codes)
    return t >> ARGUMENT_BITS, evaluate_many(Function.EXP2, t & ((1 << ARGUMENT_BITS) - 1))


def is_invalid(code: int) -> bool:
    """Tell whether an element spoils its row: NaN or plus infinity."""
    return is_nan(code, FP16) or code == FP16.infinity


def is_live(code: int) -> bool:
    """Tell whether an element is finite."""
    return not is_nan(code, FP16) and not is_inf(code, FP16)
