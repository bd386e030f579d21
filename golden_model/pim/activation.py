"""Unary functions of FP16 numbers, lane by lane: exp, 1/x, 1/sqrt(x), ReLU and SiLU = x / (1 + e^-x).

All five are one product, ``significand * power * quotient``, rounded once:

    exp          1   * 2^fraction              * 1
    reciprocal   1   * 1                       * 1/m
    rsqrt        1   * 1                       * 1/sqrt(m)
    relu         |x| * 1                       * 1
    silu         |x| * 2^fraction if x < 0     * 1 / (1 + e^-|x|)

with the exponents added up beside it.  SiLU in this form neither overflows nor cancels.
Source: our choice; specials follow IEEE 754-2019 clause 9.2 where it has them.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from golden_model.arithmetic.elementary import ONE, Function, evaluate, evaluate_many
from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, VALUE_FRACTION_BITS
from golden_model.arithmetic.formats import FP16, is_inf, is_nan, round_to_format, unpack
from golden_model.layouts import Fields
from golden_model.params import ParameterError, check_range
from golden_model.pim.exponential import fixed_log2, powers_of_e
from golden_model.pim.vector_beat import check_lanes, input_fields, output_fields, valid_codes

__all__ = [
    "HIGHEST_EXPONENT", "LOWEST_EXPONENT", "OP_BITS", "POWER_FRACTION_BITS", "QUOTIENT_FRACTION_BITS",
    "WEIGHT_FRACTION_BITS", "Activation", "Op",
]  # fmt: skip

OP_BITS = 3
POWER_FRACTION_BITS = 20  # of 2^fraction
WEIGHT_FRACTION_BITS = 20  # of significand * power, below 4
QUOTIENT_FRACTION_BITS = 21  # of the quotient, at most 1
LOWEST_EXPONENT = -40  # from there on everything rounds to 0
HIGHEST_EXPONENT = 17  # from there on everything rounds to infinity
DEEPEST = 31  # shifts of e^-|x| stop here


class Op(enum.IntEnum):
    """Which function; codes 5 to 7 are reserved."""

    EXP = 0
    RECIPROCAL = 1
    RSQRT = 2
    RELU = 3
    SILU = 4


class _Factors(NamedTuple):
    """The result is significand * power * quotient * 2^exponent, in units of 2^-10, 2^-20 and 2^-21."""

    significand: int
    power: int
    quotient: int
    exponent: int


def _special(op: Op, code: int) -> int | None:
    """Return the result where it does not come out of the product, else None."""
    minus, size = code & FP16.sign_bit, code & ~FP16.sign_bit
    if is_nan(code, FP16) or (op is Op.RSQRT and minus and size):
        return FP16.quiet_nan
    if op is Op.RELU and minus:
        return 0
    if is_inf(code, FP16):
        if op in (Op.RECIPROCAL, Op.RSQRT):
            return minus
        if op is Op.EXP:
            return 0 if minus else FP16.infinity
        return minus if minus else FP16.infinity  # silu(-inf) = -0
    if not size and op is not Op.EXP:
        return minus | FP16.infinity if op in (Op.RECIPROCAL, Op.RSQRT) else minus
    return None


def _factors(op: Op, code: int) -> _Factors:
    sign, field, significand = unpack(code, FP16)
    one, whole = 1 << FP16.fraction_bits, 1 << POWER_FRACTION_BITS
    if op in (Op.RECIPROCAL, Op.RSQRT):
        zeros = FP16.fraction_bits + 1 - significand.bit_length()
        exponent = field - FP16.bias - zeros
        argument = ((significand << zeros) - one) << (ARGUMENT_BITS - FP16.fraction_bits)
        function = Function.RECIPROCAL
        if op is Op.RSQRT:
            function = Function.RSQRT_UPPER if exponent & 1 else Function.RSQRT
            exponent >>= 1
        return _Factors(one, whole, evaluate(function, argument) >> _QUOTIENT_CUT, -exponent)
    quotient = ONE >> _QUOTIENT_CUT
    if op is Op.RELU:
        return _Factors(significand, whole, quotient, field - FP16.bias)
    t = fixed_log2(code if op is Op.EXP else code | FP16.sign_bit)
    integer, mantissa = t >> ARGUMENT_BITS, evaluate(Function.EXP2, t & ((1 << ARGUMENT_BITS) - 1))
    power = mantissa >> (VALUE_FRACTION_BITS - POWER_FRACTION_BITS)
    if op is Op.EXP:
        return _Factors(one, power, quotient, integer)
    denominator = mantissa >> min(-integer, DEEPEST)  # e^-|x|, below 1 since x is not 0
    quotient = evaluate(Function.RECIPROCAL, denominator) >> _QUOTIENT_CUT
    exponent = field - FP16.bias
    return _Factors(significand, power, quotient, exponent + integer) if sign else (
        _Factors(significand, whole, quotient, exponent)
    )


_QUOTIENT_CUT = VALUE_FRACTION_BITS - QUOTIENT_FRACTION_BITS
_WEIGHT_CUT = FP16.fraction_bits + POWER_FRACTION_BITS - WEIGHT_FRACTION_BITS


class Activation:
    """Apply one function to every element of a beat.

    Parameters
    ----------
    lanes
        Elements per beat, a power of two from 4 to 16.
    """

    def __init__(self, *, lanes: int = 16) -> None:
        self.lanes = check_lanes(lanes)

    @property
    def operand_fields(self) -> Fields:
        return (("op", OP_BITS), *input_fields(self.lanes))

    @property
    def result_fields(self) -> Fields:
        """The flags ``masked`` and ``invalid`` are always 0."""
        return output_fields(self.lanes)

    def element(self, op: int, code: int) -> int:
        """Return the function of one FP16 code.

        >>> hex(Activation().element(Op.SILU, 0xCA00))  # silu(-12) = -7.373e-05
        '0x84d5'
        """
        op = Op(check_range("op", op, 0, max(Op)))
        special = _special(op, code)
        if special is not None:
            return special
        factors = _factors(op, code)
        weight = factors.significand * factors.power >> _WEIGHT_CUT
        exponent = min(max(factors.exponent, LOWEST_EXPONENT), HIGHEST_EXPONENT)
        sign = code >> (FP16.width - 1) if op in (Op.RECIPROCAL, Op.SILU) else 0
        unit = exponent - WEIGHT_FRACTION_BITS - QUOTIENT_FRACTION_BITS
        return round_to_format(sign, weight * factors.quotient, unit, FP16)

    def compute(self, item: Mapping[str, int]) -> dict[str, int]:
        """Return the output beat of one item."""
        codes = valid_codes(item, self.lanes)
        values = [self.element(item["op"], code) for code in codes]
        beat = {"last": item["last"], "count": len(codes), "masked": 0, "invalid": 0}
        return beat | {f"y_{lane}": values[lane] if lane < len(codes) else 0 for lane in range(self.lanes)}

    def compute_many(self, op: int, codes: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
        """Return :meth:`element` of every code of a ``uint16`` array, computed on whole arrays (tested to be the same)."""
        if codes.dtype != np.uint16:
            raise ParameterError(f"codes must be an array of uint16, not of {codes.dtype}")
        values: npt.NDArray[np.uint16] = _table(Op(check_range("op", op, 0, max(Op))))[codes]
        return values


@functools.cache
def _table(op: Op) -> npt.NDArray[np.uint16]:
    """Return the results of all codes: the specials one by one, the products by numpy, which rounds them once to float16."""
    codes = np.arange(1 << FP16.width)
    field = np.maximum(codes >> FP16.fraction_bits & FP16.max_exponent_field, 1)
    whole = codes & ~FP16.sign_bit
    significand = whole - (field - 1 << FP16.fraction_bits)
    exponent = field - FP16.bias
    minus = codes >= FP16.sign_bit
    one = np.full_like(codes, 1 << FP16.fraction_bits)
    power = np.full_like(codes, 1 << POWER_FRACTION_BITS)
    quotient = np.full_like(codes, ONE)
    factor = significand
    if op in (Op.RECIPROCAL, Op.RSQRT):
        zeros = FP16.fraction_bits - np.floor(np.log2(np.maximum(significand, 1))).astype(np.int64)
        fraction = (significand << zeros) & ((1 << FP16.fraction_bits) - 1)
        argument, factor, exponent = fraction << (ARGUMENT_BITS - FP16.fraction_bits), one, exponent - zeros
        quotient = evaluate_many(Function.RECIPROCAL, argument)
        if op is Op.RSQRT:
            even, odd = (evaluate_many(function, argument) for function in (Function.RSQRT, Function.RSQRT_UPPER))
            quotient, exponent = np.where(exponent & 1, odd, even), exponent >> 1
        exponent = -exponent
    elif op is not Op.RELU:
        integer, mantissa = powers_of_e(codes if op is Op.EXP else codes | FP16.sign_bit)
        power = np.where(minus | (op is Op.EXP), mantissa >> (VALUE_FRACTION_BITS - POWER_FRACTION_BITS), power)
        exponent = integer if op is Op.EXP else exponent + np.where(minus, integer, 0)
        factor = one if op is Op.EXP else significand
        if op is Op.SILU:
            denominator = mantissa >> np.clip(-integer, 0, DEEPEST) & ((1 << ARGUMENT_BITS) - 1)
            quotient = evaluate_many(Function.RECIPROCAL, denominator)
    product = (factor * power >> _WEIGHT_CUT) * (quotient >> _QUOTIENT_CUT)
    unit = np.clip(exponent, LOWEST_EXPONENT, HIGHEST_EXPONENT) - WEIGHT_FRACTION_BITS - QUOTIENT_FRACTION_BITS
    signed = np.where(minus & (op in (Op.RECIPROCAL, Op.SILU)), -product, product)
    with np.errstate(over="ignore"):
        halves = np.ldexp(signed.astype(np.float64), unit.astype(np.int32)).astype(np.float16)
    rounded: npt.NDArray[np.uint16] = halves.view(np.uint16)
    for code in codes[(whole >= FP16.infinity) | (whole == 0) | (minus & (op in (Op.RELU, Op.RSQRT)))].tolist():
        special = _special(op, code)
        rounded[code] = rounded[code] if special is None else special
    return rounded
