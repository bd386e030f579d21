"""Adversarial operands for a sum of four FP32 numbers, for the bench and the golden test alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP32
from golden_model.arithmetic.fp16_rounder_vectors import code_classes
from golden_model.arithmetic.fp32_adder_vectors import pair_classes

__all__ = ["ORDER_CASES", "quad_classes"]

ORDER_CASES: tuple[tuple[tuple[int, int, int, int], int], ...] = (
    # 65504^2 + 2^-24, then -65504^2 + 0: the small term is lost in its pair; with the opposite numbers in one pair it is not.
    ((0x4F7FC004, 0x33800000, 0xCF7FC004, 0x00000000), 0x00000000),
    ((0x4F7FC004, 0xCF7FC004, 0x33800000, 0x00000000), 0x33800000),
    ((0x00000000, 0xCF7FC004, 0x33800000, 0x4F7FC004), 0x00000000),
    # 1, 2^-24, 2^-24, 2^-24: left to right every tie goes to the even 1; in pairs the last two make a whole last place.
    ((0x3F800000, 0x33800000, 0x33800000, 0x33800000), 0x3F800001),
    ((0x33800000, 0x33800000, 0x33800000, 0x3F800000), 0x3F800001),
)
"""Operands whose sum depends on the order, and the sum in the documented one, worked out by hand (FP-07)."""

Quad = tuple[int, int, int, int]


def quad_classes(rng: np.random.Generator) -> dict[str, Callable[[], Quad]]:
    """Return one generator per class; each call draws four FP32 codes from ``rng``."""
    pairs = pair_classes(rng)
    names = list(pairs)
    singles = code_classes(rng)

    def mixed() -> Quad:
        """Two pairs of any classes of the adder."""
        (a, b), (c, d) = (pairs[names[int(rng.integers(len(names)))]]() for _ in range(2))
        return a, b, c, d

    def cancelling_pairs() -> Quad:
        """The sums of the two pairs nearly cancel."""
        a, b = pairs["near_exponents"]()
        return a, b, b ^ FP32.sign_bit, a ^ FP32.sign_bit ^ int(rng.integers(4))

    def crossed() -> Quad:
        """Opposite numbers in different pairs, each with a smaller companion: the order decides."""
        a, b = pairs["cancelling"]()
        c, d = pairs["near_exponents"]()
        return a, c, b, d

    def cast_edges() -> Quad:
        """The sum is a code at an edge of the cast to FP16: its pair and the other pair add nothing."""
        code = singles[("normal_ties", "subnormal_ties", "overflow", "underflow", "normal")[int(rng.integers(5))]]()
        other = int(rng.integers(1 << 31))
        at = int(rng.integers(2))
        zeros = (0, FP32.sign_bit)
        opposite = min(other, FP32.infinity - 1)
        quad = [opposite, opposite | FP32.sign_bit, code, zeros[int(rng.integers(2))]]
        return (quad[2], quad[3], quad[0], quad[1]) if at else (quad[0], quad[1], quad[2], quad[3])

    def zeros() -> Quad:
        """Zeros of both signs; only four minus zeros give one."""
        signs = 15 if rng.integers(4) == 0 else int(rng.integers(16))
        a, b, c, d = (FP32.sign_bit if signs >> place & 1 else 0 for place in range(4))
        return a, b, c, d

    classes = (mixed, cancelling_pairs, crossed, cast_edges, zeros)
    return {draw.__name__: draw for draw in classes}
