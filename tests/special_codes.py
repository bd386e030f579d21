"""FP16 codes at which a multiplier, an adder or a rounder may go wrong, and the product of every pair of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["CODES", "Expected", "expected_codes", "pair_products"]

_POWERS = [1 << k for k in range(10)] + [field << 10 for field in range(1, 31)]  # every power of two, subnormals first
_EDGES = [power + step for power in _POWERS for step in (-1, 1)] + [0x7BFF]  # last and first of a binade
_TIES = [0x3BF7, 0x3555, 0x2AAA, 0x3FFE, 0x3A00, 0x3E00, 0x4100, 0x0600, 0x7A00, 0x5555]  # odd halves, alternating bits
_SPECIAL = [0, 0x7C00, 0x7C01, 0x7DFF, 0x7E00, 0x7E01, 0x7FFF]  # zero, infinity, NaNs of both kinds with payloads

CODES: list[int] = sorted({code | sign for code in _POWERS + _EDGES + _TIES + _SPECIAL for sign in (0, 0x8000)})


class Expected(NamedTuple):
    """What a READ gives, as FP32 and as FP16 codes."""

    single: npt.NDArray[np.uint32]
    half: npt.NDArray[np.uint32]


def expected_codes(values: npt.NDArray[np.float64]) -> Expected:
    """Round float64 values once; every NaN is the quiet one."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32).view(np.uint32)
        half = values.astype(np.float16).view(np.uint16).astype(np.uint32)
    nan = np.isnan(values)
    return Expected(np.where(nan, np.uint32(0x7FC00000), single), np.where(nan, np.uint32(0x7E00), half))


def pair_products() -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], npt.NDArray[Any]]:
    """Return operands a, b of all pairs and their products, exact in float64, zeros as +0."""
    codes = np.array(CODES, np.uint16)
    a, b = (side.ravel() for side in np.meshgrid(codes, codes, indexing="ij"))
    with np.errstate(invalid="ignore"):
        return a, b, a.view(np.float16).astype(np.float64) * b.view(np.float16).astype(np.float64) + 0.0
