"""Adversarial rows for softmax, for the benches and the golden tests alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP16
from golden_model.pim.softmax_pair import LARGEST_SUM, SUM_FRACTION_BITS, Pair

__all__ = ["MINUS_INFINITY", "draw_pair", "row_classes"]

MINUS_INFINITY = FP16.sign_bit | FP16.infinity
SPOILERS = (FP16.infinity, FP16.infinity + 1, FP16.quiet_nan, FP16.sign_bit | FP16.quiet_nan, 0xFFFF)
EDGES = (0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7BFE, 0xFBFE, MINUS_INFINITY)


def row_classes(rng: np.random.Generator, longest: int) -> dict[str, Callable[[], list[int]]]:
    """Return one generator per class; each call draws a row of 1 to ``longest`` FP16 codes from ``rng``."""

    def length() -> int:
        return 1 + int(rng.integers(longest if rng.integers(3) else min(longest, 3)))

    def codes(values: np.ndarray) -> list[int]:
        return [int(code) for code in values.astype(np.float16).view(np.uint16)]

    def uniform_bits() -> list[int]:
        """Any finite code."""
        drawn = rng.integers(FP16.infinity, size=length()) | rng.integers(2, size=1) << 15
        return [int(code) for code in drawn]

    def gaussian() -> list[int]:
        return codes(rng.standard_normal(length()) * 2.0 ** int(rng.integers(-8, 6)))

    def flat() -> list[int]:
        return [int(rng.integers(FP16.infinity)) | int(rng.integers(2)) << 15] * length()

    def rising() -> list[int]:
        """Every element is a new maximum; the last is the greatest."""
        return codes(np.cumsum(rng.random(length()) * 2.0 ** int(rng.integers(-3, 5))) - 50)

    def falling() -> list[int]:
        return rising()[::-1]

    def one_large() -> list[int]:
        """All but one so small that their terms lie about the last place of the sum."""
        row = codes(-rng.uniform(20, 32, length()))
        row[int(rng.integers(len(row)))] = 0
        return row

    def underflow() -> list[int]:
        """Probabilities about the smallest subnormal and in the subnormal range."""
        row = codes(-rng.uniform(8, 18.5, length()))
        return [0, *row][:longest]

    def masked_parts() -> list[int]:
        return [MINUS_INFINITY if rng.integers(2) else code for code in gaussian()]

    def all_masked() -> list[int]:
        return [MINUS_INFINITY] * length()

    def spoilt() -> list[int]:
        row = gaussian()
        row[int(rng.integers(len(row)))] = SPOILERS[int(rng.integers(len(SPOILERS)))]
        return row

    def edges() -> list[int]:
        return [EDGES[int(k)] for k in rng.integers(len(EDGES), size=length())]

    classes = (uniform_bits, gaussian, flat, rising, falling, one_large, underflow, masked_parts, all_masked, spoilt, edges)
    return {draw.__name__: draw for draw in classes}


def draw_pair(rng: np.random.Generator) -> Pair:
    """Draw a pair as a part of a row could leave it: any maximum, any legal sum, rarely empty or invalid."""
    kind = int(rng.integers(8))
    if kind == 0:
        return Pair(invalid=int(rng.integers(4) == 0))
    near = int(rng.integers(-40, 40)) if kind < 6 else int(rng.integers(-94505, 94505))
    bits = int(rng.integers(SUM_FRACTION_BITS, LARGEST_SUM.bit_length()))
    total = 1 << bits | int(rng.integers(1 << bits))
    return Pair(near, (total, LARGEST_SUM)[kind == 1], int(rng.integers(40) == 0))
