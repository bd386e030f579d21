"""Second pass of softmax: the row streams by again and leaves as probabilities, e^x / sum, rounded once to FP16.

Latency: 10 cycles, one per entry of ``STAGES``.  Throughput: one beat per cycle, across rows too: the reciprocal of the sum
is a pipeline beside the lanes, so a new row costs nothing.  Reset: the pipeline is empty.
Source: our choice; numbers as in ``golden_model.pim.softmax_normalizer``.
"""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from golden_model.arithmetic.elementary_tables import ARGUMENT_BITS, VALUE_FRACTION_BITS, Function
from golden_model.arithmetic.formats import FP16
from golden_model.pim import softmax_normalizer as golden
from golden_model.pim.exponential import INTEGER_BITS
from golden_model.pim.softmax_normalizer import (
    DELTA_FRACTION_BITS,
    FACTOR_FRACTION_BITS,
    LOWEST_EXPONENT,
    NORMAL_FRACTION_BITS,
    ONE_CODE,
    SHORT_FRACTION_BITS,
)
from golden_model.pim.softmax_pair import SUM_BITS, SUM_FRACTION_BITS, TERM_FRACTION_BITS
from hdl.arithmetic.piecewise import evaluate
from hdl.arithmetic.rounding import leading_zeros, shift_left, unpack
from hdl.pim.exponential import power_of_e
from hdl.pim.product_rounding import align_product, round_aligned
from hdl.shapes import advance, along, struct

__all__ = ["SoftmaxNormalizer"]

STAGES = ("normalise", "scale", "fix", "lookup", "inner", "halves", "outer", "multiply", "align", "round")
CUT = VALUE_FRACTION_BITS - TERM_FRACTION_BITS
FACTOR_BITS = FACTOR_FRACTION_BITS + 1  # at most 1
HALF_BITS = FACTOR_BITS // 2  # the product with a term is taken in two parts
DELTA_BITS = DELTA_FRACTION_BITS - 20  # |1 - m y| < 2^-21, and a sign
PRODUCT_FRACTION_BITS = TERM_FRACTION_BITS + FACTOR_FRACTION_BITS


class Inverse(NamedTuple):
    """1 / sum = factor * 2^-exponent."""

    exponent: dict[str, Signal]  # signed, by stage from "normalise" on
    empty: dict[str, Signal]  # whether the sum is 0, by stage
    factor_r: Signal  # with stage "outer"


