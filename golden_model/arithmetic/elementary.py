"""2^a, 1/m and 1/sqrt(m) on a normalised argument, by a quadratic polynomial in each of 64 segments.

The argument is a = argument / 2^24 in [0, 1); the functions are those of :class:`Function`.  The result has 24 fraction
bits.  Bit for bit: v = the low 18 bits, short = its top 13 bits,

    inner = c1 + floor(c2 * short / 2^13)            27 fraction bits
    value = floor((c0 * 2^18 + inner * v) / 2^21)    45, then 24 fraction bits

with c1 < 0 for the falling functions.  At least 22 bits of each result are right (``MAX_RELATIVE_ERROR``), each function is
monotonic over all its arguments, and 2^0, 1/1 and 1/sqrt(1) are exactly 1; tests check all 4 * 2^24 arguments.
Source: our choice.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.elementary_tables import (
    ARGUMENT_BITS,
    INDEX_BITS,
    INNER_FRACTION_BITS,
    OUTER_FRACTION_BITS,
    SHORT_BITS,
    STEP_BITS,
    VALUE_FRACTION_BITS,
    Function,
    table,
)
from golden_model.layouts import Fields
from golden_model.params import check_code

__all__ = ["MAX_RELATIVE_ERROR", "ONE", "Elementary", "Function", "evaluate", "evaluate_many"]

MAX_RELATIVE_ERROR = {
    Function.EXP2: Fraction(1, 1 << 24),
    Function.RECIPROCAL: Fraction(1, 1 << 22),
    Function.RSQRT: Fraction(1, 1 << 23),
    Function.RSQRT_UPPER: Fraction(1, 1 << 23),
}
"""Bounds of |value - exact| / exact, held by an exhaustive test."""

ONE = 1 << VALUE_FRACTION_BITS

_PRODUCT_FRACTION_BITS = INNER_FRACTION_BITS + STEP_BITS
_LIFT = _PRODUCT_FRACTION_BITS - OUTER_FRACTION_BITS
_CUT = _PRODUCT_FRACTION_BITS - VALUE_FRACTION_BITS


def evaluate(function: Function, argument: int) -> int:
    """Return the value of ``function`` in units of 2^-24, for an argument in units of 2^-24.

    >>> hex(evaluate(Function.EXP2, 1 << 23))  # the square root of 2 is 1.6A09E668... in hexadecimal
    '0x16a09e7'
    """
    segment = table(function)[argument >> STEP_BITS]
    step = argument & ((1 << STEP_BITS) - 1)
    inner = segment.c1 + (segment.c2 * (step >> (STEP_BITS - SHORT_BITS)) >> SHORT_BITS)
    return (segment.c0 << _LIFT) + inner * step >> _CUT


_COLUMNS: dict[Function, npt.NDArray[np.int64]] = {}


def evaluate_many(function: Function, arguments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return :func:`evaluate` of every argument (tested to be the same); arguments are not checked."""
    if function not in _COLUMNS:
        _COLUMNS[function] = np.array([(s.c0, s.c1, s.c2) for s in table(function)], np.int64).T
    c0, c1, c2 = _COLUMNS[function][:, arguments >> STEP_BITS]
    step = arguments & ((1 << STEP_BITS) - 1)
    inner = c1 + (c2 * (step >> (STEP_BITS - SHORT_BITS)) >> SHORT_BITS)
    values: npt.NDArray[np.int64] = (c0 << _LIFT) + inner * step >> _CUT
    return values


class Elementary:
    """One evaluator for the four functions."""

    @property
    def operand_fields(self) -> Fields:
        return (("function", 2), ("argument", ARGUMENT_BITS))

    @property
    def result_fields(self) -> Fields:
        return (("value", VALUE_FRACTION_BITS + 1),)  # below 2

    def compute(self, function: int, argument: int) -> int:
        """Return the value in units of 2^-24.

        >>> Elementary().compute(Function.RECIPROCAL, 0) == ONE
        True
        """
        chosen = Function(check_code("function", function, 2))
        return evaluate(chosen, check_code("argument", argument, ARGUMENT_BITS))

    def compute_many(self, function: int, arguments: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return :meth:`compute` of every argument in an integer array of any shape."""
        chosen = Function(check_code("function", function, 2))
        for extreme in (arguments.min(), arguments.max()) if arguments.size else ():
            check_code("argument", extreme, ARGUMENT_BITS)
        return evaluate_many(chosen, arguments.astype(np.int64))


assert INDEX_BITS + STEP_BITS == ARGUMENT_BITS
