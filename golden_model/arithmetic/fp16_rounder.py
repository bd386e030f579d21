"""FP32 to FP16 with one rounding to nearest even: the output cast behind the accumulator.

Subnormal results are kept, overflow gives infinity, every NaN gives 0x7E00, zeros and infinities keep their sign.
Source: IEEE 754-2019 clauses 4.3.1 and 5.4.2; the one NaN code is our choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP16, FP32, is_inf, is_nan, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code

__all__ = ["Fp16Rounder"]


class Fp16Rounder:
    """Convert FP32 codes to FP16 codes."""

    @property
    def operand_fields(self) -> Fields:
        return (("single", FP32.width),)

    @property
    def result_fields(self) -> Fields:
        return (("half", FP16.width),)

    def compute(self, single: int) -> int:
        """Return the FP16 code nearest to the FP32 code ``single``.

        >>> hex(Fp16Rounder().compute(0x477FF000))  # 65520 is half-way between the largest FP16 number and 2^16
        '0x7c00'
        """
        single = check_code("single", single, FP32.width)
        if is_nan(single, FP32):
            return FP16.quiet_nan
        sign, exponent, significand = unpack(single, FP32)
        if is_inf(single, FP32):
            return sign << (FP16.width - 1) | FP16.infinity
        return round_to_format(sign, significand, exponent - 1 + FP32.min_weight, FP16)

    def compute_many(self, singles: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
        """Return :meth:`compute` of every code, by numpy's conversion (tested to be the same).

        Parameters
        ----------
        singles
            FP32 codes as a ``uint32`` array.
        """
        if singles.dtype != np.uint32:  # float32 values would pass for codes otherwise
            raise ParameterError(f"singles must be an array of uint32 codes, not of {singles.dtype}")
        with np.errstate(all="ignore"):
            halves = np.asarray(singles.view(np.float32).astype(np.float16))
        return np.where(np.isnan(halves), np.uint16(FP16.quiet_nan), halves.view(np.uint16))
