"""FP32 addition, rounded once to nearest even: the accumulator step behind the dot product.

Subnormals are kept, every NaN result is 0x7FC00000, an exact zero sum of opposite signs is +0 and (-0) + (-0) is -0.
Source: IEEE 754-2019 clauses 5.4.1, 6.1 and 6.3; the one NaN code is our choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP32, is_inf, is_nan, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code

__all__ = ["Fp32Adder"]


class Fp32Adder:
    """Add two FP32 codes."""

    @property
    def operand_fields(self) -> Fields:
        return (("a", FP32.width), ("b", FP32.width))

    @property
    def result_fields(self) -> Fields:
        return (("sum", FP32.width),)

    def compute(self, a: int, b: int) -> int:
        """Return the FP32 code of ``a + b``.

        >>> hex(Fp32Adder().compute(0x3F800000, 0x33800000))  # 1 + 2^-24: a tie, the even code is 1
        '0x3f800000'
        """
        a, b = check_code("a", a, FP32.width), check_code("b", b, FP32.width)
        if is_nan(a, FP32) or is_nan(b, FP32):
            return FP32.quiet_nan
        if is_inf(a, FP32) or is_inf(b, FP32):
            if is_inf(a, FP32) and is_inf(b, FP32) and a != b:
                return FP32.quiet_nan
            return a if is_inf(a, FP32) else b
        if not (a | b) & ~FP32.sign_bit:
            return a & b  # the sign is minus only if both are
        # The sum in units of a subnormal's last bit; effective exponent 1 has exactly that weight.
        total = 0
        for code in (a, b):
            sign, exponent, significand = unpack(code, FP32)
            total += (-significand if sign else significand) << (exponent - 1)
        return round_to_format(int(total < 0), abs(total), FP32.min_weight, FP32)

    def compute_many(self, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
        """Return :meth:`compute` of every pair, by numpy's float32 addition (tested to be the same).

        Parameters
        ----------
        a, b
            FP32 codes as ``uint32`` arrays of one shape, or of shapes that numpy broadcasts.
        """
        for name, codes in (("a", a), ("b", b)):
            if codes.dtype != np.uint32:  # float32 values would pass for codes otherwise
                raise ParameterError(f"{name} must be an array of uint32 codes, not of {codes.dtype}")
        with np.errstate(all="ignore"):
            total = np.asarray(a.view(np.float32) + b.view(np.float32))
        return np.where(np.isnan(total), np.uint32(FP32.quiet_nan), total.view(np.uint32))
