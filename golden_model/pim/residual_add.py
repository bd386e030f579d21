"""Residual addition: two FP16 rows element by element, each sum rounded once to nearest even.

Subnormals are kept, every NaN result is 0x7E00, an exact zero sum of opposite signs is +0 and (-0) + (-0) is -0.
Source: IEEE 754-2019 clauses 5.4.1, 6.1 and 6.3; the one NaN code is our choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP16, is_inf, is_nan, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code
from golden_model.pim.vector_beat import check_lanes, input_fields, output_fields, valid_codes

__all__ = ["ResidualAdd"]


class ResidualAdd:
    """Add two rows, beat by beat.

    Parameters
    ----------
    lanes
        Elements per beat: a power of two from 4 to 16.
    """

    def __init__(self, *, lanes: int = 16) -> None:
        self.lanes = check_lanes(lanes)

    @property
    def input_fields(self) -> Fields:
        """A beat of the row ``a``, then the elements ``b_k`` to add to it."""
        return (*input_fields(self.lanes), *((f"b_{lane}", FP16.width) for lane in range(self.lanes)))

    @property
    def output_fields(self) -> Fields:
        """The sums; ``invalid``: one of this beat's is NaN; ``masked`` is 0."""
        return output_fields(self.lanes)

    def compute(self, a: int, b: int) -> int:
        """Return the FP16 code of ``a + b``.

        >>> hex(ResidualAdd().compute(0x6800, 0x3C00))  # 2048 + 1: a tie, the even code is 2048
        '0x6800'
        """
        a, b = check_code("a", a, FP16.width), check_code("b", b, FP16.width)
        if is_nan(a, FP16) or is_nan(b, FP16):
            return FP16.quiet_nan
        if is_inf(a, FP16) or is_inf(b, FP16):
            if is_inf(a, FP16) and is_inf(b, FP16) and a != b:
                return FP16.quiet_nan
            return a if is_inf(a, FP16) else b
        if not (a | b) & ~FP16.sign_bit:
            return a & b  # the sign is minus only if both are
        total = 0  # in units of a subnormal's last bit
        for code in (a, b):
            sign, exponent, significand = unpack(code, FP16)
            total += (-significand if sign else significand) << (exponent - 1)
        return round_to_format(int(total < 0), abs(total), FP16.min_weight, FP16)

    def accept(self, beat: Mapping[str, int]) -> dict[str, int]:
        """Return the output beat of an input beat."""
        codes = valid_codes(beat, self.lanes)
        sums = [self.compute(a, beat[f"b_{lane}"]) for lane, a in enumerate(codes)]
        answer = {"last": beat["last"], "count": beat["count"], "masked": 0, "invalid": int(FP16.quiet_nan in sums)}
        return answer | {f"y_{lane}": sums[lane] if lane < len(sums) else 0 for lane in range(self.lanes)}

    def compute_many(self, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
        """Return :meth:`compute` of every pair by numpy, where float64 holds every sum exactly (tested to be the same).

        Parameters
        ----------
        a, b
            FP16 codes as ``uint16`` arrays of one shape, or of shapes that numpy broadcasts.
        """
        for name, codes in (("a", a), ("b", b)):
            if codes.dtype != np.uint16:
                raise ParameterError(f"{name} must be an array of uint16 codes, not of {codes.dtype}")
        with np.errstate(all="ignore"):
            total = a.view(np.float16).astype(np.float64) + b.view(np.float16).astype(np.float64)
            half = np.asarray(total.astype(np.float16))
        return np.where(np.isnan(half), np.uint16(FP16.quiet_nan), half.view(np.uint16))
