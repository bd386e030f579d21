"""Bank group: the processing elements of four banks, in lockstep.

Latency, throughput and reset are the processing element's.
Source: paper section IV-A and Fig. 10; beats as in ``golden_model.pim.bank_group``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.pim import bank_group as golden
from golden_model.pim.bank_group import BANKS
from golden_model.pim.processing_element import Operation
from hdl.pim.processing_element import ProcessingElement
from hdl.shapes import struct

__all__ = ["BankGroup"]

NOTHING = 3
"""Operation code that a processing element ignores."""


class BankGroup(wiring.Component):
    """Four processing elements that take every beat together.

    Parameters
    ----------
    lanes, contexts, align_frac_bits : int
        As of ``ProcessingElement``.

    Members
    -------
    i : In(stream)
        A beat: op, axpy, first, half, context, slot, active, row_0 ... row_3, vector_0 ... vector_3 (words of FP16 codes).
    o : Out(stream)
        What READ gives: value_0 ... value_3.
    """

    i: stream.Interface
    o: stream.Interface

    latency = ProcessingElement.latency
    predicted_timing = ProcessingElement.predicted_timing

    def __init__(self, *, lanes: int = 16, contexts: int = 1, align_frac_bits: int = 28) -> None:
        fields = golden.BankGroup(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits)
        self._elements = [
            ProcessingElement(lanes=lanes, contexts=contexts, align_frac_bits=align_frac_bits) for _ in range(BANKS)
        ]
        self.lanes = fields.lanes
        super().__init__({
            "i": In(stream.Signature(struct(fields.beat_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat = self.i.payload
        # All elements are in the same state of their handshake at any time: one speaks for all.
        first = self._elements[0]
        m.d.comb += [self.i.ready.eq(first.i.ready), self.o.valid.eq(first.o.valid)]
        for bank, element in enumerate(self._elements):
            m.submodules[f"bank_{bank}"] = element
            acts = beat.active[bank] | (beat.op == Operation.READ)
            m.d.comb += [
                element.i.valid.eq(self.i.valid),
                element.i.payload.op.eq(Mux(acts, beat.op, NOTHING)),
                *(element.i.payload[name].eq(beat[name]) for name in ("axpy", "first", "half", "context", "slot")),
                Cat(element.i.payload[f"row_{lane}"] for lane in range(self.lanes)).eq(beat[f"row_{bank}"]),
                Cat(element.i.payload[f"vector_{lane}"] for lane in range(self.lanes)).eq(beat[f"vector_{bank}"]),
                element.o.ready.eq(self.o.ready),
                self.o.payload[f"value_{bank}"].eq(element.o.payload.value),
            ]
        return m
