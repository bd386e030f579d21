"""Fused dot product of two FP16 vectors: exact products, one alignment, one integer sum, one rounding to FP32.

With E = max(exponent field, 1) and M = significand with hidden bit, lane i has the exact product
+-P * 2^(q - 48), P = Ma * Mb, q = Ea + Eb - 2 in [0, 58].  Q is the largest q of a lane with P != 0.  Each magnitude is
cut toward zero at the weight 2^(Q - 28 - F), F = ``align_frac_bits``, then signed; the signed integers are added
exactly and the sum is rounded once to FP32, nearest even.  F = 78 cuts nothing, so it gives the correctly rounded sum.

Source: our choice, in the manner of published models of tensor cores (docs/spec/dot_product.md has the differences).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP16, FP32, is_inf, is_nan, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_range

__all__ = ["PRODUCT_FRACTION_BITS", "PRODUCT_WEIGHT", "DotProduct", "Product", "lane_product"]

PRODUCT_FRACTION_BITS = 2 * FP16.fraction_bits
"""20: a product lies in [0, 4) with that many bits below the binary point."""
PRODUCT_WEIGHT = 2 * FP16.min_weight
"""-48: exponent of the weight of a product's last bit at q = 0."""

_Int64s = npt.NDArray[np.int64]
_WORD_BITS = 62
"""Magnitude bits that the vectorised path may use: int64 less the sign, less one for the carry of rounding."""


class Product(NamedTuple):
    """Exact product of two finite FP16 codes: (-1)^sign * magnitude * 2^(exponent - 48)."""

    sign: int
    magnitude: int  # below 2^22
    exponent: int  # q in [0, 58]; not normalised: a subnormal operand or a product in [2, 4) leaves it alone


def lane_product(a: int, b: int) -> Product:
    """Multiply two finite FP16 codes exactly.

    >>> lane_product(0x3C00, 0xC000)  # 1.0 * -2.0
    Product(sign=1, magnitude=1048576, exponent=29)
    """
    x, y = unpack(a, FP16), unpack(b, FP16)
    return Product(x.sign ^ y.sign, x.significand * y.significand, x.exponent + y.exponent - 2)


