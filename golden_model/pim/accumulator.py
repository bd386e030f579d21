"""Accumulator of a pseudo-channel: the sum of four partial results in FP32, as FP32 or rounded to FP16.

The order is part of the contract: sum = (p_0 + p_1) + (p_2 + p_3), each addition rounded once to nearest even as
``fp32_adder`` does.  With ``half`` set, the FP32 sum is rounded once more, to FP16, as ``fp16_rounder`` does.  FP32
addition is commutative, so p_0 and p_1 may change places, p_2 and p_3, and the two pairs; nothing else may.

Source: paper section V-E (sums of bank groups before they leave the pseudo-channel) and V-F (4 accumulators); order,
formats and the cast are our choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP32
from golden_model.arithmetic.fp16_rounder import Fp16Rounder
from golden_model.arithmetic.fp32_adder import Fp32Adder
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code

__all__ = ["PARTIALS", "Accumulator"]

PARTIALS = 4  # banks of a bank group, or bank groups of a pseudo-channel

_ADDER, _ROUNDER = Fp32Adder(), Fp16Rounder()


class Accumulator:
    """Add four FP32 codes in pairs."""

    @property
    def operand_fields(self) -> Fields:
        return (("half", 1), *((f"p_{number}", FP32.width) for number in range(PARTIALS)))

    @property
    def result_fields(self) -> Fields:
        """An FP32 code, or an FP16 code with zeros above."""
        return (("sum", FP32.width),)

    def compute(self, partials: Sequence[int], *, half: int = 0) -> int:
        """Return the sum of four FP32 codes as an FP32 code, or as an FP16 code if ``half``.

        >>> hex(Accumulator().compute([0x3F800000] * 4))  # 4 * 1
        '0x40800000'
        >>> hex(Accumulator().compute([0x3F800000] * 4, half=1))
        '0x4400'
        """
        if len(partials) != PARTIALS:
            raise ParameterError(f"partials must have {PARTIALS} elements, not {len(partials)}")
        check_code("half", half, 1)
        codes = [check_code(f"p_{number}", code, FP32.width) for number, code in enumerate(partials)]
        pairs = [_ADDER.compute(codes[number], codes[number + 1]) for number in (0, 2)]
        total = _ADDER.compute(*pairs)
        return _ROUNDER.compute(total) if half else total

    def compute_many(self, partials: npt.NDArray[Any], *, half: bool = False) -> npt.NDArray[np.uint32]:
        """Return :meth:`compute` of every row.

        Parameters
        ----------
        partials
            FP32 codes as a ``uint32`` array of shape (..., 4).
        half
            Whether all results are FP16 codes.
        """
        if partials.dtype != np.uint32 or partials.shape[-1:] != (PARTIALS,):
            raise ParameterError(
                f"partials must be uint32 codes of shape (..., {PARTIALS}), not {partials.dtype} of {partials.shape}"
            )
        pairs = _ADDER.compute_many(partials[..., 0::2], partials[..., 1::2])
        total = _ADDER.compute_many(pairs[..., 0], pairs[..., 1])
        return _ROUNDER.compute_many(total).astype(np.uint32) if half else total
