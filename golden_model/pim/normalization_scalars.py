"""The scalar step of LayerNorm and RMSNorm: from a row's exact sums to 1/sqrt(V), and the widths of the unit.

Numbers as in ``golden_model.pim.normalization``.  Source: our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from golden_model.arithmetic.elementary import Function, evaluate
from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, VALUE_FRACTION_BITS
from golden_model.arithmetic.formats import FP16, FP32, is_inf, is_nan, unpack
from golden_model.params import check_code

__all__ = [
    "FIXED_BITS", "LENGTH_BITS", "MAGNITUDE_BITS", "MAX_SHIFT", "RHO_BITS", "SIGNIFICAND_BITS", "SQUARES_BITS", "TOTAL_BITS",
    "VARIANCE_BITS", "WINDOW_BITS", "WINDOW_WEIGHT", "Scalars", "cut", "scalars",
]  # fmt: skip

LENGTH_BITS = 17  # 128,256 < 2^17
FIXED_BITS = FP16.max_exponent_field - 2 + FP16.fraction_bits + 1  # 40: |X| of the largest FP16 number, in units of 2^-24
TOTAL_BITS = FIXED_BITS + LENGTH_BITS  # of |total|
SQUARES_BITS = 2 * FIXED_BITS + LENGTH_BITS  # of squares
VARIANCE_BITS = SQUARES_BITS + LENGTH_BITS  # of n * squares
MAGNITUDE_BITS = 32  # V is added up from two numbers cut to this many bits: less than 2^-29 is lost
RHO_BITS = VALUE_FRACTION_BITS + 1  # rho in (1/2, 1]
SIGNIFICAND_BITS = 20  # of the deviation and of z; each cut costs up to 2^-19, 1/256 of a place of FP16
WINDOW_WEIGHT = FP16.min_weight - 1  # exponent of the last bit above the sticky bit: half of a subnormal's
WINDOW_BITS = FP16.bias + 2 - WINDOW_WEIGHT  # below 2^17: from there on no beta can make the sum finite
MAX_SHIFT = WINDOW_BITS + 1 - (SIGNIFICAND_BITS + FP16.fraction_bits + 1)  # of the product to the left


@dataclass(frozen=True)
class Scalars:
    """What the apply pass needs of a row: 1/sqrt(V) = rho * 2^-(RHO_BITS - 1) * 2^-exponent."""

    length: int
    total: int  # 0 for RMSNorm
    rho: int  # 0 if V is
    exponent: int
    rms: bool
    usable: bool

    @classmethod
    def unusable(cls, *, rms: bool = False) -> Scalars:
        """Return the scalars of a row that has none."""
        return cls(0, 0, 0, 0, rms, False)


def cut(value: int, bits: int) -> tuple[int, int]:
    """Return the leading ``bits`` bits of a positive integer and the exponent of the leading one.

    >>> cut(0b10111, 3)
    (5, 4)
    """
    exponent = value.bit_length() - 1
    drop = exponent + 1 - bits
    return (value >> drop if drop >= 0 else value << -drop), exponent


def scalars(length: int, total: int, squares: int, epsilon: int, *, rms: bool, finite: bool) -> Scalars:
    """Return the scalars of a row.

    Parameters
    ----------
    length, total, squares
        n and the sums of X and X^2.
    epsilon
        FP32 code; NaN, infinity and negative numbers make the row unusable.
    rms
        RMSNorm instead of LayerNorm.
    finite
        Whether the whole row was finite.
    """
    epsilon = check_code("epsilon", epsilon, FP32.width)
    negative = epsilon > FP32.sign_bit
    if not finite or negative or is_nan(epsilon, FP32) or is_inf(epsilon, FP32):
        return Scalars.unusable(rms=rms)
    total = 0 if rms else total
    _, field, significand = unpack(epsilon, FP32)
    parts = []
    if spread := length * squares - total * total:
        parts.append(cut(spread, MAGNITUDE_BITS))
    if significand:
        magnitude, exponent = cut(significand * length * length, MAGNITUDE_BITS)
        # epsilon = significand * 2^(field - 1 - 149), and V has units of 2^-48
        parts.append((magnitude, exponent + field - 1 + FP32.min_weight - 2 * FP16.min_weight))
    if not parts:
        return Scalars(length, total, 0, 0, rms, True)
    parts.sort(key=lambda part: part[1], reverse=True)
    magnitude, exponent = parts[0]
    if len(parts) == 2:
        magnitude += parts[1][0] >> min(exponent - parts[1][1], MAGNITUDE_BITS)
    if magnitude >> MAGNITUDE_BITS:
        magnitude, exponent = magnitude >> 1, exponent + 1
    argument = (magnitude >> MAGNITUDE_BITS - 1 - ARGUMENT_BITS) & ((1 << ARGUMENT_BITS) - 1)
    rho = evaluate(Function.RSQRT_UPPER if exponent & 1 else Function.RSQRT, argument)
    return Scalars(length, total, rho, exponent >> 1, rms, True)
