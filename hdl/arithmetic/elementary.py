"""2^a, 1/m and 1/sqrt(m) on a normalised argument, by a quadratic polynomial in each of 64 segments.

Latency: 4 cycles, one per entry of ``STAGES``.  Throughput: one value per cycle.  Reset: the pipeline is empty.
Source: our choice; numbers as in ``golden_model.arithmetic.elementary``.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic import elementary as golden
from golden_model.arithmetic.elementary_tables import Function
from hdl.arithmetic.piecewise import evaluate
from hdl.shapes import advance, struct

__all__ = ["Elementary"]

STAGES = ("lookup", "inner", "halves", "outer")


class Elementary(wiring.Component):
    """Evaluate one of four functions.

    Members
    -------
    i : In(stream)
        function (a code of ``Function``) and argument, a fraction in units of 2^-24.
    o : Out(stream)
        value, in units of 2^-24.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {"evaluate": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self) -> None:
        fields = golden.Elementary()
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        enables = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        value_r = evaluate(
            m, self.i.payload.function, self.i.payload.argument, enables=enables, functions=tuple(Function), name="value"
        )
        m.d.comb += [
            self.i.ready.eq(enables[0]),
            self.o.valid.eq(valids[-1]),
            self.o.payload.value.eq(value_r),
        ]
        return m
