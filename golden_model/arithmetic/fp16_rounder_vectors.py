"""Adversarial operands for the cast from FP32 to FP16, for the benches and the golden tests alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP16, FP32

__all__ = ["code_classes"]

LOWEST_FIELD = FP32.bias - FP16.bias + 1  # FP32 exponent field of the smallest normal FP16 number
LOST_BITS = FP32.fraction_bits - FP16.fraction_bits
SPECIALS = (0, 1, FP32.infinity - 1, FP32.infinity, FP32.infinity + 1, FP32.quiet_nan)


def code_classes(rng: np.random.Generator) -> dict[str, Callable[[], int]]:
    """Return one generator per class; each call draws an FP32 code from ``rng``."""

    def below(limit: int) -> int:
        return int(rng.integers(limit))

    def code(field: int, fraction: int) -> int:
        return below(2) << (FP32.width - 1) | field << FP32.fraction_bits | fraction

    def uniform_bits() -> int:
        return below(1 << FP32.width)

    def normal() -> int:
        """Within FP16's normal range."""
        return code(LOWEST_FIELD + below(FP16.max_exponent_field - 1), below(1 << FP32.fraction_bits))

    def normal_ties() -> int:
        """Half-way between two normal FP16 numbers, or one FP32 code off that."""
        odd = 2 * below(1 << FP16.fraction_bits) + 1  # in units of half a last place
        return code(LOWEST_FIELD + below(30), odd << (LOST_BITS - 1)) + below(3) - 1

    def subnormal_ties() -> int:
        """Half-way between two subnormal FP16 numbers, or one FP32 code off that."""
        odd = 2 * below(1 << FP16.fraction_bits) + 1  # in units of 2^-25
        value = np.float32(odd * 2.0**-25)
        return code(0, int(value.view(np.uint32)) + below(3) - 1)

    def overflow() -> int:
        """Around the largest finite FP16 number, 65504, and the tie to infinity, 65520."""
        return code(0, int(np.float32(65504).view(np.uint32)) + below(1 << LOST_BITS) - below(8))

    def underflow() -> int:
        """Around half of the smallest subnormal, 2^-25, and far below."""
        near = int(np.float32(2.0**-25).view(np.uint32)) + below(5) - 2
        return code(0, near if below(2) else below(LOWEST_FIELD - 10 << FP32.fraction_bits))

    def specials() -> int:
        return code(0, SPECIALS[below(len(SPECIALS))])

    classes = (uniform_bits, normal, normal_ties, subnormal_ties, overflow, underflow, specials)
    return {draw.__name__: draw for draw in classes}
