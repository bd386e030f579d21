"""FP32 to FP16 with one rounding to nearest even: the output cast behind the accumulator.

Latency: 2 cycles, one per entry of ``STAGES``.  Throughput: one number per cycle.  Reset: the pipeline is empty.
Source: IEEE 754-2019; numbers as in ``golden_model.arithmetic.fp16_rounder``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic import fp16_rounder as golden
from golden_model.arithmetic.formats import FP16, FP32
from hdl.arithmetic.rounding import round_nearest_even, unpack
from hdl.shapes import advance, struct

__all__ = ["Fp16Rounder"]

STAGES = ("align", "round")
SIGNIFICAND_BITS = FP16.fraction_bits + 1  # with the hidden bit
LOWEST = FP32.bias - FP16.bias  # FP32 exponent (field - 1) of the lowest binade of FP16
DEEPEST = SIGNIFICAND_BITS + 1  # from this shift on, the whole significand lies below the bit to round by


class Fp16Rounder(wiring.Component):
    """Convert FP32 codes to FP16 codes.

    Members
    -------
    i : In(stream)
        A number: single, an FP32 code.
    o : Out(stream)
        The same, rounded: half, an FP16 code.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {"round": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self) -> None:
        fields = golden.Fp16Rounder()
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        load_align, load_round = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(load_align), self.o.valid.eq(valids[-1])]

        # Stage 1, align: below the lowest binade of FP16, shift the significand to a subnormal's weight.
        single = unpack(m, self.i.payload.single, FP32, name="single")
        subnormal = Signal()
        shift = Signal(range(DEEPEST + 1))
        aligned = Signal(FP32.fraction_bits + 1 + DEEPEST)  # the shift drops nothing
        m.d.comb += [
            subnormal.eq(single.exponent < LOWEST),
            aligned.eq(Cat(Const(0, DEEPEST), single.significand) >> shift),
        ]
        with m.If(single.exponent < LOWEST - DEEPEST):
            m.d.comb += shift.eq(DEEPEST)
        with m.Elif(subnormal):
            m.d.comb += shift.eq(LOWEST - single.exponent)
        low = len(aligned) - SIGNIFICAND_BITS  # bits below the significand
        align_kept_r = Signal(SIGNIFICAND_BITS, reset_less=True)
        align_half_r = Signal(reset_less=True)
        align_rest_r = Signal(reset_less=True)
        align_base_r = Signal(FP32.exponent_bits, reset_less=True)
        align_sign_r = Signal(reset_less=True)
        align_nan_r = Signal(reset_less=True)
        with m.If(load_align):
            m.d.sync += [
                align_kept_r.eq(aligned[low:]),
                align_half_r.eq(aligned[low - 1]),
                align_rest_r.eq(aligned[: low - 1].any()),
                align_base_r.eq(Mux(subnormal, 0, single.exponent - LOWEST)),
                align_sign_r.eq(single.sign),
                align_nan_r.eq(single.nan),
            ]

        # Stage 2, round: once; an infinity is above every base that FP16 has, so it needs no case of its own.
        rounded = round_nearest_even(
            m, base=align_base_r, kept=align_kept_r, half=align_half_r, rest=align_rest_r, fmt=FP16
        )
        with m.If(load_round):
            m.d.sync += self.o.payload.half.eq(Mux(align_nan_r, FP16.quiet_nan, Cat(rounded, align_sign_r)))
        return m
