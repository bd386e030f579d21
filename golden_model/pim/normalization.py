"""LayerNorm and RMSNorm of a row of FP16 numbers in two passes: exact sums, one scalar step, one rounding per element.

Everything is an integer.  With X = x * 2^24, an element of the row, and n its length:

    total = sum of X                     squares = sum of X^2                both exact
    V = n * squares - total^2 + epsilon * n^2 * 2^48    (RMSNorm: total = 0)
    z = (n * X - total) / sqrt(V)        which is (x - mean) / sqrt(variance + epsilon)
    y = z * gamma + beta                 rounded once                        (RMSNorm: beta = 0)

so that no mean, no variance and no 1/n is ever rounded.  Only 1/sqrt(V) and the two cuts of z to ``SIGNIFICAND_BITS`` bits
are not exact: y errs by half a place and ``MAX_RELATIVE_ERROR`` of |z * gamma|.
Source: the formulas of LayerNorm and RMSNorm; the integer form is our choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.formats import FP16, is_inf, is_nan, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_code, check_range
from golden_model.pim.normalization_rows import normalise_many, sums_of
from golden_model.pim.normalization_scalars import (
    LENGTH_BITS,
    MAX_SHIFT,
    RHO_BITS,
    SIGNIFICAND_BITS,
    WINDOW_BITS,
    WINDOW_WEIGHT,
    Scalars,
    scalars,
)
from golden_model.pim.vector_beat import check_lanes, input_fields, output_fields, valid_codes

__all__ = ["MAX_RELATIVE_ERROR", "Normalization", "row_beats"]

MAX_RELATIVE_ERROR = Fraction(2, 1 << (SIGNIFICAND_BITS - 1)) + Fraction(3, 1 << 24)
"""Of z: two cuts of 2^-19 each, 2^-23 of the evaluator, less than 2^-24 by cutting V.  Below 2^-17.9."""


@dataclass
class _Sums:
    """A row that is being summed."""

    length: int = 0
    total: int = 0
    squares: int = 0
    finite: bool = True


class Normalization:
    """Normalise rows: statistics beats first, then the same row once more as apply beats.

    Parameters
    ----------
    lanes
        Elements per beat: a power of two from 4 to 16.
    """

    def __init__(self, *, lanes: int = 16) -> None:
        self.lanes = check_lanes(lanes)
        self.reset()

    @property
    def input_fields(self) -> Fields:
        """A beat of x with ``apply`` (else it is a statistics beat) and ``rms``; ``b_k`` is gamma, ``c_k`` is beta.

        ``rms`` counts in a row's last statistics beat; gamma and beta count in apply beats.
        """
        operands = ((f"{side}_{lane}", FP16.width) for side in "bc" for lane in range(self.lanes))
        return (("apply", 1), ("rms", 1), *input_fields(self.lanes), *operands)

    @property
    def output_fields(self) -> Fields:
        """``invalid``: the row cannot be normalised, or this beat holds an x that is not finite; ``masked`` is 0."""
        return output_fields(self.lanes)

    def reset(self) -> None:
        """Forget all rows; what is applied before any statistics is invalid."""
        self._sums = _Sums()
        self.row = Scalars.unusable()

    def accept(self, beat: Mapping[str, int], epsilon: int) -> dict[str, int] | None:
        """Take one beat; apply beats have an answer.

        Parameters
        ----------
        beat
            Fields of :attr:`input_fields`.
        epsilon
            FP32 code, counts in a row's last statistics beat.
        """
        codes = valid_codes(beat, self.lanes)
        if check_code("apply", beat["apply"], 1):
            finite = all(code & ~FP16.sign_bit < FP16.infinity for code in codes)
            answer = {name: beat[name] for name in ("last", "count")}
            answer |= {"masked": 0, "invalid": int(not (self.row.usable and finite))}
            values = [self.element(x, beat[f"b_{k}"], beat[f"c_{k}"]) for k, x in enumerate(codes)]
            return answer | {f"y_{k}": values[k] if k < len(values) else 0 for k in range(self.lanes)}
        sums = self._sums
        for code in codes:
            if code & ~FP16.sign_bit >= FP16.infinity:
                sums.finite = False
                continue
            value = _fixed(code)
            sums.total += value
            sums.squares += value * value
        sums.length = check_range("length of the row", sums.length + len(codes), 1, (1 << LENGTH_BITS) - 1)
        if beat["last"]:
            rms = check_code("rms", beat["rms"], 1)
            self.row = scalars(sums.length, sums.total, sums.squares, epsilon, rms=bool(rms), finite=sums.finite)
            self._sums = _Sums()
        return None

    def element(self, x: int, gamma: int, beta: int) -> int:
        """Return y of one element under the scalars of the row that was summed last."""
        row = self.row
        x, gamma, beta = (check_code(n, v, FP16.width) for n, v in (("x", x), ("gamma", gamma), ("beta", beta)))
        if row.rms:
            beta = 0
        if not row.usable or x & ~FP16.sign_bit >= FP16.infinity or is_nan(gamma, FP16) or is_nan(beta, FP16):
            return FP16.quiet_nan
        deviation = row.length * _fixed(x) - row.total
        sign = x >> 15 if row.rms else int(deviation < 0)
        z, exponent = self._divide(abs(deviation))
        gamma_sign, gamma_exponent, gamma_significand = unpack(gamma, FP16)
        sign ^= gamma_sign
        infinity = sign << 15 | FP16.infinity
        if is_inf(gamma, FP16):
            if z == 0 or (is_inf(beta, FP16) and beta != infinity):
                return FP16.quiet_nan
            return infinity
        if is_inf(beta, FP16):
            return beta
        product = z * gamma_significand
        if product == 0:
            return sign << 15 if row.rms else beta
        # The product in a fixed-point window; what falls below it only makes the last bit odd (the sticky bit).
        left = exponent + gamma_exponent - 1 + FP16.min_weight - WINDOW_WEIGHT
        if left > MAX_SHIFT:
            return infinity
        window = (product << left if left >= 0 else product >> -left) << 1
        window |= left < 0 and (product & ((1 << -left) - 1)) > 0
        if window >> 1 + WINDOW_BITS:
            return infinity
        beta_fixed = _fixed(beta) << FP16.min_weight - WINDOW_WEIGHT + 1
        result = (-window if sign else window) + beta_fixed
        if result == 0:
            return 0
        return round_to_format(int(result < 0), abs(result), WINDOW_WEIGHT - 1, FP16)

    def _divide(self, deviation: int) -> tuple[int, int]:
        """Return z = significand * 2^exponent of |n X - total|, cut to ``SIGNIFICAND_BITS`` bits."""
        if deviation == 0 or self.row.rho == 0:
            return 0, 0
        drop = deviation.bit_length() - SIGNIFICAND_BITS
        significand = deviation >> drop if drop >= 0 else deviation << -drop
        product = significand * self.row.rho
        more = product.bit_length() - SIGNIFICAND_BITS
        return product >> more, drop + more - (RHO_BITS - 1) - self.row.exponent

    def normalise(
        self,
        x: npt.NDArray[Any],
        gamma: npt.NDArray[Any],
        beta: npt.NDArray[Any],
        *,
        epsilon: int,
        rms: bool,
    ) -> npt.NDArray[np.uint16]:
        """Return y of a whole row with numpy, as :meth:`accept` would (tested to be the same); leaves the state alone.

        Parameters
        ----------
        x, gamma, beta
            FP16 codes as ``uint16`` arrays of one length.
        epsilon
            FP32 code.
        rms
            RMSNorm instead of LayerNorm.
        """
        for name, codes in (("x", x), ("gamma", gamma), ("beta", beta)):
            if codes.dtype != np.uint16 or codes.ndim != 1 or len(codes) != len(x):
                raise ParameterError(f"{name} must be a one-dimensional array of {len(x)} uint16 codes")
        check_range("length of the row", len(x), 1, (1 << LENGTH_BITS) - 1)
        total, squares, finite = sums_of(x)
        return normalise_many(scalars(len(x), total, squares, epsilon, rms=rms, finite=finite), x, gamma, beta)


def _fixed(code: int) -> int:
    """Return a finite FP16 code's value in units of 2^-24."""
    sign, exponent, significand = unpack(code, FP16)
    return (-significand if sign else significand) << exponent - 1


def row_beats(
    x: Sequence[int], lanes: int, *, rms: bool, gamma: Sequence[int] = (), beta: Sequence[int] = (), filler: int = 0
) -> list[dict[str, int]]:
    """Return a row as statistics beats, or as apply beats if ``gamma`` is given (``beta`` defaults to zeros)."""
    beats = []
    for start in range(0, len(x), lanes):
        part = range(start, min(start + lanes, len(x)))
        beat = {"apply": int(bool(gamma)), "rms": int(rms), "last": int(part.stop == len(x)), "count": len(part)}
        for side, codes in (("a", x), ("b", gamma), ("c", beta)):
            beat |= {f"{side}_{k}": codes[start + k] if codes and k < len(part) else filler for k in range(lanes)}
        beats.append(beat)
    return beats
