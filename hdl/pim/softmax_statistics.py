"""First pass of softmax: a row of FP16 numbers becomes one pair (maximum, sum); pairs of parts become one pair.

Latency: 9 cycles from the last item of a row to its pair, one per entry of ``STAGES``.  Throughput: one item per cycle,
across rows too.  Reset: the pipeline is empty and the next item begins a row.
Source: our choice; numbers as in ``golden_model.pim.softmax_statistics``.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.elementary_tables import VALUE_FRACTION_BITS
from golden_model.arithmetic.formats import FP16
from golden_model.pim import softmax_statistics as golden
from golden_model.pim.exponential import INTEGER_BITS, LOWEST
from golden_model.pim.softmax_pair import DEEPEST, SUM_BITS, SUM_FRACTION_BITS, TERM_FRACTION_BITS
from hdl.arithmetic.rounding import unpack
from hdl.pim.exponential import PowerOfE, power_of_e
from hdl.shapes import advance, along, struct

__all__ = ["SoftmaxStatistics"]

STAGES = ("scale", "fix", "lookup", "inner", "halves", "outer", "align", "reduce", "accumulate")
TERM_BITS = 1 + SUM_FRACTION_BITS  # a term is below 2
CUT = VALUE_FRACTION_BITS - TERM_FRACTION_BITS


class SoftmaxStatistics(wiring.Component):
    """Reduce rows to pairs.

    Parameters
    ----------
    lanes
        Elements per beat, a power of two from 4 to 16.

    Members
    -------
    i : In(stream)
        An item: a beat (merge 0: last, count, a_k) or a pair (merge 1: last, maximum, sum, invalid).
    o : Out(stream)
        The pair of a row: maximum, sum, invalid.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {
        "statistics": {"latency_cycles": latency, "interval_cycles": 1},
        "merge": {"latency_cycles": latency, "interval_cycles": 1},
    }

    def __init__(self, *, lanes: int = 16) -> None:
        fields = golden.SoftmaxStatistics(lanes=lanes)
        self.lanes = fields.lanes
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES[:-1]]
        load_accumulate = Signal()
        enables = advance(m, valids=valids, i_valid=self.i.valid, o_ready=load_accumulate)
        m.d.comb += self.i.ready.eq(enables[0])
        load = dict(zip(STAGES, [*enables, load_accumulate], strict=True))

        # What goes along with the lanes, one register per stage.
        item = self.i.payload
        operands = [unpack(m, item[f"a_{lane}"], FP16, name=f"a{lane}") for lane in range(self.lanes)]
        present = [~item.merge & (item.count > lane) for lane in range(self.lanes)]
        spoilt = [p & (x.nan | (x.inf & ~x.sign)) for p, x in zip(present, operands, strict=True)]
        merge = along(m, load, "merge", item.merge, until="outer")
        last = along(m, load, "last", item.last, until="reduce")
        invalid = along(m, load, "invalid", Mux(item.merge, item.invalid, Cat(*spoilt).any()), until="reduce")
        addend = along(m, load, "addend", item["sum"], until="outer")
        # An empty pair's maximum does not count.
        pair_maximum = Mux(item["sum"].any(), item.maximum.as_signed(), Const(LOWEST, signed(INTEGER_BITS)))
        limit = along(m, load, "limit", pair_maximum, until="inner")

        # Stages 1 to 6, scale to outer: e^x in each lane.
        powers: list[PowerOfE] = []
        live = []
        for lane, x in enumerate(operands):
            powers.append(power_of_e(m, x, x.sign, enables=enables[:6], name=f"lane{lane}"))
            finite = present[lane] & ~x.nan & ~x.inf
            live.append(along(m, load, f"lane{lane}_live", finite, until="inner"))

        # Stage 3, lookup: the greatest integer part of the beat.
        lowest = Const(LOWEST, signed(INTEGER_BITS))
        candidates: list[Value] = [
            Mux(live[lane]["fix"], power.integer_r, lowest) for lane, power in enumerate(powers)
        ]
        while len(candidates) > 1:
            candidates = [
                self._greater(m, a, b, f"greatest_{len(candidates) // 2}_{k}")
                for k, (a, b) in enumerate(zip(candidates[::2], candidates[1::2], strict=True))
            ]
        lookup_greatest_r = Signal(signed(INTEGER_BITS), reset_less=True)
        with m.If(load["lookup"]):
            m.d.sync += lookup_greatest_r.eq(candidates[0])

        # Stage 4, inner: the row's maximum so far; the one register that a row carries from item to item here.
        running_r = Signal(signed(INTEGER_BITS), init=LOWEST)
        inner_before_r = Signal(signed(INTEGER_BITS), reset_less=True)
        newest = Signal(signed(INTEGER_BITS))
        m.d.comb += newest.eq(Mux(merge["lookup"], limit["lookup"], lookup_greatest_r))
        maximum = self._greater(m, running_r, newest, "maximum")
        inner_maximum_r = Signal(signed(INTEGER_BITS), reset_less=True)
        with m.If(load["inner"]):
            m.d.sync += [inner_before_r.eq(running_r), inner_maximum_r.eq(maximum)]
            with m.If(valids[2]):
                m.d.sync += running_r.eq(Mux(last["lookup"], lowest, maximum))

        # Stage 5, halves: by how much everything has to be shifted right.
        integers = [
            along(m, load, f"lane{lane}_integer", power.integer_r, first="lookup", until="inner")["inner"]
            for lane, power in enumerate(powers)
        ]
        shifts = []
        for lane, integer in enumerate(integers):
            depth = self._depth(m, inner_maximum_r, integer, f"lane{lane}_depth")
            depth = Mux(live[lane]["inner"], depth, DEEPEST)  # which leaves nothing of a term
            shifts.append(along(m, load, f"lane{lane}_shift", depth, first="halves", until="outer")["outer"])
        pair_depth = self._depth(m, inner_maximum_r, limit["inner"], "pair_depth")
        depths = along(m, load, "depth", pair_depth, first="halves", until="outer")
        growth = self._depth(m, inner_maximum_r, inner_before_r, "growth")
        growths = along(m, load, "growth", growth, first="halves", until="reduce")
        maximum_along = along(m, load, "maximum", inner_maximum_r, first="halves", until="reduce")

        # Stage 7, align: terms and pairs to the weight of the new maximum.
        align_terms_r = [Signal(TERM_BITS, name=f"lane{lane}_align_term_r", reset_less=True) for lane in range(self.lanes)]
        align_addend_r = Signal(SUM_BITS, reset_less=True)
        with m.If(load["align"]):
            for power, shift_r, term_r in zip(powers, shifts, align_terms_r, strict=True):
                term = Cat(Const(0, TERM_BITS - TERM_FRACTION_BITS - 1), power.mantissa_r[CUT:])
                m.d.sync += term_r.eq(term >> shift_r)
            m.d.sync += align_addend_r.eq(Mux(merge["outer"], addend["outer"] >> depths["outer"], 0))
        full = along(m, load, "full", merge["outer"] & addend["outer"].all(), first="align", until="reduce")

        # Stage 8, reduce: the item's own sum; lanes of a pair are not live, so they add nothing to it.
        reduce_total_r = Signal(SUM_BITS, reset_less=True)
        with m.If(load["reduce"]):
            m.d.sync += reduce_total_r.eq(sum(align_terms_r, start=align_addend_r))

        # Stage 9, accumulate: the second register that a row carries, and the pair that leaves.
        first_r = Signal(init=1)
        valid_r = Signal()
        sum_r = Signal(SUM_BITS, reset_less=True)
        invalid_r = Signal(reset_less=True)
        maximum_r = Signal(signed(INTEGER_BITS), reset_less=True)
        saturated_r = Signal(reset_less=True)
        saturated = Signal()
        total = Signal(SUM_BITS + 1)
        m.d.comb += [
            load_accumulate.eq(~valid_r | self.o.ready),
            total.eq(Mux(first_r, 0, sum_r >> growths["reduce"]) + reduce_total_r),
            # A sum that is full stays full, whatever follows in its row.
            saturated.eq(full["reduce"] | (~first_r & (saturated_r | sum_r.all()))),
            self.o.valid.eq(valid_r),
            self.o.payload["sum"].eq(sum_r | saturated_r.replicate(SUM_BITS)),
            self.o.payload.maximum.eq(maximum_r),
            self.o.payload.invalid.eq(invalid_r),
        ]
        with m.If(load_accumulate):
            m.d.sync += valid_r.eq(valids[-1] & last["reduce"])
            with m.If(valids[-1]):
                m.d.sync += [
                    sum_r.eq(total),
                    saturated_r.eq(saturated | total[SUM_BITS]),
                    invalid_r.eq(invalid["reduce"] | (invalid_r & ~first_r)),
                    maximum_r.eq(maximum_along["reduce"]),
                    first_r.eq(last["reduce"]),
                ]
        return m

    @staticmethod
    def _greater(m: Module, a: Value, b: Value, name: str) -> Signal:
        greater = Signal(signed(INTEGER_BITS), name=name)
        m.d.comb += greater.eq(Mux(a < b, b, a))
        return greater

    @staticmethod
    def _depth(m: Module, maximum: Value, integer: Value, name: str) -> Value:
        """Return ``maximum - integer``, at most DEEPEST; where ``integer`` counts it is the lesser one."""
        distance = Signal(INTEGER_BITS + 1, name=name)
        m.d.comb += distance.eq(maximum - integer)
        return Mux(distance > DEEPEST, DEEPEST, distance[: DEEPEST.bit_length()])
