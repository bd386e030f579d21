"""LayerNorm and RMSNorm of a row of FP16 numbers in two passes: exact sums, one scalar step, one rounding per element.

Latency: 12 cycles in the apply pass, one per entry of ``normalization_apply.STAGES``.  Throughput: one beat per cycle in both
passes; the scalar step of ``ROW_CYCLES`` lies between them.  Reset: the pipelines are empty, no row is known.
Source: our choice; numbers as in ``golden_model.pim.normalization``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP16, FP32
from golden_model.pim import normalization as golden
from hdl.pim import normalization_apply, normalization_scalars, normalization_statistics
from hdl.pim.normalization_apply import Lane
from hdl.pim.normalization_scalars import ROW, make_scalars
from hdl.pim.normalization_statistics import sum_up
from hdl.shapes import advance, struct

__all__ = ["Normalization"]

ROW_CYCLES = len(normalization_statistics.STAGES) + normalization_scalars.CYCLES
"""From the acceptance of a row's last statistics beat to that of the next beat of any kind."""


class Normalization(wiring.Component):
    """Normalise rows: statistics beats first, then the same row once more as apply beats.

    Parameters
    ----------
    lanes : int
        Elements per beat: a power of two from 4 to 16.

    Members
    -------
    i : In(stream)
        apply, rms, last, count, a_k (x), b_k (gamma), c_k (beta).
    o : Out(stream)
        Answers to apply beats: last, count, masked (0), invalid, y_k.
    epsilon : In(32)
        FP32 code, taken with a row's last statistics beat.

    Notes
    -----
    ``i.ready`` depends on ``i.payload.apply``: statistics beats do not wait for ``o``.
    """

    i: stream.Interface
    o: stream.Interface
    epsilon: Signal

    latency = len(normalization_apply.STAGES)
    predicted_timing = {
        "apply": {"latency_cycles": latency, "interval_cycles": 1},
        "row": {"latency_cycles": ROW_CYCLES + latency, "interval_cycles": ROW_CYCLES},
    }

    def __init__(self, *, lanes: int = 16) -> None:
        fields = golden.Normalization(lanes=lanes)  # checks it
        self.lanes = fields.lanes
        super().__init__({
            "i": In(stream.Signature(struct(fields.input_fields))),
            "o": Out(stream.Signature(struct(fields.output_fields))),
            "epsilon": In(FP32.width),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.i.payload
        pending_r = Signal()  # a row's last statistics beat is in, its scalars are not yet written
        take = Signal()
        ends = Signal()
        valids = [Signal(name=f"{stage}_valid_r") for stage in normalization_apply.STAGES]
        apply = Signal()
        loads = advance(m, valids=valids, i_valid=apply, o_ready=self.o.ready)
        m.d.comb += [
            apply.eq(self.i.valid & beat.apply & ~pending_r),
            take.eq(self.i.valid & ~beat.apply & ~pending_r),
            ends.eq(take & beat.last),
            self.i.ready.eq(~pending_r & (loads[0] | ~beat.apply)),
            self.o.valid.eq(valids[-1]),
        ]

        # First pass and scalar step.  The scalars of the row before stay until its last beat has left.
        epsilon_r = Signal(FP32.width, reset_less=True)
        rms_r = Signal(reset_less=True)
        row_r = data.View(ROW, Signal(ROW.size, name="row_r", reset_less=True))
        usable_r = Signal()
        totals = sum_up(m, beat, lanes=self.lanes, take=take)
        written = make_scalars(
            m, totals, epsilon=epsilon_r, rms=rms_r, row=row_r, usable=usable_r, idle=~Cat(valids).any()
        )
        with m.If(ends):
            m.d.sync += [epsilon_r.eq(self.epsilon), rms_r.eq(beat.rms), pending_r.eq(1)]
        with m.If(written):
            m.d.sync += pending_r.eq(0)

        # Second pass.
        last, count = beat.last, beat.count
        unfit = Signal()  # a lane that counts holds no finite number
        exponents = [beat[f"a_{lane}"][FP16.fraction_bits : FP16.width - 1] for lane in range(self.lanes)]
        m.d.comb += unfit.eq(Cat((lane < beat.count) & exponent.all() for lane, exponent in enumerate(exponents)).any())
        for stage, load in zip(normalization_apply.STAGES[:-1], loads, strict=False):
            signals = []
            for name, before in (("last", last), ("count", count), ("unfit", unfit)):
                signal = Signal(len(before), name=f"{stage}_{name}_r", reset_less=True)
                with m.If(load):
                    m.d.sync += signal.eq(before)
                signals.append(signal)
            last, count, unfit = signals
        answer = self.o.payload
        with m.If(loads[-1]):
            m.d.sync += [answer.last.eq(last), answer.count.eq(count), answer.invalid.eq(~usable_r | unfit)]
        for number in range(self.lanes):
            lane = Lane(m, number, loads=loads, row=row_r, usable=usable_r)
            y = lane.y(*(beat[f"{side}_{number}"] for side in "abc"))
            with m.If(loads[-1]):
                m.d.sync += answer[f"y_{number}"].eq(Mux(number < count, y, 0))
        return m
