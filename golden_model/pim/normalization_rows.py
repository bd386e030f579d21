"""LayerNorm and RMSNorm of long rows with numpy's 64-bit integers, bit for bit as ``golden_model.pim.normalization``.

Source: our choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP16
from golden_model.pim.normalization_scalars import (
    MAX_SHIFT,
    RHO_BITS,
    SIGNIFICAND_BITS,
    WINDOW_BITS,
    WINDOW_WEIGHT,
    Scalars,
)

__all__ = ["normalise_many", "sums_of"]

Integers = npt.NDArray[np.int64]


def _unpack(codes: npt.NDArray[Any]) -> tuple[Integers, Integers, Integers]:
    """Return signs (+1 or -1), exponents (field - 1, 0 for subnormals) and significands."""
    codes = codes.astype(np.int64)
    field = codes >> FP16.fraction_bits & FP16.max_exponent_field
    significand = codes & ((1 << FP16.fraction_bits) - 1) | (field > 0).astype(np.int64) << FP16.fraction_bits
    return 1 - 2 * (codes >> FP16.width - 1), np.maximum(field, 1) - 1, significand


def sums_of(x: npt.NDArray[Any]) -> tuple[int, int, bool]:
    """Return the exact sums of X and X^2, and whether the row is finite (the sums count only then)."""
    if (x & FP16.sign_bit - 1 >= FP16.infinity).any():
        return 0, 0, False
    sign, exponent, significand = _unpack(x)
    total = squares = 0
    for step in range(FP16.max_exponent_field):  # per exponent, so that 64 bits hold the sums
        here = exponent == step
        total += int((sign * significand)[here].sum()) << step
        squares += int((significand**2)[here].sum()) << 2 * step
    return total, squares, True


def _normalised(value: Integers) -> tuple[Integers, Integers]:
    """Cut positive numbers below 2^62 to ``SIGNIFICAND_BITS`` bits; return them and the exponents of their last bits."""
    length = np.zeros_like(value)
    rest = value.copy()
    for step in (32, 16, 8, 4, 2, 1):
        above = rest >> step > 0
        length += np.where(above, step, 0)
        rest = np.where(above, rest >> step, rest)
    drop = length + 1 - SIGNIFICAND_BITS
    return np.where(drop >= 0, value >> np.maximum(drop, 0), value << np.maximum(-drop, 0)), drop


def normalise_many(
    row: Scalars, x: npt.NDArray[Any], gamma: npt.NDArray[Any], beta: npt.NDArray[Any]
) -> npt.NDArray[np.uint16]:
    """Return y of every element of a row under its scalars."""
    x, gamma, beta = (codes.astype(np.int64) for codes in (x, gamma, beta))
    if row.rms:
        beta = np.zeros_like(beta)
    size = [codes & FP16.sign_bit - 1 for codes in (x, gamma, beta)]
    nan = (size[0] >= FP16.infinity) | (size[1] > FP16.infinity) | (size[2] > FP16.infinity) | (not row.usable)
    x_sign, x_exponent, x_significand = _unpack(np.where(nan, 0, x))
    gamma_sign, gamma_exponent, gamma_significand = _unpack(gamma)
    beta_sign, beta_exponent, beta_significand = _unpack(np.where(size[2] == FP16.infinity, 0, beta))

    deviation = row.length * (x_sign * x_significand << x_exponent) - row.total
    zero = (deviation == 0) | (row.rho == 0)
    significand, drop = _normalised(np.where(zero, 1, np.abs(deviation)))
    z, more = _normalised(np.where(zero, 1, significand * row.rho))
    exponent = drop + more - (RHO_BITS - 1) - row.exponent
    sign = (x_sign if row.rms else np.where(deviation < 0, -1, 1)) * gamma_sign
    product = np.where(zero, 0, z * gamma_significand)

    left = exponent + gamma_exponent + FP16.min_weight - WINDOW_WEIGHT
    right = np.clip(-left, 0, 62)
    window = np.where(left > 0, product << np.clip(left, 0, MAX_SHIFT), product >> right) << 1
    window |= (product & ((np.int64(1) << right) - 1)) > 0
    huge = (product > 0) & ((left > MAX_SHIFT) | (window >> 1 + WINDOW_BITS > 0))
    lift = FP16.min_weight - WINDOW_WEIGHT + 1
    total = sign * window + (beta_sign * beta_significand << beta_exponent + lift)

    sign_bit = FP16.sign_bit
    infinity = np.where(sign < 0, sign_bit, 0) | FP16.infinity
    y = _rounded(total, lift)
    y = np.where(product == 0, np.where(sign < 0, sign_bit, 0) if row.rms else beta, y)
    y = np.where(huge, infinity, y)
    y = np.where(size[2] == FP16.infinity, beta, y)
    gamma_inf = size[1] == FP16.infinity
    clash = zero | ((size[2] == FP16.infinity) & (beta != infinity))
    y = np.where(gamma_inf, np.where(clash, FP16.quiet_nan, infinity), y)
    return np.where(nan, FP16.quiet_nan, y).astype(np.uint16)


def _rounded(total: Integers, lift: int) -> Integers:
    """Round fixed-point numbers with ``lift`` bits below a subnormal's last bit to FP16, ties to even."""
    magnitude = np.abs(total)
    length = np.zeros_like(magnitude)
    for step in range(1, 50):
        length += magnitude >> step - 1 > 0
    drop = np.maximum(length - (FP16.fraction_bits + 1), lift)
    kept, rest, half = magnitude >> drop, magnitude & ((np.int64(1) << drop) - 1), np.int64(1) << drop - 1
    kept += (rest > half) | ((rest == half) & (kept & 1 > 0))
    code = np.minimum((drop - lift << FP16.fraction_bits) + kept, FP16.infinity)
    signed: Integers = np.where(total < 0, code | FP16.sign_bit, code)
    return signed
