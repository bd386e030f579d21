"""The Controller's stop test: H <- H * p for a sampled draft token, compared with tau.

Latency: 2 cycles.  Throughput: one token per cycle.  Reset: the pipeline is empty.
Source: paper sections IV-C and V-E; numbers and mode bit as in ``golden_model.manager.stop_test``.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP16
from golden_model.manager import stop_test as golden
from golden_model.params import check_range
from hdl.arithmetic.rounding import leading_zeros, round_nearest_even, shift_left, unpack
from hdl.shapes import advance, struct

__all__ = ["StopTest"]

ONE_BASE = FP16.bias - 1
"""Exponent field of 1.0, less 1."""


class StopTest(wiring.Component):
    """Decide on one draft token per cycle.

    Parameters
    ----------
    request_bits : int
        Width of the request id, 1 to 16.
    length_bits : int
        Width of the draft length, 1 to 8.

    Members
    -------
    i : In(stream)
        A token: request, length (this token included), h, p.
    o : Out(stream)
        The decision: request, h, go_on, keep, invalid.
    tau : In(16)
        Threshold, FP16; taken in the cycle in which the token is accepted.
    max_length : In(length_bits)
        Longest draft; taken with the token.
    keep_below : In(1)
        1 keeps the token whose H fell below tau; taken with the token.
    """

    i: stream.Interface
    o: stream.Interface
    tau: Signal
    max_length: Signal
    keep_below: Signal

    predicted_timing = {"decide": {"latency_cycles": 2, "interval_cycles": 1}}

    def __init__(self, *, request_bits: int = 7, length_bits: int = 5) -> None:
        self.request_bits = check_range("request_bits", request_bits, 1, 16)
        self.length_bits = check_range("length_bits", length_bits, 1, 8)
        fields = golden.StopTest(request_bits=request_bits, length_bits=length_bits)
        super().__init__({
            "i": In(stream.Signature(struct(fields.request_fields))),
            "o": Out(stream.Signature(struct(fields.decision_fields))),
            "tau": In(16),
            "max_length": In(length_bits),
            "keep_below": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        token, decision = self.i.payload, self.o.payload
        valids = [Signal(name="product_valid_r"), Signal(name="decision_valid_r")]
        load_product, load_decision = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(load_product), self.o.valid.eq(valids[-1])]

        # Stage 1: exact product of the significands; ``unpack`` gives exponent fields less 1, 0 for subnormals too.
        h, p = unpack(m, token.h, FP16, name="h"), unpack(m, token.p, FP16, name="p")
        product_r = Signal(2 * (FP16.fraction_bits + 1))  # 11 x 11 bits, exact
        exponent_r = Signal(range(2 * FP16.bias - 1))  # at most 14 + 14, for 1 * 1
        request_r = Signal(self.request_bits)
        tau_r = Signal(16)
        invalid_r = Signal()
        room_r = Signal()
        keep_below_r = Signal()
        with m.If(load_product):
            m.d.sync += [
                product_r.eq(h.significand * p.significand),
                exponent_r.eq(h.exponent + p.exponent),
                request_r.eq(token.request),
                tau_r.eq(self.tau),
                invalid_r.eq((token.h > golden.ONE) | (token.p > golden.ONE)),
                room_r.eq(token.length < self.max_length),
                keep_below_r.eq(self.keep_below),
            ]

        # Stage 2: round once and compare.  Shifted left by the exponent, the product is a fixed-point number with last
        # bit 2^-48, and at most 1.  Its leading one gives the binade, of which the lowest holds the subnormals too.
        fixed = Signal(49)
        shift = Signal(range(ONE_BASE + 1))
        m.d.comb += fixed.eq(product_r << exponent_r)
        zeros = leading_zeros(m, fixed, name="fixed")
        m.d.comb += shift.eq(Mux(zeros < ONE_BASE, zeros, ONE_BASE))
        normal = shift_left(m, fixed, shift, name="fixed")
        low = len(fixed) - FP16.fraction_bits - 1  # bits below the significand
        kept, half, rest = normal[low:], normal[low - 1], normal[: low - 1].any()
        base = Signal(range(ONE_BASE + 1))
        m.d.comb += base.eq(ONE_BASE - shift)
        rounded = round_nearest_even(m, base=base, kept=kept, half=half, rest=rest, fmt=FP16, overflows=False)
        above = Signal()
        m.d.comb += above.eq(rounded >= tau_r)
        with m.If(load_decision):
            m.d.sync += [
                decision.request.eq(request_r),
                decision.h.eq(Mux(invalid_r, 0, rounded)),
                decision.go_on.eq(~invalid_r & above & room_r),
                decision.keep.eq(~invalid_r & (above | keep_below_r)),
                decision.invalid.eq(invalid_r),
            ]
        return m
