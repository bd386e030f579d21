"""Adversarial operands for an FP32 adder, for the benches and the golden tests alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP32

__all__ = ["pair_classes"]

EDGES = (
    0,  # zero, the smallest and the largest subnormal, the smallest normal number and its neighbour
    1,
    (1 << FP32.fraction_bits) - 1,
    1 << FP32.fraction_bits,
    (1 << FP32.fraction_bits) + 1,
    (FP32.bias << FP32.fraction_bits) - 1,  # one and its lower neighbour
    FP32.bias << FP32.fraction_bits,
    FP32.infinity - 1,  # the largest finite number, infinity and both kinds of NaN
    FP32.infinity,
    FP32.infinity + 1,
    FP32.quiet_nan,
)


def pair_classes(rng: np.random.Generator) -> dict[str, Callable[[], tuple[int, int]]]:
    """Return one generator per class; each call draws a pair of FP32 codes from ``rng``."""
    top = FP32.max_exponent_field - 1

    def below(limit: int) -> int:
        return int(rng.integers(limit))

    def code(field: int, fraction: int) -> int:
        return below(2) << (FP32.width - 1) | min(max(field, 0), top) << FP32.fraction_bits | fraction

    def fraction() -> int:
        """Uniform, or with few bits set or clear, for ties and long carries."""
        kind = below(4)
        if kind == 0:
            return below(1 << FP32.fraction_bits)
        bits = (1 << below(FP32.fraction_bits)) - 1 if kind == 1 else 1 << below(FP32.fraction_bits)
        return bits if kind < 3 else bits ^ ((1 << FP32.fraction_bits) - 1)

    def uniform_bits() -> tuple[int, int]:
        return below(1 << FP32.width), below(1 << FP32.width)

    def near_exponents() -> tuple[int, int]:
        """Exponents at most 27 apart: every shift of the alignment that does not lose the whole operand."""
        field = below(top + 1)
        return code(field, fraction()), code(field - 27 + below(55), fraction())

    def cancelling() -> tuple[int, int]:
        """Opposite signs and nearly equal magnitudes, also across a binade's border."""
        a = code(below(top + 1), fraction())
        b = min(max((a & ~FP32.sign_bit) - 2 + below(5), 0), FP32.infinity - 1)
        return a, b | ~a & FP32.sign_bit

    def ties() -> tuple[int, int]:
        """The lesser operand is half a last place of the greater one, or just off that."""
        field = 26 + below(top - 25)
        return code(field, fraction()), code(field - 24, (0, 0, 1)[below(3)]) - below(2)

    def subnormals() -> tuple[int, int]:
        return code(below(3), fraction()), code(below(3), fraction())

    def overflow() -> tuple[int, int]:
        return code(top - below(2), fraction()), code(top - below(26), fraction())

    def edges() -> tuple[int, int]:
        a, b = (EDGES[below(len(EDGES))] | below(2) << (FP32.width - 1) for _ in range(2))
        return a, b

    classes = (uniform_bits, near_exponents, cancelling, ties, subnormals, overflow, edges)
    return {draw.__name__: draw for draw in classes}
