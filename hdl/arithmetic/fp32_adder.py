"""FP32 addition, rounded once to nearest even: the accumulator step behind the dot product.

Latency: 3 cycles, one per entry of ``STAGES``.  Throughput: one sum per cycle.  Reset: the pipeline is empty.
Source: IEEE 754-2019; numbers as in ``golden_model.arithmetic.fp32_adder``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic import fp32_adder as golden
from golden_model.arithmetic.formats import FP32
from hdl.arithmetic.rounding import leading_zeros, round_nearest_even, shift_left, unpack
from hdl.shapes import advance, struct

__all__ = ["Fp32Adder"]

STAGES = ("order", "sum", "round")
SIGNIFICAND_BITS = FP32.fraction_bits + 1  # with the hidden bit
GUARD_BITS = 3  # a bit to round by, one more for the shift of a subtraction, and a sticky one
ALIGNED_BITS = SIGNIFICAND_BITS + GUARD_BITS


class Fp32Adder(wiring.Component):
    """Add two FP32 codes.

    Members
    -------
    i : In(stream)
        Operands: a, b.
    o : Out(stream)
        Their sum: sum.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {"add": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self) -> None:
        fields = golden.Fp32Adder()
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        load_order, load_sum, load_round = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(load_order), self.o.valid.eq(valids[-1])]

        # Stage 1, order: the operand of greater magnitude first.  Magnitudes order like unsigned integers.
        a, b = (unpack(m, self.i.payload[name], FP32, name=name) for name in "ab")
        swap = Signal()
        subtract = Signal()
        distance = Signal(FP32.exponent_bits)
        m.d.comb += [
            swap.eq(self.i.payload.a[: FP32.width - 1] < self.i.payload.b[: FP32.width - 1]),
            subtract.eq(a.sign ^ b.sign),
            distance.eq(Mux(swap, b.exponent - a.exponent, a.exponent - b.exponent)),  # never negative
        ]
        greater_r = Signal(SIGNIFICAND_BITS, reset_less=True)
        lesser_r = Signal(SIGNIFICAND_BITS, reset_less=True)
        order_distance_r = Signal(range(ALIGNED_BITS + 1), reset_less=True)
        order_exponent_r = Signal(FP32.exponent_bits, reset_less=True)
        order_sign_r = Signal(reset_less=True)
        order_zero_sign_r = Signal(reset_less=True)
        order_subtract_r = Signal(reset_less=True)
        order_nan_r = Signal(reset_less=True)
        order_inf_r = Signal(reset_less=True)
        with m.If(load_order):
            m.d.sync += [
                greater_r.eq(Mux(swap, b.significand, a.significand)),
                lesser_r.eq(Mux(swap, a.significand, b.significand)),
                order_distance_r.eq(Mux(distance > ALIGNED_BITS, ALIGNED_BITS, distance)),  # all sticky from there
                order_exponent_r.eq(Mux(swap, b.exponent, a.exponent)),
                order_sign_r.eq(Mux(swap, b.sign, a.sign)),
                order_zero_sign_r.eq(a.sign & b.sign),
                order_subtract_r.eq(subtract),
                order_nan_r.eq(a.nan | b.nan | (a.inf & b.inf & subtract)),
                order_inf_r.eq(a.inf | b.inf),
            ]

        # Stage 2, sum: shift the lesser one to the weights of the greater one, then add or subtract.
        shifted = Signal(2 * ALIGNED_BITS)  # the lower half is what falls off
        lesser = Signal(ALIGNED_BITS)
        greater = Signal(ALIGNED_BITS)
        m.d.comb += [
            shifted.eq(Cat(Const(0, ALIGNED_BITS + GUARD_BITS), lesser_r) >> order_distance_r),
            lesser.eq(shifted[ALIGNED_BITS:] | shifted[:ALIGNED_BITS].any()),
            greater.eq(greater_r << GUARD_BITS),
        ]
        sum_r = Signal(ALIGNED_BITS + 1, reset_less=True)  # one carry; never negative
        sum_exponent_r = Signal(FP32.exponent_bits, reset_less=True)
        sum_sign_r = Signal(reset_less=True)
        sum_zero_sign_r = Signal(reset_less=True)
        sum_nan_r = Signal(reset_less=True)
        sum_inf_r = Signal(reset_less=True)
        with m.If(load_sum):
            m.d.sync += [
                sum_r.eq(Mux(order_subtract_r, greater - lesser, greater + lesser)),
                sum_exponent_r.eq(order_exponent_r),
                sum_sign_r.eq(order_sign_r),
                sum_zero_sign_r.eq(order_zero_sign_r),
                sum_nan_r.eq(order_nan_r),
                sum_inf_r.eq(order_inf_r),
            ]

        # Stage 3, round: normalise as far as the exponent allows, then round once.
        rounded = self._round(m, sum_r, sum_exponent_r)
        result = Signal(FP32.width)
        with m.If(sum_nan_r):
            m.d.comb += result.eq(FP32.quiet_nan)
        with m.Elif(sum_inf_r):
            m.d.comb += result.eq(Cat(Const(FP32.infinity, FP32.width - 1), sum_sign_r))
        with m.Elif(~sum_r.any()):
            m.d.comb += result.eq(Cat(Const(0, FP32.width - 1), sum_zero_sign_r))
        with m.Else():
            m.d.comb += result.eq(Cat(rounded, sum_sign_r))
        with m.If(load_round):
            m.d.sync += self.o.payload.sum.eq(result)
        return m

    @staticmethod
    def _round(m: Module, total: Signal, exponent: Signal) -> Signal:
        """Return the code, less its sign, of ``total * 2^(exponent - GUARD_BITS + FP32.min_weight)``."""
        zeros = leading_zeros(m, total, name="total")
        # Shifted left by s, the bits kept weigh 2^(exponent + 1 - s): the carry's place is one above the hidden bit's.
        most = Signal(FP32.exponent_bits + 1)  # the shift that brings the weight down to a subnormal's
        shift = Signal(range(len(total)))
        base = Signal(FP32.exponent_bits)
        m.d.comb += [
            most.eq(exponent + 1),
            shift.eq(Mux(zeros < most, zeros, most)),
            base.eq(most - shift),
        ]
        normal = shift_left(m, total, shift, name="total")
        low = len(total) - SIGNIFICAND_BITS  # bits below the significand
        kept, half, rest = normal[low:], normal[low - 1], normal[: low - 1].any()
        return round_nearest_even(m, base=base, kept=kept, half=half, rest=rest, fmt=FP32)
