"""IEEE 754 binary16 and binary32 as integer codes: unpacking, one rounding step, exact values.

Every function works on integers only, so that nothing is rounded twice on the way.
Source: IEEE 754-2019 clauses 3.4 and 4.3.1; the NaN that we return is our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

__all__ = ["FP16", "FP32", "Format", "Unpacked", "exact_value", "is_inf", "is_nan", "round_to_format", "unpack"]


@dataclass(frozen=True)
class Format:
    """An IEEE 754 binary interchange format.

    Parameters
    ----------
    exponent_bits, fraction_bits
        Widths of the two fields; one sign bit stands above them.
    """

    exponent_bits: int
    fraction_bits: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def max_exponent_field(self) -> int:
        return (1 << self.exponent_bits) - 1

    @property
    def infinity(self) -> int:
        return self.max_exponent_field << self.fraction_bits

    @property
    def quiet_nan(self) -> int:
        """The one NaN that our blocks emit: positive, only the quiet bit set."""
        return self.infinity | 1 << (self.fraction_bits - 1)

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)

    @property
    def min_weight(self) -> int:
        """Exponent of the weight of a subnormal's last bit (-24 for FP16, -149 for FP32)."""
        return 1 - self.bias - self.fraction_bits


FP16 = Format(exponent_bits=5, fraction_bits=10)
FP32 = Format(exponent_bits=8, fraction_bits=23)


class Unpacked(NamedTuple):
    """Fields of a finite number: value = (-1)^sign * significand * 2^(exponent - bias - fraction_bits)."""

    sign: int
    exponent: int  # max(field, 1), so that subnormals need no case of their own
    significand: int  # with the hidden bit


def unpack(code: int, fmt: Format) -> Unpacked:
    """Split ``code`` into sign, effective exponent field and significand.

    >>> unpack(0x3C00, FP16)
    Unpacked(sign=0, exponent=15, significand=1024)
    """
    field = code >> fmt.fraction_bits & fmt.max_exponent_field
    fraction = code & ((1 << fmt.fraction_bits) - 1)
    return Unpacked(
        sign=code >> (fmt.width - 1) & 1,
        exponent=max(field, 1),
        significand=fraction | (1 << fmt.fraction_bits if field else 0),
    )


def is_nan(code: int, fmt: Format) -> bool:
    """Tell whether ``code`` is any NaN."""
    return code & ~fmt.sign_bit > fmt.infinity


def is_inf(code: int, fmt: Format) -> bool:
    """Tell whether ``code`` is an infinity of either sign."""
    return code & ~fmt.sign_bit == fmt.infinity


def exact_value(code: int, fmt: Format) -> Fraction:
    """Return the exact value of a finite code."""
    if code & ~fmt.sign_bit >= fmt.infinity:
        raise ValueError(f"code {code:#x} is not finite")
    sign, exponent, significand = unpack(code, fmt)
    value = Fraction(significand) * Fraction(2) ** (exponent - fmt.bias - fmt.fraction_bits)
    return -value if sign else value


def round_to_format(sign: int, magnitude: int, weight: int, fmt: Format) -> int:
    """Round ``(-1)^sign * magnitude * 2^weight`` once, to nearest, ties to even.

    Subnormal results are kept; overflow gives infinity; a zero magnitude gives the zero of that sign.

    >>> hex(round_to_format(0, 3, -26, FP16))  # 3 * 2^-26 = 0.75 of the smallest subnormal
    '0x1'
    """
    if magnitude == 0:
        return sign << (fmt.width - 1)
    # Weight of the last bit kept: fraction_bits below the leading one, but never below a subnormal's.
    last = max(weight + magnitude.bit_length() - 1 - fmt.fraction_bits, fmt.min_weight)
    shift = last - weight
    if shift <= 0:
        kept = magnitude << -shift
    else:
        kept = magnitude >> shift
        rest = magnitude & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        kept += rest > half or (rest == half and kept & 1)
    # With the hidden bit at its place, adding the fields makes carries run into the exponent by themselves.
    code = ((last - fmt.min_weight) << fmt.fraction_bits) + kept
    return sign << (fmt.width - 1) | min(code, fmt.infinity)
