"""Adversarial operands for a fused FP16 dot product, for the benches and the golden tests alike.

Each class aims at one part of the block; a class whose pattern needs more lanes than there are falls back to what fits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from golden_model.arithmetic.formats import FP16

__all__ = ["Pair", "vector_classes"]

Pair = tuple[list[int], list[int]]

MAX_FINITE = FP16.infinity - 1
TOP_BINADE = FP16.max_exponent_field - 1
INFINITIES = (FP16.infinity, FP16.infinity | FP16.sign_bit)
NANS = (FP16.quiet_nan, FP16.quiet_nan | FP16.sign_bit, FP16.infinity | 1)
ZEROS = (0, FP16.sign_bit)


def vector_classes(rng: np.random.Generator, lanes: int) -> dict[str, Callable[[], Pair]]:
    """Return one generator per class; each call draws one pair of vectors of ``lanes`` FP16 codes from ``rng``."""
    draw = _Draw(rng, lanes)
    return {
        "uniform_bits": draw.uniform_bits,
        "finite_uniform": draw.finite_uniform,
        "same_exponent": draw.same_exponent,
        "widest_gap": draw.widest_gap,
        "cancelling": draw.cancelling,
        "rounding_ties": draw.rounding_ties,
        "subnormals": draw.subnormals,
        "signed_zeros": draw.signed_zeros,
        "specials": draw.specials,
        "max_finite": draw.max_finite,
    }


class _Draw:
    """The classes; every method returns one pair of vectors."""

    def __init__(self, rng: np.random.Generator, lanes: int) -> None:
        self.rng = rng
        self.lanes = lanes

    def uniform_bits(self) -> Pair:
        """Any code; with many lanes most draws hold an infinity or a NaN."""
        return self._codes(1 << FP16.width), self._codes(1 << FP16.width)

    def finite_uniform(self) -> Pair:
        return self._signed(self._codes(FP16.infinity)), self._signed(self._codes(FP16.infinity))

    def same_exponent(self) -> Pair:
        """All products at one q, so that every bit of the sum is in use; half of the draws with one sign only."""
        binades = self._below(TOP_BINADE + 1), self._below(TOP_BINADE + 1)
        a, b = ([binade << FP16.fraction_bits | f for f in self._codes(1 << FP16.fraction_bits)] for binade in binades)
        return (a, b) if self._below(2) else (self._signed(a), self._signed(b))

    def widest_gap(self) -> Pair:
        """Some lanes in the top binade, others down to the smallest subnormal product; half of the draws cancel."""
        a, b = self.cancelling() if self._below(2) else self.finite_uniform()
        for lane in range(self.lanes):
            if self._below(3) == 0:
                a[lane], b[lane] = self._top(), self._top()
                if lane and self._below(2):  # the lane below takes it back, so that only small terms stay
                    a[lane - 1], b[lane - 1] = a[lane] ^ FP16.sign_bit, b[lane]
            elif self._below(2):
                a[lane], b[lane] = self._signed([1 + self._below(3), 1 + self._below(1 << 11)])
        return a, b

    def cancelling(self) -> Pair:
        """Pairs of equal products of opposite sign in shuffled lanes, some of them off by one in the last bit."""
        a, b = self.finite_uniform()
        order = self.rng.permutation(self.lanes).tolist()
        for one, other in zip(order[::2], order[1::2], strict=False):
            a[other], b[other] = b[one] ^ FP16.sign_bit, a[one]
            if self._below(4) == 0 and a[other] & ~FP16.sign_bit < MAX_FINITE:
                a[other] += 1
        if self._below(2) and self.lanes % 2:
            a[order[-1]] = self._pick(ZEROS)  # no pair for the last one: let the sum be zero
        return a, b

    def rounding_ties(self) -> Pair:
        """A sum half-way between two FP32 codes, or just off half-way by one more small term.

        Lane x has a product with leading one at 2^L, lane y adds half of its last FP32 place, 2^(L-24); optional lanes
        make the last place odd or break the tie.
        """
        a, b = [0] * self.lanes, [0] * self.lanes
        lanes = self.rng.permutation(self.lanes).tolist()
        a[lanes[0]], b[lanes[0]] = self._normal(22, 30), self._normal(22, 30)
        value = float(np.array([a[lanes[0]], b[lanes[0]]], np.uint16).view(np.float16).astype(np.float64).prod())
        lead = int(np.frexp(value)[1]) - 1
        offsets = [-24, -23, -25 - self._below(6), -22]
        for lane, offset, present in zip(lanes[1:], offsets, (1, 1, self._below(2), self._below(2)), strict=False):
            if present and not (offset == -23 and self._below(2)):
                a[lane], b[lane] = self._power_of_two(lead + offset)
        sign = FP16.sign_bit * self._below(2)
        for lane in lanes:
            a[lane] ^= sign
        if self._below(4) == 0 and self.lanes > 2:
            a[lanes[-1]] ^= FP16.sign_bit
        return a, b

    def subnormals(self) -> Pair:
        """Subnormal operands in every lane of a; b subnormal, small or anything finite."""
        limit = (1 << FP16.fraction_bits, 4 << FP16.fraction_bits, FP16.infinity)[self._below(3)]
        return self._signed(self._codes(1 << FP16.fraction_bits)), self._signed(self._codes(limit))

    def signed_zeros(self) -> Pair:
        """Zero products of both signs, half of the draws with a few others among them."""
        a, b = self.finite_uniform()
        keep = self._below(2) * self._below(4)
        for lane in self.rng.permutation(self.lanes).tolist()[keep:]:
            (a if self._below(2) else b)[lane] = self._pick(ZEROS)
        return a, b

    def specials(self) -> Pair:
        """Infinities, NaNs and zeros in up to three lanes of finite vectors."""
        a, b = self.finite_uniform()
        for lane in self.rng.permutation(self.lanes).tolist()[: 1 + self._below(3)]:
            side, other = (a, b) if self._below(2) else (b, a)
            side[lane] = self._pick(INFINITIES if self._below(3) else NANS)
            if self._below(4) == 0:
                other[lane] = self._pick(ZEROS + INFINITIES + NANS)
        return a, b

    def max_finite(self) -> Pair:
        """The largest operands, all of one sign in half of the draws: the widest sum."""
        a, b = [MAX_FINITE] * self.lanes, [MAX_FINITE] * self.lanes
        if self._below(2):
            a, b = self._signed(a), self._signed(b)
        elif self._below(2):
            a = [code | FP16.sign_bit for code in a]
        if self._below(2):
            a[self._below(self.lanes)] -= self._below(1 << FP16.fraction_bits)
        return a, b

    def _below(self, limit: int) -> int:
        return int(self.rng.integers(limit))

    def _pick(self, codes: tuple[int, ...]) -> int:
        return codes[self._below(len(codes))]

    def _codes(self, limit: int) -> list[int]:
        codes: list[int] = self.rng.integers(limit, size=self.lanes).tolist()
        return codes

    def _signed(self, codes: list[int]) -> list[int]:
        return [code | FP16.sign_bit * self._below(2) for code in codes]

    def _top(self) -> int:
        return TOP_BINADE << FP16.fraction_bits | self._below(1 << FP16.fraction_bits) | FP16.sign_bit * self._below(2)

    def _normal(self, low: int, high: int) -> int:
        """A positive code with exponent field in [low, high]."""
        return low + self._below(high - low + 1) << FP16.fraction_bits | self._below(1 << FP16.fraction_bits)

    @staticmethod
    def _power_of_two(exponent: int) -> list[int]:
        """Two normal codes whose product is 2^exponent, for exponents in [-28, 30]."""
        half = exponent // 2
        return [(power + FP16.bias) << FP16.fraction_bits for power in (half, exponent - half)]