class DotProduct:
    """Dot product of two vectors of FP16 codes as one FP32 code.

    Parameters
    ----------
    lanes
        Products per result, 1 to 64.
    align_frac_bits
        F, the bits kept below the binary point of a product aligned to the largest exponent, 20 to 78.
    """

    def __init__(self, *, lanes: int = 16, align_frac_bits: int = 28) -> None:
        self.lanes = check_range("lanes", lanes, 1, 64)
        self.align_frac_bits = check_range("align_frac_bits", align_frac_bits, 20, 78)

    @property
    def vector_fields(self) -> Fields:
        return tuple((f"{side}_{lane}", FP16.width) for side in "ab" for lane in range(self.lanes))

    @property
    def result_fields(self) -> Fields:
        return (("sum", FP32.width),)

    @property
    def magnitude_bits(self) -> int:
        """Bits of the sum's magnitude: a cut product is below 2^(F + 2), and ``lanes`` of them are added."""
        return self.align_frac_bits + 2 + (self.lanes - 1).bit_length()

    @property
    def _lowest_weight(self) -> int:
        """-28 - F: exponent of the weight of the sum's last bit at Q = 0."""
        return PRODUCT_WEIGHT + PRODUCT_FRACTION_BITS - self.align_frac_bits

    def compute(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Return the FP32 code of the dot product.

        >>> hex(DotProduct(lanes=2).compute([0x3C00, 0xC000], [0x4000, 0x3C00]))  # 1 * 2 + -2 * 1
        '0x0'
        """
        for name, codes in (("a", a), ("b", b)):
            if len(codes) != self.lanes:
                raise ParameterError(f"{name} must have {self.lanes} elements, not {len(codes)}")
            for lane, code in enumerate(codes):
                check_code(f"{name}[{lane}]", code, FP16.width)
        a, b = [int(code) for code in a], [int(code) for code in b]
        special = self._special(a, b)
        if special is not None:
            return special
        total, weight = self.fused_sum(a, b)
        return round_to_format(int(total < 0), abs(total), weight, FP32)

    def fused_sum(self, a: Sequence[int], b: Sequence[int]) -> tuple[int, int]:
        """Return the sum before its rounding, as an integer and the exponent of its last bit's weight.

        Both vectors must be finite.

        >>> DotProduct(lanes=1).fused_sum([0x3C00], [0x3C00])  # 1 * 1 = 2^28 * 2^-28
        (268435456, -28)
        """
        products = [lane_product(x, y) for x, y in zip(a, b, strict=True)]
        largest = max((p.exponent for p in products if p.magnitude), default=0)
        total = 0
        for sign, magnitude, exponent in products:
            if magnitude:
                cut = (magnitude << (self.align_frac_bits - PRODUCT_FRACTION_BITS)) >> (largest - exponent)
                total += -cut if sign else cut
        return total, largest + self._lowest_weight

    @staticmethod
    def _special(a: Sequence[int], b: Sequence[int]) -> int | None:
        """Return the result if an operand is not finite, else None."""
        signs = set()
        for x, y in zip(a, b, strict=True):
            if is_nan(x, FP16) or is_nan(y, FP16):
                return FP32.quiet_nan
            if is_inf(x, FP16) or is_inf(y, FP16):
                if not (x & ~FP16.sign_bit and y & ~FP16.sign_bit):
                    return FP32.quiet_nan
                signs.add((x ^ y) & FP16.sign_bit != 0)
        if len(signs) == 2:
            return FP32.quiet_nan
        return FP32.infinity | (FP32.sign_bit if True in signs else 0) if signs else None

    def compute_many(self, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """Return :meth:`compute` of every row.

        Vectorised where the sum fits int64 (with 16 lanes up to F = 56), else row by row.

        Parameters
        ----------
        a, b
            FP16 codes as ``uint16`` arrays of shape (n, lanes).
        """
        for name, codes in (("a", a), ("b", b)):
            if codes.dtype != np.uint16:  # float16 values would pass for codes otherwise
                raise ParameterError(f"{name} must be an array of uint16 codes, not of {codes.dtype}")
            if codes.ndim != 2 or codes.shape[1] != self.lanes:
                raise ParameterError(f"{name} must have shape (n, {self.lanes}), not {codes.shape}")
        if len(a) != len(b):
            raise ParameterError(f"a and b must have as many rows, not {len(a)} and {len(b)}")
        if self.magnitude_bits > _WORD_BITS:
            rows = zip(a.tolist(), b.tolist(), strict=True)
            return np.array([self.compute(x, y) for x, y in rows], dtype=np.uint32)

        x, y = a.astype(np.int64), b.astype(np.int64)
        (x_exponent, x_significand), (y_exponent, y_significand) = _unpack_many(x), _unpack_many(y)
        magnitude = x_significand * y_significand
        exponent = x_exponent + y_exponent - 2
        negative = (x ^ y) & FP16.sign_bit != 0
        largest = np.where(magnitude != 0, exponent, 0).max(axis=1, keepdims=True)
        # A zero product may stand above the largest exponent; its distance does not matter but must not be negative.
        cut = (magnitude << (self.align_frac_bits - PRODUCT_FRACTION_BITS)) >> np.maximum(largest - exponent, 0)
        total = np.where(negative, -cut, cut).sum(axis=1)
        result = _round_many(total, largest[:, 0] + self._lowest_weight)

        x_size, y_size = x & ~FP16.sign_bit, y & ~FP16.sign_bit
        infinite = (x_size == FP16.infinity) | (y_size == FP16.infinity)
        invalid = (x_size > FP16.infinity) | (y_size > FP16.infinity) | infinite & ((x_size == 0) | (y_size == 0))
        up, down = (infinite & ~negative).any(axis=1), (infinite & negative).any(axis=1)
        result[up] = FP32.infinity
        result[down] = FP32.infinity | FP32.sign_bit
        result[invalid.any(axis=1) | up & down] = FP32.quiet_nan
        return result.astype(np.uint32)


def _unpack_many(codes: _Int64s) -> tuple[_Int64s, _Int64s]:
    """Return E and M of every code, as ``formats.unpack`` does for one."""
    field = codes >> FP16.fraction_bits & FP16.max_exponent_field
    fraction = codes & ((1 << FP16.fraction_bits) - 1)
    return np.maximum(field, 1), fraction | np.where(field != 0, 1 << FP16.fraction_bits, 0)


def _round_many(total: _Int64s, weight: _Int64s) -> _Int64s:
    """Round every ``total * 2^weight`` to an FP32 code, for sums that are zero or normal in FP32."""
    magnitude = np.abs(total)
    length = np.zeros_like(magnitude)  # bit length, by halving
    rest = magnitude
    for step in (32, 16, 8, 4, 2, 1):
        upper = rest >> step != 0
        length += np.where(upper, step, 0)
        rest = np.where(upper, rest >> step, rest)
    length += rest
    shift = length - 1 - FP32.fraction_bits
    kept = np.where(shift > 0, magnitude >> np.maximum(shift, 0), magnitude << np.maximum(-shift, 0))
    lost = magnitude - (kept << np.maximum(shift, 0))
    half = np.left_shift(1, np.maximum(shift - 1, 0))
    kept += (shift > 0) & ((lost > half) | (lost == half) & (kept & 1 != 0))
    code = (weight + shift - FP32.min_weight << FP32.fraction_bits) + kept
    return np.where(total == 0, 0, np.where(total < 0, code | FP32.sign_bit, code))
