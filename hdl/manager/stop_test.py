"""The Controller's stop test: H <- H * p for a sampled draft token, compared with tau.

Latency: 2 cycles.  Throughput: one token per cycle.  Reset: the pipeline is empty.
Source: paper sections IV-C and V-E; numbers and mode bit as in ``golden_model.manager.stop_test``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP16
from golden_model.manager import stop_test as golden
from golden_model.params import check_range
from hdl.shapes import advance, struct

__all__ = ["StopTest"]


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

        # Stage 1: exact product of the significands.  Subnormals have exponent field 1 and no hidden bit.
        def unpack(code):  # type: ignore[no-untyped-def]
            field, fraction = code[FP16.fraction_bits : FP16.width - 1], code[: FP16.fraction_bits]
            return Mux(field == 0, 1, field), Cat(fraction, field != 0)

        (h_exponent, h_significand), (p_exponent, p_significand) = unpack(token.h), unpack(token.p)
        product_r = Signal(2 * (FP16.fraction_bits + 1))  # 11 x 11 bits, exact
        exponent_r = Signal(range(2, 2 * FP16.bias + 1))  # sum of two fields of at most 15
        request_r = Signal(self.request_bits)
        tau_r = Signal(16)
        invalid_r = Signal()
        room_r = Signal()
        keep_below_r = Signal()
        with m.If(load_product):
            m.d.sync += [
                product_r.eq(h_significand * p_significand),
                exponent_r.eq(h_exponent + p_exponent),
                request_r.eq(token.request),
                tau_r.eq(self.tau),
                invalid_r.eq((token.h > golden.ONE) | (token.p > golden.ONE)),
                room_r.eq(token.length < self.max_length),
                keep_below_r.eq(self.keep_below),
            ]

        # Stage 2: round once and compare.  The product's weight is 2^(exponent - 50).  Shifted left by the exponent it
        # is a fixed-point number with last bit 2^-48 and value at most 1, so 49 bits hold it.
        fixed = Signal(49)
        m.d.comb += fixed.eq((product_r << exponent_r)[2:])
        rounded = self._round(m, fixed)
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

    @staticmethod
    def _round(m: Module, fixed: Signal) -> Signal:
        """Round a number in [0, 1] with last bit 2^-48 to an FP16 code, nearest even."""
        # The code's last bit weighs 2^-24 for subnormals and the lowest binade (shift 24), then doubles per binade up
        # to 2^-10 at one (shift 38): 15 binades, one-hot by leading bit.
        rounded = Signal(16)
        shifts = range(24, 39)
        for shift in shifts:
            lead = shift + FP16.fraction_bits  # position of the hidden bit in this binade
            kept = fixed[shift : lead + 1]
            half, rest = fixed[shift - 1], fixed[: shift - 1].any()
            up = half & (rest | kept[0])
            code = Const((shift - 24) << FP16.fraction_bits, 16) + kept + up
            applies = fixed[lead] & ~fixed[lead + 1 :].any() if shift > 24 else ~fixed[lead + 1 :].any()
            with m.If(applies):
                m.d.comb += rounded.eq(code)
        return rounded