class SoftmaxNormalizer(wiring.Component):
    """Turn rows and their pairs into probabilities.

    Parameters
    ----------
    lanes
        Elements per beat, a power of two from 4 to 16.

    Members
    -------
    i : In(stream)
        A beat, last, count and a_k, with the row's pair, maximum, sum and invalid, at every beat.
    o : Out(stream)
        The beat's probabilities: last, count, masked, invalid and y_k.
    """

    i: stream.Interface
    o: stream.Interface

    latency = len(STAGES)
    predicted_timing = {"normalize": {"latency_cycles": latency, "interval_cycles": 1}}

    def __init__(self, *, lanes: int = 16) -> None:
        fields = golden.SoftmaxNormalizer(lanes=lanes)
        self.lanes = fields.lanes
        super().__init__({
            "i": In(stream.Signature(struct(fields.operand_fields))),
            "o": Out(stream.Signature(struct(fields.result_fields))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valids = [Signal(name=f"{stage}_valid_r") for stage in STAGES]
        enables = advance(m, valids=valids, i_valid=self.i.valid, o_ready=self.o.ready)
        m.d.comb += [self.i.ready.eq(enables[0]), self.o.valid.eq(valids[-1])]
        load = dict(zip(STAGES, enables, strict=True))

        # Stages 1 to 7, normalise to outer: the reciprocal of the sum.
        item = self.i.payload
        inverse = self._inverse(m, load, item["sum"])
        last = along(m, load, "last", item.last, until="align")
        count = along(m, load, "count", item.count, until="align")
        maximum = along(m, load, "maximum", item.maximum.as_signed(), until="fix")
        spoilt = along(m, load, "spoilt", item.invalid, until="align")

        # Stages 2 to 9, scale to align, of each lane.
        invalid: Value = Const(0)
        results = []
        for lane in range(self.lanes):
            raw_r = Signal(FP16.width, name=f"lane{lane}_normalise_a_r", reset_less=True)
            with m.If(load["normalise"]):
                m.d.sync += raw_r.eq(item[f"a_{lane}"])
            x = unpack(m, raw_r, FP16, name=f"lane{lane}_a")
            present = Signal(name=f"lane{lane}_present")
            m.d.comb += present.eq(count["normalise"] > lane)
            bad = Signal(name=f"lane{lane}_bad")
            m.d.comb += bad.eq(present & (x.nan | (x.inf & ~x.sign)))
            invalid = invalid | bad
            live = along(m, load, f"lane{lane}_live", present & ~x.inf & ~x.nan, first="scale", until="align")
            nan = along(m, load, f"lane{lane}_nan", present & (bad | spoilt["normalise"]), first="scale", until="align")
            power = power_of_e(m, x, x.sign, enables=enables[1:7], name=f"lane{lane}")

            # Stage 4, lookup: the exponent of the probability, from 0 to where everything rounds to zero.
            difference = Signal(signed(INTEGER_BITS + 2), name=f"lane{lane}_difference")
            exponent = Signal(range(LOWEST_EXPONENT + 1), name=f"lane{lane}_exponent")
            m.d.comb += [
                difference.eq(maximum["fix"] - power.integer_r + inverse.exponent["fix"]),
                exponent.eq(Mux(difference > LOWEST_EXPONENT, LOWEST_EXPONENT, Mux(difference < 0, 0, difference))),
            ]
            exponents = along(m, load, f"lane{lane}_exponent", exponent, first="lookup", until="multiply")

            # Stage 8, multiply: by both halves of the reciprocal.
            term = power.mantissa_r[CUT:]
            low_r = Signal(len(term) + HALF_BITS, name=f"lane{lane}_multiply_low_r", reset_less=True)
            high_r = Signal(len(term) + FACTOR_BITS - HALF_BITS, name=f"lane{lane}_multiply_high_r", reset_less=True)
            with m.If(load["multiply"]):
                m.d.sync += [
                    low_r.eq(term * inverse.factor_r[:HALF_BITS]),
                    high_r.eq(term * inverse.factor_r[HALF_BITS:]),
                ]

            # Stages 9 and 10, align and round.
            product = Signal(PRODUCT_FRACTION_BITS + 1, name=f"lane{lane}_product")  # below 2
            m.d.comb += product.eq((high_r << HALF_BITS) + low_r)
            aligned = align_product(m, load["align"], product, -exponents["multiply"], zeros=1, name=f"lane{lane}")
            rounded = round_aligned(m, aligned, overflows=False, name=f"lane{lane}")
            code = Mux(rounded > ONE_CODE, ONE_CODE, rounded)
            value = Mux(live["align"] & ~inverse.empty["align"], code, 0)
            results.append(Mux(nan["align"], FP16.quiet_nan, value))
        flagged = along(m, load, "invalid", invalid | spoilt["normalise"], first="scale", until="align")

        # Stage 10, round: what leaves.
        with m.If(load["round"]):
            m.d.sync += [
                self.o.payload.last.eq(last["align"]),
                self.o.payload.count.eq(count["align"]),
                self.o.payload.masked.eq(inverse.empty["align"] & ~spoilt["align"]),
                self.o.payload.invalid.eq(flagged["align"]),
                *(self.o.payload[f"y_{lane}"].eq(result) for lane, result in enumerate(results)),
            ]
        return m

    @staticmethod
    def _inverse(m: Module, load: dict[str, Signal], total: Value) -> Inverse:
        # Stage 1, normalise: the leading one to the place of 1.
        zeros = leading_zeros(m, total, name="sum")
        normal = shift_left(m, total, zeros, name="sum")
        exponent = Signal(signed(SUM_BITS.bit_length() + 1))
        m.d.comb += exponent.eq(SUM_BITS - 1 - SUM_FRACTION_BITS - zeros)
        exponents = along(m, load, "exponent", exponent, until="fix")
        empty = along(m, load, "empty", ~total.any(), until="align")
        significand = along(m, load, "significand", normal[SUM_BITS - 1 - NORMAL_FRACTION_BITS :], until="inner")

        # Stages 2 to 5, scale to inner: the evaluator's 22 bits.
        argument = significand["normalise"][NORMAL_FRACTION_BITS - ARGUMENT_BITS : NORMAL_FRACTION_BITS]
        y_r = evaluate(
            m, Const(Function.RECIPROCAL, 2), argument, functions=(Function.RECIPROCAL,), name="seed",
            enables=[load[stage] for stage in ("scale", "fix", "lookup", "inner")],
        )  # fmt: skip

        # Stage 6, halves: delta = 1 - m y.  It is small, so the product's upper bits need not be known.
        product_fraction_bits = NORMAL_FRACTION_BITS + VALUE_FRACTION_BITS
        small_bits = product_fraction_bits - DELTA_FRACTION_BITS
        delta = Signal(signed(small_bits + DELTA_BITS))
        m.d.comb += delta.eq(0 - significand["inner"] * y_r)
        halves_delta_r = Signal(signed(DELTA_BITS), reset_less=True)
        halves_y_r = Signal(VALUE_FRACTION_BITS + 1, reset_less=True)
        with m.If(load["halves"]):
            m.d.sync += [halves_delta_r.eq(delta[small_bits:]), halves_y_r.eq(y_r)]

        # Stage 7, outer: factor = y + y delta.
        lift = SHORT_FRACTION_BITS + DELTA_FRACTION_BITS - VALUE_FRACTION_BITS
        cut = SHORT_FRACTION_BITS + DELTA_FRACTION_BITS - FACTOR_FRACTION_BITS
        short = halves_y_r[VALUE_FRACTION_BITS - SHORT_FRACTION_BITS :]
        factor = Signal(FACTOR_BITS + cut)
        m.d.comb += factor.eq((halves_y_r << lift) + short * halves_delta_r)
        outer_factor_r = Signal(FACTOR_BITS, reset_less=True)
        with m.If(load["outer"]):
            m.d.sync += outer_factor_r.eq(factor[cut:])
        return Inverse(exponents, empty, outer_factor_r)
