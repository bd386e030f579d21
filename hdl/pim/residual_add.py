"""Residual addition: two FP16 rows element by element, each sum rounded once to nearest even.

Latency: 2 cycles, one per entry of ``STAGES``.  Throughput: one beat per cycle.  Reset: the pipeline is empty.
Source: IEEE 754-2019; numbers as in ``golden_model.pim.residual_add``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP16
from golden_model.pim import residual_add as golden
from hdl.arithmetic.rounding import leading_zeros, round_nearest_even, shift_left, unpack
from hdl.shapes import advance, struct

__all__ = ["ResidualAdd"]

STAGES = ("sum", "round")
SIGNIFICAND_BITS = FP16.fraction_bits + 1  # with the hidden bit
GUARD_BITS = 3  # a bit to round by, one more for the shift of a subtraction, and a sticky one
ALIGNED_BITS = SIGNIFICAND_BITS + GUARD_BITS
SUM = data.StructLayout({
    "magnitude": ALIGNED_BITS + 1,  # one carry
    "exponent": FP16.exponent_bits, "sign": 1, "zero_sign": 1, "nan": 1, "inf": 1,
})  # fmt: skip
"""A sum before it is rounded; ``inf`` counts only where ``nan`` is 0, ``zero_sign`` only where ``magnitude`` is 0."""


class ResidualAdd(wiring.Component):
    """Add two rows, beat by beat.

    Parameters
    ----------
    lanes : int
        Elements per beat: a power of two from 4 to 16.

    Members
    -------
    i : In(stream)
        last, count, a_0 ... a_{lanes-1}, b_0 ... b_{lanes-1}.
    o : Out(stream)
        last, count, masked (0), invalid (a sum of this beat is NaN), y_0 ... y_{lanes-1}.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {"add": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self, *, lanes: int = 16) -> None:
        fields = golden.ResidualAdd(lanes=lanes)  # checks it
        self.lanes = fields.lanes
        super().__init__({
            "i": In(stream.Signature(struct(fields.input_fields))),
            "o": Out(stream.Signature(struct(fields.output_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        load_sum, load_round = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(load_sum), self.o.valid.eq(valids[-1])]

        last_r = Signal(reset_less=True)
        count_r = Signal(self.i.payload.count.shape(), reset_less=True)
        sums_r = [
            data.View(SUM, Signal(SUM.size, name=f"sum_{lane}_r", reset_less=True)) for lane in range(self.lanes)
        ]
        with m.If(load_sum):
            m.d.sync += [last_r.eq(self.i.payload.last), count_r.eq(self.i.payload.count)]
        with m.If(load_round):
            m.d.sync += [self.o.payload.last.eq(last_r), self.o.payload.count.eq(count_r)]
        nans = []
        for lane, sum_r in enumerate(sums_r):
            total = self._sum(m, lane)
            used = Signal(name=f"used_{lane}")
            m.d.comb += used.eq(lane < count_r)
            nans.append(used & sum_r.nan)
            result = self._round(m, sum_r, name=f"lane_{lane}")
            with m.If(load_sum):
                m.d.sync += sum_r.eq(total)
            with m.If(load_round):
                m.d.sync += self.o.payload[f"y_{lane}"].eq(Mux(used, result, 0))
        with m.If(load_round):
            m.d.sync += self.o.payload.invalid.eq(Cat(nans).any())
        return m

    def _sum(self, m: Module, lane: int) -> data.View:
        """Stage 1: shift the lesser operand to the weights of the greater one, then add or subtract."""
        a, b = (unpack(m, self.i.payload[f"{side}_{lane}"], FP16, name=f"{side}_{lane}") for side in "ab")
        swap = Signal(name=f"swap_{lane}")
        subtract = Signal(name=f"subtract_{lane}")
        distance = Signal(FP16.exponent_bits, name=f"distance_{lane}")
        shift = Signal(range(ALIGNED_BITS + 1), name=f"shift_{lane}")
        shifted = Signal(2 * ALIGNED_BITS, name=f"shifted_{lane}")  # the lower half is what falls off
        lesser = Signal(ALIGNED_BITS, name=f"lesser_{lane}")
        greater = Signal(ALIGNED_BITS, name=f"greater_{lane}")
        total = data.View(SUM, Signal(SUM.size, name=f"total_{lane}"))
        m.d.comb += [
            swap.eq(self.i.payload[f"a_{lane}"][:-1] < self.i.payload[f"b_{lane}"][:-1]),  # magnitudes order like integers
            subtract.eq(a.sign ^ b.sign),
            distance.eq(Mux(swap, b.exponent - a.exponent, a.exponent - b.exponent)),  # never negative
            shift.eq(Mux(distance > ALIGNED_BITS, ALIGNED_BITS, distance)),  # all sticky from there
            shifted.eq(Cat(Const(0, ALIGNED_BITS + GUARD_BITS), Mux(swap, a.significand, b.significand)) >> shift),
            lesser.eq(shifted[ALIGNED_BITS:] | shifted[:ALIGNED_BITS].any()),
            greater.eq(Mux(swap, b.significand, a.significand) << GUARD_BITS),
            total.magnitude.eq(Mux(subtract, greater - lesser, greater + lesser)),
            total.exponent.eq(Mux(swap, b.exponent, a.exponent)),
            total.sign.eq(Mux(swap, b.sign, a.sign)),
            total.zero_sign.eq(a.sign & b.sign),
            total.nan.eq(a.nan | b.nan | (a.inf & b.inf & subtract)),
            total.inf.eq(a.inf | b.inf),
        ]
        return total

    @staticmethod
    def _round(m: Module, total: data.View, *, name: str) -> Value:
        """Stage 2: normalise as far as the exponent allows, round once, choose specials."""
        bits = ALIGNED_BITS + 1
        zeros = leading_zeros(m, total.magnitude, name=name)
        most = Signal(FP16.exponent_bits + 1, name=f"{name}_most")  # the shift that leaves a subnormal's weight
        shift = Signal(range(bits), name=f"{name}_shift")
        base = Signal(FP16.exponent_bits, name=f"{name}_base")
        m.d.comb += [
            most.eq(total.exponent + 1),
            shift.eq(Mux(zeros < most, zeros, most)),
            base.eq(most - shift),
        ]
        normal = shift_left(m, total.magnitude, shift, name=name)
        low = bits - SIGNIFICAND_BITS  # bits below the significand
        kept, half, rest = normal[low:], normal[low - 1], normal[: low - 1].any()
        rounded = round_nearest_even(m, base=base, kept=kept, half=half, rest=rest, fmt=FP16)
        result = Signal(FP16.width, name=f"{name}_result")
        with m.If(total.nan):
            m.d.comb += result.eq(FP16.quiet_nan)
        with m.Elif(total.inf):
            m.d.comb += result.eq(Cat(Const(FP16.infinity, FP16.width - 1), total.sign))
        with m.Elif(~total.magnitude.any()):
            m.d.comb += result.eq(Cat(Const(0, FP16.width - 1), total.zero_sign))
        with m.Else():
            m.d.comb += result.eq(Cat(rounded, total.sign))
        return result
