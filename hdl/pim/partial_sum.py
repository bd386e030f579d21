"""Sums the partial results of the pseudo-channels of a stack, piece by piece of a vector, in FP32.

Latency: 5 cycles from a slot's last item to its sum.  Throughput: one item per cycle while items that do not start their
slot leave ``SAME_SLOT_CYCLES`` to the item before them in that slot.  Reset: no slot is started, the pipeline is empty.
Source: our choice; numbers as in ``golden_model.pim.partial_sum``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.formats import FP32
from golden_model.pim import partial_sum as golden
from hdl.arithmetic.fp16_rounder import Fp16Rounder
from hdl.arithmetic.fp32_adder import Fp32Adder
from hdl.shapes import advance, struct

__all__ = ["PartialSum"]

SAME_SLOT_CYCLES = Fp32Adder.latency + 1  # the adder, and the write into the memory
MINUS_ZERO = FP32.sign_bit  # neutral in the addition


class PartialSum(wiring.Component):
    """Accumulate pieces of a vector and emit their sums.

    Parameters
    ----------
    lanes : int
        Elements of a piece: a power of two from 4 to 16.
    slots : int
        Pieces that can be open at a time: a power of two from 2 to 64.

    Members
    -------
    i : In(stream)
        A partial result: first, last, slot, a_0 ... a_{lanes-1} (FP32 codes).
    o : Out(stream)
        The sum of a slot: slot, y_0 ... y_{lanes-1} (FP16 codes).

    Notes
    -----
    ``i.ready`` depends on ``i.payload``: an item waits while one of its slot is in the adders, unless it starts the slot.
    """

    i: stream.Interface
    o: stream.Interface

    latency = Fp32Adder.latency + Fp16Rounder.latency
    predicted_timing = {
        "emit": {"latency_cycles": latency, "interval_cycles": 1},
        "same_slot": {"latency_cycles": latency, "interval_cycles": SAME_SLOT_CYCLES},
    }

    def __init__(self, *, lanes: int = 16, slots: int = 16) -> None:
        fields = golden.PartialSum(lanes=lanes, slots=slots)  # checks both
        self.lanes = fields.lanes
        self.slots = fields.slots
        self.slot_bits = fields.slot_bits
        super().__init__({
            "i": In(stream.Signature(struct(fields.input_fields))),
            "o": Out(stream.Signature(struct(fields.output_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sums: memory.Memory = memory.Memory(shape=self.lanes * FP32.width, depth=self.slots, init=[])
        m.submodules.sums = sums
        read = sums.read_port(domain="comb")
        write = sums.write_port()
        offer = self.i.payload

        # The adders run in lockstep, and so do the rounders: these two rows of valid bits say where the items are.
        add_valids = [Signal(name=f"add{k}_valid_r") for k in range(Fp32Adder.latency)]
        round_valids = [Signal(name=f"round{k}_valid_r") for k in range(Fp16Rounder.latency)]
        go = Signal()
        emit = Signal()  # the item in the adders' last stage has a sum to emit
        leave = Signal()
        round_enables = advance(m, valids=round_valids, i_valid=emit, o_ready=self.o.ready)
        add_enables = advance(m, valids=add_valids, i_valid=go, o_ready=leave)
        slots_r = [Signal(self.slot_bits, name=f"slot{k}_r", reset_less=True) for k in range(self.latency)]
        lasts_r = [Signal(name=f"last{k}_r", reset_less=True) for k in range(Fp32Adder.latency)]
        for slot_r, before, enable in zip(slots_r, [offer.slot, *slots_r], add_enables + round_enables, strict=False):
            with m.If(enable):
                m.d.sync += slot_r.eq(before)
        for last_r, before, enable in zip(lasts_r, [offer.last, *lasts_r], add_enables, strict=False):
            with m.If(enable):
                m.d.sync += last_r.eq(before)

        # An item takes up its slot's sum once no other item of that slot is on its way to the memory.
        started_r = Signal(self.slots)
        slot_oh = Signal(self.slots)
        starts = Signal()
        flying = Signal()
        m.d.comb += [
            slot_oh.eq(1 << offer.slot),
            starts.eq(offer.first | ~(started_r & slot_oh).any()),
            flying.eq(Cat(valid & (slot == offer.slot) for valid, slot in zip(add_valids, slots_r, strict=False)).any()),
            go.eq(self.i.valid & (starts | ~flying)),
            self.i.ready.eq(add_enables[0] & (starts | ~flying)),
            read.addr.eq(offer.slot),
        ]
        with m.If(go & add_enables[0]):
            m.d.sync += started_r.eq(started_r | slot_oh)

        total = Signal(self.lanes * FP32.width)
        for lane in range(self.lanes):
            m.submodules[f"adder_{lane}"] = adder = Fp32Adder()
            m.submodules[f"rounder_{lane}"] = rounder = Fp16Rounder()
            before = read.data.word_select(lane, FP32.width)
            m.d.comb += [
                adder.i.payload.a.eq(Mux(starts, Const(MINUS_ZERO, FP32.width), before)),
                adder.i.payload.b.eq(offer[f"a_{lane}"]),
                adder.i.valid.eq(go),
                adder.o.ready.eq(leave),
                total.word_select(lane, FP32.width).eq(adder.o.payload.sum),
                rounder.i.payload.single.eq(adder.o.payload.sum),
                rounder.i.valid.eq(emit),
                rounder.o.ready.eq(self.o.ready),
                self.o.payload[f"y_{lane}"].eq(rounder.o.payload.half),
            ]
        m.d.comb += [
            write.addr.eq(slots_r[Fp32Adder.latency - 1]),
            write.data.eq(total),
            write.en.eq(add_valids[-1]),
            emit.eq(add_valids[-1] & lasts_r[-1]),
            leave.eq(~lasts_r[-1] | round_enables[0]),
            self.o.valid.eq(round_valids[-1]),
            self.o.payload.slot.eq(slots_r[-1]),
        ]
        return m
