"""Coefficients of the piecewise quadratic evaluator, computed from integers only, so that they are the same everywhere.

Each function is cut into 2^INDEX_BITS equal segments.  In a segment, with v in [0, 1) across it, the polynomial passes
through the function at the three Chebyshev nodes, which is within a few percent of the least possible maximum error,
|f'''| h^3 / 192.  Segment 0 of 2^f, 1/m and 1/sqrt(m) passes through its own start instead, which costs 23 % there, so
that 2^0 = 1/1 = 1/sqrt(1) = 1 is exact.  Source: our choice; nodes by the textbook.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

__all__ = [
    "ARGUMENT_BITS", "C0_BITS", "C1_BITS", "C2_BITS", "INDEX_BITS", "INNER_FRACTION_BITS", "OUTER_FRACTION_BITS",
    "SCALE_BITS", "SHORT_BITS", "STEP_BITS", "VALUE_FRACTION_BITS", "Coefficients", "Function", "ln2", "table",
]  # fmt: skip

ARGUMENT_BITS = 24  # fraction bits of the argument
INDEX_BITS = 6  # 64 segments per function
STEP_BITS = ARGUMENT_BITS - INDEX_BITS  # place within a segment, v = step / 2^STEP_BITS
SHORT_BITS = 13  # bits of v that c2 is multiplied by: less than |c2| 2^-13 < 2^-25 is lost
INNER_FRACTION_BITS = 27  # of c1, c2 and their sum; with 26, 1/sqrt(m) would not be monotonic
OUTER_FRACTION_BITS = 27  # of c0 and of the sum before it is cut
VALUE_FRACTION_BITS = 24  # of the result
C0_BITS = OUTER_FRACTION_BITS + 1  # c0 < 2
C1_BITS = INNER_FRACTION_BITS - 5 + 1  # |c1| <= max |f'| 2^-6 < 2^-5, and a sign
C2_BITS = INNER_FRACTION_BITS - 12  # 0 < c2 < 2^-12: max f'' / 2 is 1, for 1/m at m = 1

SCALE_BITS = 96  # fraction bits of the integers that the functions are computed in


class Function(enum.IntEnum):
    """What the evaluator computes; ``a`` is the argument as a fraction in [0, 1)."""

    EXP2 = 0  # 2^a, in [1, 2)
    RECIPROCAL = 1  # 1 / (1 + a), in (1/2, 1]
    RSQRT = 2  # 1 / sqrt(1 + a), in (0.707, 1]
    RSQRT_UPPER = 3  # 1 / sqrt(2 (1 + a)), in (1/2, 0.708)


@dataclass(frozen=True)
class Coefficients:
    """One segment: value = c0 + v (c1 + c2 v)."""

    c0: int  # OUTER_FRACTION_BITS, with the half that makes the last cut a rounding
    c1: int  # INNER_FRACTION_BITS, signed
    c2: int  # INNER_FRACTION_BITS; all four functions are convex, so it is positive


@functools.cache
def ln2() -> int:
    """Return ln 2, the sum of 1 / (k 2^k), in units of 2^-SCALE_BITS."""
    return sum((1 << (SCALE_BITS + 32)) // (k << k) for k in range(1, SCALE_BITS + 40)) >> 32


def _exp2(a: Fraction) -> Fraction:
    term, total = 1 << SCALE_BITS, 0
    power = int(a * ln2())
    k = 1
    while term:
        total += term
        term = (term * power >> SCALE_BITS) // k
        k += 1
    return Fraction(total, 1 << SCALE_BITS)


def _rsqrt(m: Fraction) -> Fraction:
    return Fraction(isqrt(int((1 << 2 * SCALE_BITS) / m)), 1 << SCALE_BITS)


_EXACT: dict[Function, Callable[[Fraction], Fraction]] = {
    Function.EXP2: _exp2,
    Function.RECIPROCAL: lambda a: 1 / (1 + a),
    Function.RSQRT: lambda a: _rsqrt(1 + a),
    Function.RSQRT_UPPER: lambda a: _rsqrt(2 + 2 * a),
}

# The zeros of the third Chebyshev polynomial, (1 - sqrt(3)/2) / 2, 1/2 and (1 + sqrt(3)/2) / 2, and the same on the
# interval stretched to the left until its first zero is at 0, in units of 2^-STEP_BITS.
_NODES = (17561, 131072, 244583)
_NODES_FROM_START = (0, 121656, 243311)


def _segment(function: Function, index: int) -> Coefficients:
    exact, segments, steps = _EXACT[function], 1 << INDEX_BITS, 1 << STEP_BITS
    starts = index == 0 and function is not Function.RSQRT_UPPER
    x0, x1, x2 = (Fraction(node, steps) for node in (_NODES_FROM_START if starts else _NODES))
    f0, f1, f2 = (exact((index + x) / segments) for x in (x0, x1, x2))
    d01, d12 = (f1 - f0) / (x1 - x0), (f2 - f1) / (x2 - x1)  # Newton's divided differences
    c2 = (d12 - d01) / (x2 - x0)
    c1 = d01 - c2 * (x0 + x1)
    c0 = f0 - c1 * x0 - c2 * x0 * x0
    inner, outer = 1 << INNER_FRACTION_BITS, 1 << OUTER_FRACTION_BITS
    # v is cut to SHORT_BITS below c2, which loses c2 / 2 of a last place on average; give it to c1.
    c1_rounded = round((c1 + c2 / 2 ** (SHORT_BITS + 1)) * inner)
    # The result is cut to VALUE_FRACTION_BITS: half of its last place makes that a rounding.
    half = 1 << (OUTER_FRACTION_BITS - VALUE_FRACTION_BITS - 1)
    return Coefficients(c0=round(c0 * outer) + half, c1=c1_rounded, c2=round(c2 * inner))


@functools.cache
def table(function: Function) -> tuple[Coefficients, ...]:
    """Return the coefficients of all segments of ``function``."""
    return tuple(_segment(function, index) for index in range(1 << INDEX_BITS))
