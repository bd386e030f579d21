"""Adversarial rows for LayerNorm and RMSNorm, for the benches and the golden tests alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP16, FP32

__all__ = ["EPSILONS", "operand_classes", "row_classes"]

Row = Callable[[int], list[int]]

EPSILONS = (0x3727C5AC, 0x358637BD, 0, 0x00000001, 0x33800000, 0x3F800000, 0x7F7FFFFF)
"""1e-5 and 1e-6, zero, the smallest FP32 number, 2^-24, one, the largest: FP32 codes."""


def row_classes(rng: np.random.Generator) -> dict[str, Row]:
    """Return one generator per class; each call draws a row of that many finite FP16 codes from ``rng``."""
    limit = FP16.infinity

    def below(top: int) -> int:
        return int(rng.integers(top))

    def codes(values: np.ndarray) -> list[int]:
        return [int(code) for code in np.clip(values, -65504, 65504).astype(np.float16).view(np.uint16)]

    def signed(length: int, low: int, high: int) -> list[int]:
        return [int(c) for c in rng.integers(low, high, length) | rng.integers(0, 2, length) << FP16.width - 1]

    def activations(length: int) -> list[int]:
        """Normal numbers of any scale and offset."""
        return codes(rng.normal(loc=rng.normal(), scale=2.0 ** below(12), size=length))

    def any_finite(length: int) -> list[int]:
        return signed(length, 0, limit)

    def large_mean_small_spread(length: int) -> list[int]:
        """A few neighbouring codes: the textbook's E[x^2] - E[x]^2 in floating point fails here."""
        start = below(limit - 4)
        return [start + below(4) | (start & 1) << FP16.width - 1 for _ in range(length)]

    def constant(length: int) -> list[int]:
        return signed(1, 0, limit) * length

    def zeros(length: int) -> list[int]:
        return signed(length, 0, 1)

    def largest(length: int) -> list[int]:
        return signed(length, limit - 2, limit)

    def subnormals(length: int) -> list[int]:
        return signed(length, 0, 1 << FP16.fraction_bits)

    def outlier(length: int) -> list[int]:
        """One large number among zeros or tiny ones."""
        row = signed(length, 0, 1 + below(2))
        row[below(length)] = signed(1, 1, limit)[0]
        return row

    classes = (activations, any_finite, large_mean_small_spread, constant, zeros, largest, subnormals, outlier)
    return {draw.__name__: draw for draw in classes}


def operand_classes(rng: np.random.Generator) -> dict[str, Row]:
    """Return generators of gammas or betas: ones, zeros, usual values, any code at all."""

    def ones(length: int) -> list[int]:
        return [FP16.bias << FP16.fraction_bits] * length

    def blanks(length: int) -> list[int]:
        return [int(sign) << FP16.width - 1 for sign in rng.integers(0, 2, length)]

    def usual(length: int) -> list[int]:
        return [int(code) for code in rng.normal(size=length).astype(np.float16).view(np.uint16)]

    def any_code(length: int) -> list[int]:
        return [int(code) for code in rng.integers(0, 1 << FP16.width, length)]

    classes = (ones, blanks, usual, any_code)
    return {draw.__name__: draw for draw in classes}


assert all(epsilon < FP32.infinity for epsilon in EPSILONS)
