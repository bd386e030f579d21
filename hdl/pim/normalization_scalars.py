"""The scalar step of the normalisation: V from a row's sums, then 1/sqrt(V), by one small multiplier and one evaluator.

Sequential, ``CYCLES`` from the complete sums to the row's scalars.  Numbers as in ``golden_model.pim.normalization_scalars``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, Function
from golden_model.arithmetic.formats import FP16, FP32
from golden_model.pim.normalization_scalars import (
    LENGTH_BITS,
    MAGNITUDE_BITS,
    RHO_BITS,
    SQUARES_BITS,
    TOTAL_BITS,
    VARIANCE_BITS,
)
from hdl.arithmetic.piecewise import evaluate
from hdl.arithmetic.rounding import leading_zeros, shift_left, unpack
from hdl.pim.normalization_statistics import Totals

__all__ = ["CYCLES", "ROW", "make_scalars"]

DIGIT_BITS = 8  # of the multiplier: as deep as the 11 x 11 bits of a lane
LENGTH_DIGITS = -(-LENGTH_BITS // DIGIT_BITS)
TOTAL_DIGITS = -(-TOTAL_BITS // DIGIT_BITS)
PRODUCTS = (LENGTH_DIGITS, TOTAL_DIGITS, LENGTH_DIGITS, LENGTH_DIGITS)
"""Digits of n * squares, total * total, epsilon * n, (epsilon * n) * n."""

EVALUATION = ("LOOKUP", "INNER", "HALVES", "OUTER")  # of the evaluator

CYCLES = 1 + sum(digits + 2 for digits in PRODUCTS) + 2 * 2 + 2 + len(EVALUATION) + 1

EXPONENT = signed(10)  # of V: -101 to 210
LIFT = FP32.min_weight - 2 * FP16.min_weight  # epsilon has units of 2^-149, V of 2^-48

ROW = data.StructLayout({
    "length": LENGTH_BITS, "total": TOTAL_BITS, "negative": 1, "rho": RHO_BITS, "exponent": signed(8), "rms": 1,
})  # fmt: skip
"""Scalars of a row: n, |total| and its sign (both 0 for RMSNorm), 1/sqrt(V) = rho * 2^-24 * 2^-exponent."""


def make_scalars(
    m: Module, totals: Totals, *, epsilon: Signal, rms: Signal, row: data.View, usable: Signal, idle: Value
) -> Signal:
    """Drive the registers ``row`` and ``usable`` after each complete row; return when they are written.

    Parameters
    ----------
    m
        Module that gets the statements and the registers.
    totals
        Sums of the row; they hold until the scalars are written.
    epsilon, rms
        Registers that belong to the row.
    row, usable
        Registers of the apply pass.
    idle
        Whether the apply pass holds no beat that still needs the scalars before.
    """
    small = unpack(m, epsilon, FP32, name="epsilon")
    written = Signal(name="scalars_written")
    multiplicand_r = Signal(SQUARES_BITS, reset_less=True)
    digits_r = Signal(TOTAL_DIGITS * DIGIT_BITS, reset_less=True)
    product_r = Signal(SQUARES_BITS + DIGIT_BITS, reset_less=True)
    acc_r = Signal(VARIANCE_BITS, reset_less=True)
    left_r = Signal(range(TOTAL_DIGITS + 1), reset_less=True)
    step_r = Signal(range(len(PRODUCTS)), reset_less=True)
    negative_r = Signal(name="scalars_negative_r", reset_less=True)
    total_r = Signal(TOTAL_BITS, name="scalars_total_r", reset_less=True)
    variance_r = Signal(VARIANCE_BITS, reset_less=True)
    zeros_r = Signal(range(VARIANCE_BITS), name="variance_zeros_r", reset_less=True)
    spread_r = Signal(MAGNITUDE_BITS, reset_less=True)
    spread_exponent_r = Signal(EXPONENT, reset_less=True)
    offset_r = Signal(MAGNITUDE_BITS, reset_less=True)
    offset_exponent_r = Signal(EXPONENT, reset_less=True)
    greater_r = Signal(MAGNITUDE_BITS, reset_less=True)
    lesser_r = Signal(MAGNITUDE_BITS, reset_less=True)
    exponent_r = Signal(EXPONENT, name="scalars_exponent_r", reset_less=True)
    argument_r = Signal(ARGUMENT_BITS, reset_less=True)
    zero_r = Signal(name="scalars_zero_r", reset_less=True)
    length_digits = Cat(Const(0, (TOTAL_DIGITS - LENGTH_DIGITS) * DIGIT_BITS), totals.length)

    def begin(multiplicand: Value, digits: Value, count: int) -> list[object]:
        """Start a product, the leading digit first."""
        return [multiplicand_r.eq(multiplicand), digits_r.eq(digits), left_r.eq(count), product_r.eq(0), acc_r.eq(0)]

    zeros = leading_zeros(m, variance_r, name="variance")
    normal = shift_left(m, variance_r, zeros_r, name="variance")
    magnitude = normal[VARIANCE_BITS - MAGNITUDE_BITS :]

    # V = spread + offset: the lesser one is shifted to the weights of the greater one; one that is zero is the lesser.
    swap = Signal(name="scalars_swap")
    distance = Signal(EXPONENT, name="scalars_distance")
    shift = Signal(range(MAGNITUDE_BITS + 1), name="scalars_shift")
    total = Signal(MAGNITUDE_BITS + 1, name="scalars_sum")
    m.d.comb += [
        swap.eq(~spread_r[-1] | (offset_r[-1] & (offset_exponent_r > spread_exponent_r))),
        distance.eq(Mux(swap, offset_exponent_r - spread_exponent_r, spread_exponent_r - offset_exponent_r)),
        shift.eq(Mux((distance < 0) | (distance > MAGNITUDE_BITS), MAGNITUDE_BITS, distance)),
        total.eq(greater_r + lesser_r),
    ]

    with m.FSM(name="scalars") as steps:
        with m.State("IDLE"):
            with m.If(totals.complete):
                m.d.sync += [
                    begin(totals.squares, length_digits, LENGTH_DIGITS),
                    step_r.eq(0),
                    negative_r.eq((totals.total < 0) & ~rms),
                    total_r.eq(Mux(rms, 0, Mux(totals.total < 0, -totals.total, totals.total))),
                ]
                m.next = "MULTIPLY"
        with m.State("MULTIPLY"):
            m.d.sync += [
                product_r.eq(multiplicand_r * digits_r[-DIGIT_BITS:]),
                digits_r.eq(digits_r << DIGIT_BITS),
                acc_r.eq((acc_r << DIGIT_BITS) + product_r),
                left_r.eq(left_r - 1),
            ]
            with m.If(left_r == 0):
                m.next = "TURN"
        with m.State("TURN"):
            m.d.sync += step_r.eq(step_r + 1)
            m.next = "MULTIPLY"
            with m.Switch(step_r):
                with m.Case(0):
                    m.d.sync += [variance_r.eq(acc_r), begin(total_r, total_r, TOTAL_DIGITS)]
                with m.Case(1):
                    m.d.sync += [variance_r.eq(variance_r - acc_r), begin(small.significand, length_digits, LENGTH_DIGITS)]
                with m.Case(2):
                    m.d.sync += begin(acc_r, length_digits, LENGTH_DIGITS)
                with m.Default():
                    m.next = "COUNT"  # step_r is 0 again
        with m.State("COUNT"):
            m.d.sync += zeros_r.eq(zeros)
            m.next = "SHIFT"
        with m.State("SHIFT"):
            m.d.sync += [variance_r.eq(acc_r), step_r.eq(1)]
            with m.If(step_r == 0):
                m.d.sync += [spread_r.eq(magnitude), spread_exponent_r.eq(VARIANCE_BITS - 1 - zeros_r)]
                m.next = "COUNT"
            with m.Else():
                m.d.sync += [
                    offset_r.eq(magnitude),
                    offset_exponent_r.eq(VARIANCE_BITS - 1 + LIFT - zeros_r + small.exponent),
                ]
                m.next = "ALIGN"
        with m.State("ALIGN"):
            m.d.sync += [
                greater_r.eq(Mux(swap, offset_r, spread_r)),
                lesser_r.eq(Mux(swap, spread_r, offset_r) >> shift),
                exponent_r.eq(Mux(swap, offset_exponent_r, spread_exponent_r)),
            ]
            m.next = "ADD"
        with m.State("ADD"):
            low = MAGNITUDE_BITS - 1 - ARGUMENT_BITS
            m.d.sync += [
                argument_r.eq(Mux(total[-1], total[low + 1 :], total[low:])[:ARGUMENT_BITS]),
                exponent_r.eq(exponent_r + total[-1]),
                zero_r.eq(~greater_r[-1]),
            ]
            m.next = "LOOKUP"
        for state, following in zip(EVALUATION, (*EVALUATION[1:], "WRITE"), strict=True):
            with m.State(state):
                m.next = following
        with m.State("WRITE"):
            m.d.comb += written.eq(idle)
            with m.If(idle):
                m.next = "IDLE"

    function = Signal(Function, name="scalars_function")
    m.d.comb += function.eq(Mux(exponent_r[0], Function.RSQRT_UPPER, Function.RSQRT))
    rho = evaluate(
        m, function, argument_r, enables=[steps.ongoing(state) for state in EVALUATION],
        functions=(Function.RSQRT, Function.RSQRT_UPPER), name="rho",
    )  # fmt: skip
    with m.If(written):
        m.d.sync += [
            row.length.eq(totals.length),
            row.total.eq(total_r),
            row.negative.eq(negative_r),
            row.rho.eq(Mux(zero_r, 0, rho)),
            row.exponent.eq(exponent_r >> 1),
            row.rms.eq(rms),
            usable.eq(totals.finite & ~small.nan & ~small.inf & ~(small.sign & ~small.zero)),
        ]
    return written
