"""Accumulator of a pseudo-channel: the sum of four partial results in FP32, as FP32 or rounded to FP16.

Latency: 8 cycles: two FP32 additions one after the other, then the rounder, which FP32 results pass unchanged.
Throughput: one sum per cycle.  Reset: the pipeline is empty.
Source: paper sections V-E and V-F; order and formats as in ``golden_model.pim.accumulator``.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP32
from golden_model.pim import accumulator as golden
from hdl.arithmetic.fp16_rounder import Fp16Rounder
from hdl.arithmetic.fp32_adder import Fp32Adder
from hdl.shapes import advance, struct

__all__ = ["Accumulator"]

ADDITIONS = 2 * Fp32Adder.latency  # stages before the rounder


class Accumulator(wiring.Component):
    """Add four FP32 codes in pairs: (p_0 + p_1) + (p_2 + p_3).

    Members
    -------
    i : In(stream)
        Four FP32 codes and the format of their sum: half, p_0 ... p_3.
    o : Out(stream)
        The sum: an FP32 code, or an FP16 code with zeros above if ``half`` was set.
    """

    i: stream.Interface
    o: stream.Interface

    latency = ADDITIONS + Fp16Rounder.latency
    predicted_timing = {"accumulate": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self) -> None:
        fields = golden.Accumulator()
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.pair0 = pair0 = Fp32Adder()
        m.submodules.pair1 = pair1 = Fp32Adder()
        m.submodules.total = total = Fp32Adder()
        m.submodules.rounder = rounder = Fp16Rounder()

        # The parts of the pipeline are elastic by themselves and always move together; so does what goes beside them.
        valids = [Signal(name=f"step{number}_valid_r") for number in range(self.latency)]
        enables = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(enables[0]), self.o.valid.eq(valids[-1])]

        # Steps 1 to 3: both pairs.
        for number, pair in enumerate((pair0, pair1)):
            m.d.comb += [
                pair.i.valid.eq(self.i.valid),
                pair.i.payload.a.eq(self.i.payload[f"p_{2 * number}"]),
                pair.i.payload.b.eq(self.i.payload[f"p_{2 * number + 1}"]),
                pair.o.ready.eq(total.i.ready),
            ]

        # Steps 4 to 6: the sum of the pairs.
        m.d.comb += [
            total.i.valid.eq(pair0.o.valid),
            total.i.payload.a.eq(pair0.o.payload.sum),
            total.i.payload.b.eq(pair1.o.payload.sum),
            total.o.ready.eq(rounder.i.ready),
        ]

        # Steps 7 and 8: the rounded sum, and beside it the sum itself.
        m.d.comb += [
            rounder.i.valid.eq(total.o.valid),
            rounder.i.payload.single.eq(total.o.payload.sum),
            rounder.o.ready.eq(self.o.ready),
        ]
        single = total.o.payload.sum
        for number in range(ADDITIONS, self.latency):
            single_r = Signal(FP32.width, name=f"step{number}_single_r", reset_less=True)
            with m.If(enables[number]):
                m.d.sync += single_r.eq(single)
            single = single_r

        # The format travels with its item.
        half = self.i.payload.half
        for number, enable in enumerate(enables):
            half_r = Signal(name=f"step{number}_half_r", reset_less=True)
            with m.If(enable):
                m.d.sync += half_r.eq(half)
            half = half_r
        m.d.comb += self.o.payload.sum.eq(Mux(half, rounder.o.payload.half, single))
        return m
