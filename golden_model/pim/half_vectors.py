"""Adversarial pairs of FP16 numbers, for the benches and the golden tests of the special function unit alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP16

__all__ = ["half_classes"]

EDGES = (0, 1, 0x03FF, 0x0400, 0x0401, 0x3BFF, 0x3C00, 0x7BFF, 0x7C00, 0x7C01, 0x7E00)
"""Zero, both ends of the subnormals, the smallest normal numbers, one and its neighbour, the largest, infinity, NaNs."""


def half_classes(rng: np.random.Generator) -> dict[str, Callable[[], tuple[int, int]]]:
    """Return one generator per class; each call draws a pair of FP16 codes from ``rng``."""
    top = FP16.max_exponent_field - 1

    def below(limit: int) -> int:
        return int(rng.integers(limit))

    def code(field: int, fraction: int) -> int:
        return below(2) << (FP16.width - 1) | min(max(field, 0), top) << FP16.fraction_bits | fraction

    def fraction() -> int:
        """Uniform, or with few bits set or clear, for ties and long carries."""
        kind = below(4)
        if kind == 0:
            return below(1 << FP16.fraction_bits)
        bits = (1 << below(FP16.fraction_bits)) - 1 if kind == 1 else 1 << below(FP16.fraction_bits)
        return bits if kind < 3 else bits ^ ((1 << FP16.fraction_bits) - 1)

    def uniform_bits() -> tuple[int, int]:
        return below(1 << FP16.width), below(1 << FP16.width)

    def near_exponents() -> tuple[int, int]:
        """Exponents at most 14 apart: every shift that does not lose a whole operand."""
        field = below(top + 1)
        return code(field, fraction()), code(field - 14 + below(29), fraction())

    def cancelling() -> tuple[int, int]:
        """Opposite signs and nearly equal magnitudes, also across a binade's border."""
        a = code(below(top + 1), fraction())
        b = min(max((a & ~FP16.sign_bit) - 2 + below(5), 0), FP16.infinity - 1)
        return a, b | ~a & FP16.sign_bit

    def ties() -> tuple[int, int]:
        """The lesser operand is half a last place of the greater one, or just off that."""
        field = 12 + below(top - 11)
        return code(field, fraction()), code(field - 11, (0, 0, 1)[below(3)]) - below(2)

    def subnormals() -> tuple[int, int]:
        return code(below(3), fraction()), code(below(3), fraction())

    def overflow() -> tuple[int, int]:
        return code(top - below(2), fraction()), code(top - below(13), fraction())

    def edges() -> tuple[int, int]:
        a, b = (EDGES[below(len(EDGES))] | below(2) << (FP16.width - 1) for _ in range(2))
        return a, b

    classes = (uniform_bits, near_exponents, cancelling, ties, subnormals, overflow, edges)
    return {draw.__name__: draw for draw in classes}
